//! How the tokens of a chunk are spread over threads.
//!
//! Each worker scores as many whole tokens as the others, so a token's rows are visited while they are in cache. Tokens that
//! are left over, fewer than there are workers, are spread row by row, in the three stages that [`Forward`], [`LossStage`] and
//! [`Backward`] are: few tokens with many components keep all threads busy.
//!
//! What a worker gets depends on the number of workers alone, whichever thread runs which: the sums over rows, and so the
//! gradients, have the same bits in every run on a machine.

use highrank_kernels::cpu::{Buffer, Real, share};
use pulp::Arch;

use super::all_words::{AllWords, Asked, WordSums};
use super::call::Call;
use super::component::Component;
use super::gate_rows::GateRows;
use super::gradient_form::GradientForm;
use super::target::TargetTable;
use super::tensors::take;
use super::token::{Backward, Forward, LossStage, Scratch, SharedGradients, Token};
use crate::ops::Statistic;

/// Sums that a thread adds at a time: some microseconds' work.
const GRAIN: usize = 1 << 13;

/// A run of tokens: their rows of products, and where to write what is made of them.
pub(super) struct TokenRows<'a, T> {
    /// The first token.
    pub(super) start: usize,
    /// `[tokens·K, V]`
    pub(super) rows: &'a mut [T],
    /// `[tokens·K]`
    pub(super) scales: &'a mut [T],
    /// `[tokens]`
    pub(super) loss: &'a mut [T],
    /// `[tokens, Statistic::COUNT]`, or nothing.
    pub(super) statistics: &'a mut [T],
    /// As [`LossStage::log_probs`] of each token, or nothing.
    pub(super) log_probs: &'a mut [T],
    /// Another head's log-probabilities, or its probabilities where they are the targets, `[tokens, V]`; or nothing.
    pub(super) model: &'a [T],
    /// `[tokens, K]`, or nothing.
    pub(super) d_log_prior: &'a mut [T],
    /// What the gates of words add to the rows, if there are any.
    pub(super) gates: Option<GateRows<'a, T>>,
    pub(super) components: usize,
}

impl<T: Real> TokenRows<'_, T> {
    pub(super) fn tokens(&self) -> usize {
        self.loss.len()
    }

    /// Takes the first tokens, or as many as there are.
    pub(super) fn take(&mut self, tokens: usize) -> Self {
        let tokens = tokens.min(self.tokens());
        let rows = tokens * self.components;
        let vocab = self.rows.len() / self.scales.len().max(1);
        let [of_listed, of_model] =
            [self.log_probs.len(), self.model.len()].map(|all| all / self.tokens().max(1));
        let model;
        (model, self.model) = self.model.split_at(tokens * of_model);
        let start = self.start;
        self.start += tokens;
        Self {
            start,
            rows: take(&mut self.rows, rows * vocab),
            scales: take(&mut self.scales, rows),
            loss: take(&mut self.loss, tokens),
            statistics: take(&mut self.statistics, tokens * Statistic::COUNT),
            log_probs: take(&mut self.log_probs, tokens * of_listed),
            model,
            d_log_prior: take(&mut self.d_log_prior, rows),
            gates: self.gates.as_mut().map(|gates| gates.take(tokens)),
            components: self.components,
        }
    }
}

/// What the threads work with.
pub(super) struct Workers<'c, T> {
    call: &'c Call<'c, T>,
    pub(super) targets: &'c TargetTable<T>,
    /// Gradient of the losses, `[N]`, if gradients are to be made.
    upstream: Option<&'c [T]>,
    form: GradientForm,
    all: Vec<Worker<T>>,
    /// Values that a row saves, see [`MappedLogits::saved_of_row`](super::mapped_logits::MappedLogits::saved_of_row).
    saved_of_row: usize,
}

/// What one thread works with.
struct Worker<T> {
    gradients: SharedGradients<T>,
    /// What each row of a token saves, `[K, saved_of_row]`.
    saved: Buffer<T>,
    scratch: Scratch<T>,
}

