//! The sweep over chunks: product, rows, two products, next chunk.
//!
//! Contexts that a latent layer makes are made a block of chunks at a time, and their gradient is taken back through the
//! layer at the block's end.

use core::ops::Range;

use highrank_kernels::cpu::{Buffer, Matrix, Real, multiply};
use pulp::Arch;
use rayon::prelude::*;

use super::component::Component;
use super::goal::Goal;
use super::latent::{Layer, LayerGradients};
use super::token::{Scratch, Shared, Sums, Token, Upstream};
use super::visit::Visit;
use crate::ops::{Statistic, Wanted, runs};

/// The likelihood's inputs as slices, row-major.
pub(super) struct Input<'a, T> {
    pub(super) contexts: Source<'a, T>,
    /// `[N, K]`
    pub(super) log_prior: Option<&'a [T]>,
    /// `[V, d]`
    pub(super) weight: &'a [T],
    pub(super) shared: Shared<'a, T>,
    pub(super) goal: &'a Goal<T>,
    /// Gradient of the losses, `[N]`, if gradients are to be made.
    pub(super) upstream: Option<&'a [T]>,
    pub(super) components: usize,
    pub(super) d: usize,
    pub(super) chunk_tokens: usize,
    pub(super) block_tokens: usize,
}

/// Where the contexts come from.
pub(super) enum Source<'a, T> {
    /// `[N·K, d]`
    Given(&'a [T]),
    Latent(Layer<'a, T>),
}

/// The gradient of the contexts, or of what they are made of, if wanted.
pub(super) enum ContextGradient<T> {
    Unwanted,
    /// `[N·K, d]`
    Given(Buffer<T>),
    Layer(LayerGradients<T>),
}

/// Losses, and statistics and gradients where wanted.
pub(super) struct Output<T> {
    /// `[N]`
    pub(super) loss: Vec<T>,
    /// `[N, Statistic::COUNT]`, or nothing.
    pub(super) statistics: Vec<T>,
    /// `[N, K]`
    pub(super) log_prior: Option<Buffer<T>>,
    /// `[V, d]`
    pub(super) weight: Option<Buffer<T>>,
    /// `[V]`
    pub(super) bias: Option<Buffer<T>>,
    /// Of the map's parameters, `[num_params]`.
    pub(super) params: Option<Buffer<T>>,
}

impl<T: Real> Output<T> {
    /// Room for the losses, and with an upstream gradient for the wanted gradients.
    ///
    /// To be made by the calling thread: memory that pool threads allocate in turns is held by each of them.
    pub(super) fn new(input: &Input<'_, T>, wanted: Wanted) -> Self {
        let (tokens, components, vocab, d) =
            (input.goal.tokens(), input.components, input.shared.vocab, input.d);
        let graded = input.upstream.is_some();
        let room = |wanted: bool, count: usize| (wanted && graded && count > 0).then(|| Buffer::zeros(count));
        Self {
            loss: vec![T::ZERO; tokens],
            statistics: vec![T::ZERO; if input.goal.statistics { tokens * Statistic::COUNT } else { 0 }],
            log_prior: room(wanted.log_prior && input.log_prior.is_some(), tokens * components),
            weight: room(wanted.weight, vocab * d),
            bias: room(wanted.bias && input.shared.bias.is_some(), vocab),
            // Each map accumulates it in the same pass.
            params: room(true, input.shared.map.num_params()),
        }
    }
}

/// What the chunks of a call work with, one after the other.
struct Work<T> {
    /// Tokens of a chunk.
    chunk: usize,
    logits: Buffer<T>,
    /// What each row of logits must be multiplied with to be its gradient.
    scales: Vec<T>,
    /// The contexts times their scales.
    scaled: Buffer<T>,
    workers: Vec<Worker<T>>,
}

/// What one thread works with: its sums and its scratch.
struct Worker<T> {
    sums: Sums<T>,
    kept: Buffer<T>,
    scratch: Scratch<T>,
}

impl<T: Real> Worker<T> {
    /// To be made by the calling thread, as [`Output::new`].
    fn new(input: &Input<'_, T>, output: &Output<T>) -> Self {
        let Input { goal, components, shared, .. } = input;
        let (components, vocab) = (*components, shared.vocab);
        let kept = if input.upstream.is_some() { shared.map.kept() * components * vocab } else { 0 };
        let table = if output.params.is_some() { shared.map.num_sums() } else { 0 };
        let bias = output.bias.as_ref().map_or(0, |bias| bias.len());
        Self {
            sums: Sums { bias: Buffer::zeros(bias), table: Buffer::zeros(table) },
            kept: Buffer::new(kept),
            scratch: Scratch {
                components: vec![Component::default(); components],
                listed: vec![0.0; components * goal.width],
                visit: Visit::new(vocab, goal.has_level() && input.log_prior.is_some()),
            },
        }
    }
}

/// Losses, and with an upstream gradient the gradients that there is room for.
pub(super) fn run<T: Real>(
    input: &Input<'_, T>,
    d_contexts: &mut ContextGradient<T>,
    output: &mut Output<T>,
) {
    let (tokens, components, vocab, d) = (input.goal.tokens(), input.components, input.shared.vocab, input.d);
    if tokens == 0 {
        return;
    }
    let block = even(tokens, input.block_tokens);
    let chunk = even(block, input.chunk_tokens);
    // Tokens are dealt to a fixed number of workers in runs of fixed length, whichever thread runs which: the sums, and
    // so the gradients, have the same bits in every run on a machine.
    let workers = (0..rayon::current_num_threads()).map(|_| Worker::new(input, output)).collect();
    let mut work = Work {
        chunk,
        logits: Buffer::new(chunk * components * vocab),
        scales: vec![T::ZERO; chunk * components],
        scaled: Buffer::new(if output.weight.is_some() { chunk * components * d } else { 0 }),
        workers,
    };

    let size = |tokens: usize| tokens * components * d;
    match &input.contexts {
        Source::Given(contexts) => {
            let gradient = match d_contexts {
                ContextGradient::Given(gradient) => Some(&mut gradient[..]),
                _ => None,
            };
            run_block(input, 0..tokens, contexts, gradient, output, &mut work);
        }
        Source::Latent(layer) => {
            let mut contexts = Buffer::new(size(block));
            let mut gradient =
                matches!(d_contexts, ContextGradient::Layer(_)).then(|| Buffer::new(size(block)));
            for (start, end) in runs(tokens, block) {
                let size = size(end - start);
                let contexts = &mut contexts[..size];
                let mut gradient = gradient.as_mut().map(|gradient| &mut gradient[..size]);
                layer.forward(start..end, contexts);
                run_block(input, start..end, contexts, gradient.as_deref_mut(), output, &mut work);
                if let (ContextGradient::Layer(into), Some(gradient)) = (&mut *d_contexts, gradient) {
                    layer.backward(start..end, contexts, gradient, into);
                }
            }
        }
    }
    if let Some(bias) = &mut output.bias {
        work.workers.iter().for_each(|worker| add(bias, &worker.sums.bias));
    }
    if let Some(params) = &mut output.params {
        let (first, rest) = work.workers.split_first_mut().expect("at least one thread");
        rest.iter().for_each(|worker| add(&mut first.sums.table, &worker.sums.table));
        input.shared.map.finish(&first.sums.table, params);
    }
}

/// The length of runs of at most `most` tokens that are as even as can be: a short last chunk would read all of the
/// decoder for few tokens.
fn even(tokens: usize, most: usize) -> usize {
    tokens.div_ceil(tokens.div_ceil(most))
}

/// A block of tokens, chunk by chunk; `contexts` and their gradient are those of the block.
fn run_block<T: Real>(
    input: &Input<'_, T>,
    block: Range<usize>,
    contexts: &[T],
    mut d_contexts: Option<&mut [T]>,
    output: &mut Output<T>,
    work: &mut Work<T>,
) {
    let (components, vocab, d) = (input.components, input.shared.vocab, input.d);
    let weight = Matrix::new(input.weight, vocab, d);
    for (first, last) in runs(block.len(), work.chunk) {
        let start = block.start + first;
        let rows = (last - first) * components;
        let span = first * components * d..last * components * d;
        let contexts = &contexts[span.clone()];
        let logits = &mut work.logits[..rows * vocab];
        multiply(logits, Matrix::new(contexts, rows, d), weight.t(), false);

        sweep_rows(input, start, logits, &mut work.scales, output, &mut work.workers);

        let gradient = Matrix::new(logits, rows, vocab);
        if let Some(d_contexts) = &mut d_contexts {
            let target = &mut d_contexts[span];
            multiply(target, gradient, weight, false);
            target.chunks_exact_mut(d).zip(&work.scales).for_each(|(row, scale)| {
                row.iter_mut().for_each(|x| *x *= *scale);
            });
        }
        if let Some(d_weight) = &mut output.weight {
            let scaled = &mut work.scaled[..rows * d];
            for ((scaled, context), scale) in
                scaled.chunks_exact_mut(d).zip(contexts.chunks_exact(d)).zip(&work.scales)
            {
                scaled.iter_mut().zip(context).for_each(|(y, x)| *y = *x * *scale);
            }
            multiply(d_weight, gradient.t(), Matrix::new(scaled, rows, d), start > 0);
        }
    }
}

/// Scores a chunk's tokens, the workers side by side; with an upstream gradient the logits become their gradient.
fn sweep_rows<T: Real>(
    input: &Input<'_, T>,
    start: usize,
    logits: &mut [T],
    scales: &mut [T],
    output: &mut Output<T>,
    workers: &mut [Worker<T>],
) {
    let (components, vocab) = (input.components, input.shared.vocab);
    let tokens = logits.len() / (components * vocab);
    let run = tokens.div_ceil(workers.len());
    let loss = &mut output.loss[start..start + tokens];
    let d_log_prior = match &mut output.log_prior {
        Some(all) => &mut all[start * components..(start + tokens) * components],
        None => &mut [][..],
    };
    let statistics = match input.goal.statistics {
        true => &mut output.statistics[start * Statistic::COUNT..(start + tokens) * Statistic::COUNT],
        false => &mut [][..],
    };
    let mut d_log_prior = parts(d_log_prior, run * components);
    let mut scales = parts(scales, run * components);
    let mut statistics = parts(statistics, run * Statistic::COUNT);
    let chunks = logits.chunks_mut(run * components * vocab).zip(loss.chunks_mut(run));
    let jobs: Vec<_> = chunks
        .zip(workers)
        .enumerate()
        .map(|(part, ((rows, loss), worker))| Job {
            first: start + part * run,
            rows,
            loss,
            statistics: statistics(),
            d_log_prior: d_log_prior(),
            scales: scales(),
            worker,
        })
        .collect();
    jobs.into_par_iter().for_each(|job| job.run(input));
}

/// A run of tokens that one thread scores.
struct Job<'a, T> {
    /// The first token.
    first: usize,
    rows: &'a mut [T],
    loss: &'a mut [T],
    statistics: &'a mut [T],
    d_log_prior: &'a mut [T],
    scales: &'a mut [T],
    worker: &'a mut Worker<T>,
}