impl<'c, T: Real> Workers<'c, T> {
    /// One for each thread of the pool.
    pub(super) fn new(
        call: &'c Call<'c, T>,
        targets: &'c TargetTable<T>,
        upstream: Option<&'c [T]>,
        has_d_bias: bool,
        form: GradientForm,
    ) -> Self {
        let Call { logits, components, .. } = call;
        let (components, vocab) = (*components, logits.vocab);
        let (saved_of_row, map_sums) = match upstream {
            Some(_) => {
                let all_words = targets.has_dense() || targets.statistics;
                (logits.saved_of_row(targets.listed(), all_words), logits.map.layout.num_sums)
            }
            None => (0, 0),
        };
        let has_ratios = targets.has_dense() && (call.log_prior.is_some() || targets.divergence.is_some());
        let worker = || Worker {
            gradients: SharedGradients {
                bias: Buffer::new(if has_d_bias { vocab } else { 0 }),
                map_sums: Buffer::new(map_sums),
            },
            saved: Buffer::new(components * saved_of_row),
            scratch: Scratch {
                mixture: vec![Component::default(); components],
                listed: vec![0.0; components * targets.listed()],
                all_words: AllWords::new(vocab, has_ratios),
                entropy: 0.0,
            },
        };
        let mut all: Vec<_> = (0..rayon::current_num_threads()).map(|_| worker()).collect();
        share(&mut all, |Worker { gradients, .. }| {
            gradients.bias.fill(T::ZERO);
            gradients.map_sums.fill(T::ZERO);
        });
        Self { call, targets, upstream, form, all, saved_of_row }
    }

    /// Scores a chunk's tokens; with an upstream gradient its rows become their gradients.
    pub(super) fn score(&mut self, mut chunk: TokenRows<'_, T>) {
        let (tokens, workers) = (chunk.tokens(), self.all.len());
        // A token of one row is given whole in any case.
        let each = if chunk.components == 1 { tokens.div_ceil(workers) } else { tokens / workers };
        let mut all = std::mem::take(&mut self.all);
        if each > 0 {
            let jobs = all.iter_mut().map(|worker| (chunk.take(each), worker));
            share(jobs, |(tokens, worker)| self.score_tokens(tokens, worker));
        }
        if chunk.tokens() > 0 {
            self.score_rows(chunk, &mut all);
        }
        self.all = all;
    }

    /// Gives each worker a part of some work, in which it scores tokens alone.
    pub(super) fn each<P: Send>(
        &mut self,
        parts: impl Iterator<Item = P>,
        work: impl Fn(P, &mut dyn FnMut(TokenRows<'_, T>)) + Sync,
    ) {
        let mut all = std::mem::take(&mut self.all);
        share(parts.zip(&mut all), |(part, worker)| {
            work(part, &mut |tokens| self.score_tokens(tokens, worker));
        });
        self.all = all;
    }

    /// What the stages of a token share.
    ///
    /// - model: another head's log-probabilities for the token, `[V]`, where there is one
    fn token<'m>(&self, token: usize, model: &'m [T]) -> Token<'m, 'm, T>
    where
        'c: 'm,
    {
        Token {
            logits: &self.call.logits,
            target: self.targets.target(token, model),
            is_mixture: self.call.log_prior.is_some() || self.targets.divergence.is_some(),
            is_graded: self.upstream.is_some(),
            asked: Asked { entropy: self.targets.has_entropy(), statistics: self.targets.statistics },
        }
    }

    /// Scores tokens one after the other.
    fn score_tokens(&self, mut tokens: TokenRows<'_, T>, worker: &mut Worker<T>) {
        let Worker { gradients, saved, scratch } = worker;
        let arch = Arch::new();
        while tokens.tokens() > 0 {
            let mut one = tokens.take(1);
            let token = self.token(one.start, one.model);
            if let Some(gates) = &mut one.gates {
                gates.add_to(one.rows);
            }
            let word_sums = arch.dispatch(Forward {
                token,
                rows: &mut *one.rows,
                log_prior: self.call.log_prior_of(one.start, 0..self.call.components),
                mixture: &mut scratch.mixture,
                listed: &mut scratch.listed,
                saved: &mut *saved,
            });
            one.loss[0] = arch.dispatch(LossStage {
                token,
                rows: &mut *one.rows,
                scratch: &mut *scratch,
                word_sums,
                statistics: one.statistics,
                log_probs: one.log_probs,
            });
            let Some(upstream) = self.upstream else { continue };
            arch.dispatch(Backward {
                token,
                rows: &mut *one.rows,
                scratch,
                first: 0,
                upstream: upstream[one.start],
                saved: &mut *saved,
                d_log_prior: one.d_log_prior,
                scales: &mut *one.scales,
                gradients,
            });
            if let Some(gates) = &mut one.gates {
                gates.pull_back(one.rows, one.scales[0]);
            }
            self.form.finish(one.rows, one.scales);
        }
    }

    /// Scores a mixture's tokens, at most one for each worker, row by row. A worker's scratch is that of one token, whoever works
    /// on its rows.
    fn score_rows(&self, chunk: TokenRows<'_, T>, all: &mut [Worker<T>]) {
        let TokenRows { start, rows, loss, statistics, log_probs, model, components, .. } = chunk;
        let [of_listed, of_model] = [log_probs.len(), model.len()].map(|all| all / loss.len());
        let token =
            |token: usize| self.token(start + token, &model[token * of_model..(token + 1) * of_model]);
        let (vocab, width, arch) = (self.call.logits.vocab, self.targets.listed(), Arch::new());
        let (saved_of_row, count, workers) = (self.saved_of_row, loss.len() * components, all.len());

        let scratches = all.iter_mut().flat_map(|Worker { saved, scratch, .. }| {
            let (mut mixture, mut listed) = (&mut scratch.mixture[..], &mut scratch.listed[..]);
            let mut saved = &mut saved[..];
            (0..components).map(move |_| {
                (take(&mut mixture, 1), take(&mut listed, width), take(&mut saved, saved_of_row))
            })
        });
        let jobs = rows.chunks_exact_mut(vocab).zip(scratches).enumerate();
        let jobs = jobs.map(|(row, (rows, (mixture, listed, saved)))| {
            let (number, component) = (row / components, row % components);
            let log_prior = self.call.log_prior_of(start + number, component..component + 1);
            Forward { token: token(number), rows, log_prior, mixture, listed, saved }
        });
        share(jobs, |forward| {
            arch.dispatch(forward);
        });

        let (mut rest, mut of_words) = (statistics, log_probs);
        let jobs = rows.chunks_exact_mut(components * vocab).zip(loss).zip(&mut *all).enumerate();
        let jobs = jobs.map(|(number, ((rows, loss), Worker { scratch, .. }))| {
            let statistics = take(&mut rest, Statistic::COUNT);
            let log_probs = take(&mut of_words, of_listed);
            let (token, word_sums) = (token(number), WordSums::default());
            (LossStage { token, rows, scratch, word_sums, statistics, log_probs }, loss)
        });
        share(jobs, |(job, loss)| *loss = arch.dispatch(job));

        let Some(upstream) = self.upstream else { return };
        let mut d_log_prior = chunk.d_log_prior;
        let (gradients, of_tokens): (Vec<_>, Vec<_>) = all
            .iter_mut()
            .map(|Worker { gradients, saved, scratch }| (gradients, (&mut saved[..], &*scratch)))
            .unzip();
        let scratches = of_tokens.into_iter().flat_map(|(mut saved, scratch)| {
            (0..components).map(move |_| (scratch, take(&mut saved, saved_of_row)))
        });
        let rows = rows.chunks_exact_mut(vocab).zip(chunk.scales.chunks_exact_mut(1)).zip(scratches);
        let mut rows = rows.enumerate().map(|(row, of_row)| (row, of_row, take(&mut d_log_prior, 1)));
        let bound = |worker: usize| worker * count / workers;
        let jobs = gradients.into_iter().enumerate().map(|(worker, gradients)| {
            let count = bound(worker + 1) - bound(worker);
            (rows.by_ref().take(count).collect::<Vec<_>>(), gradients)
        });
        share(jobs, |(rows, gradients)| {
            for (row, ((rows, scales), (scratch, saved)), d_log_prior) in rows {
                let (number, first) = (row / components, row % components);
                arch.dispatch(Backward {
                    token: token(number),
                    rows: &mut *rows,
                    scratch,
                    first,
                    upstream: upstream[start + number],
                    saved,
                    d_log_prior,
                    scales: &mut *scales,
                    gradients: &mut *gradients,
                });
                self.form.finish(rows, scales);
            }
        });
    }

    /// Writes the gradients that are sums over all rows: of the decoder's bias and of the map's parameters.
    pub(super) fn finish(mut self, d_bias: Option<&mut [T]>, d_map_params: Option<&mut [T]>) {
        if let Some(d_bias) = d_bias {
            add(d_bias, self.all.iter().map(|worker| &worker.gradients.bias[..]).collect());
        }
        if let Some(d_map_params) = d_map_params {
            let (first, rest) = self.all.split_first_mut().expect("at least one thread");
            let sums = &mut first.gradients.map_sums;
            add(sums, rest.iter().map(|worker| &worker.gradients.map_sums[..]).collect());
            self.call.logits.map.finish(sums, d_map_params);
        }
    }
}

/// Adds all parts to a sum, in their order, each thread for a run of numbers.
fn add<T: Real>(sum: &mut [T], parts: Vec<&[T]>) {
    share(sum.chunks_mut(GRAIN).enumerate(), |(run, sum)| {
        for part in &parts {
            let part = &part[run * GRAIN..run * GRAIN + sum.len()];
            sum.iter_mut().zip(part).for_each(|(sum, x)| *sum += *x);
        }
    });
}