impl<T: Real> Job<'_, T> {
    fn run(self, input: &Input<'_, T>) {
        let Self { first, rows, loss, statistics, d_log_prior, scales, worker } = self;
        let Worker { sums, kept, scratch } = worker;
        let (components, shared, arch) = (input.components, &input.shared, Arch::new());
        let mut d_log_prior = parts(d_log_prior, components);
        let mut scales = parts(scales, components);
        let mut statistics = parts(statistics, Statistic::COUNT);
        for (i, (rows, loss)) in rows.chunks_exact_mut(components * shared.vocab).zip(loss).enumerate() {
            let token = first + i;
            let log_prior = input.log_prior.map(|prior| &prior[token * components..(token + 1) * components]);
            let upstream = input.upstream.map(|upstream| Upstream {
                loss: upstream[token],
                d_log_prior: d_log_prior(),
                kept,
                scales: scales(),
                sums,
            });
            let (aim, statistics) = (input.goal.aim(token), statistics());
            *loss = arch.dispatch(Token { shared, rows, log_prior, aim, scratch, statistics, upstream });
        }
    }
}

/// Hands out a slice in parts of `length`, of which the last may be shorter, and then empty ones.
fn parts<'a, T>(mut slice: &'a mut [T], length: usize) -> impl FnMut() -> &'a mut [T] {
    move || {
        let length = length.min(slice.len());
        let (part, rest) = std::mem::take(&mut slice).split_at_mut(length);
        slice = rest;
        part
    }
}

fn add<T: Real>(sum: &mut [T], part: &[T]) {
    sum.iter_mut().zip(part).for_each(|(sum, x)| *sum += *x);
}
