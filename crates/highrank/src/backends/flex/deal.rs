//! How the tokens of a chunk are dealt to threads.
//!
//! Each worker scores as many whole tokens as the others, so a token's rows are visited while they are in cache. Tokens that
//! are left over, fewer than there are workers, are dealt row by row, in the three stages that [`Score`], [`Weigh`] and
//! [`Grade`] are: few tokens with many components keep all threads busy.
//!
//! What a worker is dealt depends on the number of workers alone, whichever thread runs which: the sums over rows, and so the
//! gradients, have the same bits in every run on a machine.

use core::ops::Range;

use highrank_kernels::cpu::{Buffer, Real, shorten};
use pulp::Arch;
use rayon::prelude::*;

use super::call::{Form, Input, Output};
use super::component::Component;
use super::gated_rows::Rows;
use super::slices::take;
use super::token::{Grade, Score, Scratch, Sees, Sums, Token, Upstream, Weigh};
use super::visit::{Seen, Visit};
use crate::ops::Statistic;

/// Sums that a thread adds at a time: some microseconds' work.
const GRAIN: usize = 1 << 13;

/// A run of tokens: their rows of logits, and room for what is made of them.
pub(super) struct Chunk<'a, T> {
    /// The first token.
    start: usize,
    /// `[tokens·K, V]`
    rows: &'a mut [T],
    /// `[tokens·K]`
    scales: &'a mut [T],
    /// `[tokens]`
    loss: &'a mut [T],
    /// `[tokens, Statistic::COUNT]`, or nothing.
    statistics: &'a mut [T],
    /// `[tokens, K]`, or nothing.
    d_log_prior: &'a mut [T],
    /// The rows that the gates of words add to, if they have any.
    gates: Option<Rows<'a, T>>,
    components: usize,
}

impl<'a, T: Real> Chunk<'a, T> {
    /// Tokens whose rows are still to be given.
    pub(super) fn new(tokens: Range<usize>, output: &'a mut Output<T>, components: usize) -> Self {
        let Range { start, end } = tokens;
        let part = |all: &'a mut [T], width: usize| match all.is_empty() {
            true => all,
            false => &mut all[start * width..end * width],
        };
        Self {
            start,
            rows: &mut [],
            scales: &mut [],
            loss: part(&mut output.loss, 1),
            statistics: part(&mut output.statistics, Statistic::COUNT),
            d_log_prior: part(output.log_prior.as_deref_mut().unwrap_or_default(), components),
            gates: None,
            components,
        }
    }

    /// The same tokens with their products, `[tokens·K, V]`, and room for the scales of as many rows.
    pub(super) fn with_rows<'b>(self, rows: &'b mut [T], scales: &'b mut [T]) -> Chunk<'b, T>
    where
        'a: 'b,
    {
        Chunk { rows, scales, ..self }
    }

    /// The same tokens with the rows of their gates.
    pub(super) fn with_gates(self, gates: Option<Rows<'a, T>>) -> Self {
        Self { gates, ..self }
    }

    pub(super) fn tokens(&self) -> usize {
        self.loss.len()
    }

    /// Takes the first tokens, or as many as there are.
    pub(super) fn take(&mut self, tokens: usize) -> Self {
        let tokens = tokens.min(self.tokens());
        let rows = tokens * self.components;
        let vocab = self.rows.len() / self.scales.len().max(1);
        let start = self.start;
        self.start += tokens;
        Self {
            start,
            rows: take(&mut self.rows, rows * vocab),
            scales: take(&mut self.scales, rows),
            loss: take(&mut self.loss, tokens),
            statistics: take(&mut self.statistics, tokens * Statistic::COUNT),
            d_log_prior: take(&mut self.d_log_prior, rows),
            gates: self.gates.as_mut().map(|gates| gates.take(tokens)),
            components: self.components,
        }
    }
}

/// What the threads work with.
pub(super) struct Workers<T> {
    all: Vec<Worker<T>>,
    /// Values that a row keeps, see [`Words::kept_of_row`](super::words::Words::kept_of_row).
    kept_of_row: usize,
}

/// What one thread works with: its sums, and its room for a token.
struct Worker<T> {
    sums: Sums<T>,
    room: Room<T>,
}

/// What is kept of a token while its rows are worked on.
struct Room<T> {
    /// What each row keeps, `[K, kept_of_row]`.
    kept: Buffer<T>,
    scratch: Scratch<T>,
}

impl<T: Real> Workers<T> {
    /// One for each thread of the pool. To be made by the calling thread, as [`Output::new`].
    pub(super) fn new(input: &Input<'_, T>, output: &Output<T>) -> Self {
        let Input { goal, components, shared, .. } = input;
        let (components, vocab) = (*components, shared.vocab);
        let kept_of_row = match input.upstream {
            Some(_) => shared.kept_of_row(goal.width, goal.has_level() || goal.statistics),
            None => 0,
        };
        let table = if output.params.is_some() { shared.map.num_sums() } else { 0 };
        let bias = output.bias.as_ref().map_or(0, |bias| bias.len());
        let worker = || Worker {
            sums: Sums { bias: Buffer::new(bias), table: Buffer::new(table) },
            room: Room {
                kept: Buffer::new(components * kept_of_row),
                scratch: Scratch {
                    components: vec![Component::default(); components],
                    listed: vec![0.0; components * goal.width],
                    visit: Visit::new(vocab, goal.has_level() && input.log_prior.is_some()),
                },
            },
        };
        let mut all: Vec<_> = (0..rayon::current_num_threads()).map(|_| worker()).collect();
        all.par_iter_mut().for_each(|Worker { sums, .. }| {
            sums.bias.fill(T::ZERO);
            sums.table.fill(T::ZERO);
        });
        Self { all, kept_of_row }
    }

    /// Scores a chunk's tokens; with an upstream gradient its rows become their gradients in the given form.
    pub(super) fn score(&mut self, input: &Input<'_, T>, mut chunk: Chunk<'_, T>, form: Form) {
        let (tokens, workers) = (chunk.tokens(), self.all.len());
        // A token of one row is dealt whole in any case.
        let each = if input.components == 1 { tokens.div_ceil(workers) } else { tokens / workers };
        if each > 0 {
            let jobs: Vec<_> = self.all.iter_mut().map(|worker| (chunk.take(each), worker)).collect();
            jobs.into_par_iter().for_each(|(tokens, worker)| worker.score(input, tokens, form));
        }
        if chunk.tokens() > 0 {
            self.score_rows(input, chunk, form);
        }
    }

    /// Scores a mixture's tokens, at most one for each worker, row by row.
    fn score_rows(&mut self, input: &Input<'_, T>, chunk: Chunk<'_, T>, form: Form) {
        let Chunk { start, rows, scales, loss, statistics, d_log_prior, components, .. } = chunk;
        let (shared, vocab, width) = (&input.shared, input.shared.vocab, input.goal.width);
        let (arch, is_graded, is_mixture) =
            (Arch::new(), input.upstream.is_some(), input.log_prior.is_some());
        let (pieces, kept_of_row) = (deal(loss.len(), components, self.all.len()), self.kept_of_row);
        let (mut sums, mut rooms): (Vec<_>, Vec<_>) =
            self.all.iter_mut().map(|Worker { sums, room }| (sums, room)).unzip();

        let mut left = &mut *rows;
        let mut left_of_tokens: Vec<_> = rooms.iter_mut().map(|room| room.left()).collect();
        let pieces_in_turn = pieces.iter().flatten();
        let scores = pieces_in_turn.map(|piece| {
            let (token, count) = (start + piece.token, piece.rows.len());
            let of_token = &mut left_of_tokens[piece.token];
            let prior = token * components + piece.rows.start..token * components + piece.rows.end;
            Score {
                shared,
                aim: input.goal.aim(token),
                rows: take(&mut left, count * vocab),
                log_prior: input.log_prior.map(|log_prior| &log_prior[prior]),
                components: take(&mut of_token.components, count),
                listed: take(&mut of_token.listed, count * width),
                kept: take(&mut of_token.kept, count * kept_of_row),
                is_graded,
                sees: Sees::new(&input.goal.aim(token), input.goal.statistics),
            }
        });
        let scores: Vec<_> = scores.collect();
        scores.into_par_iter().with_max_len(1).for_each(|score| {
            arch.dispatch(score);
        });

        let mut left_statistics = statistics;
        let tokens = rows.chunks_exact_mut(components * vocab).zip(&mut *loss).zip(&mut rooms);
        let weighed = tokens.enumerate().map(|(token, ((rows, loss), room))| {
            let Scratch { components, listed, visit } = &mut room.scratch;
            let weigh = Weigh {
                shared,
                aim: input.goal.aim(start + token),
                rows,
                is_mixture,
                components,
                listed,
                visit,
                seen: Seen::default(),
                statistics: take(&mut left_statistics, Statistic::COUNT),
            };
            (weigh, loss)
        });
        let weighed: Vec<_> = weighed.collect();
        weighed.into_par_iter().with_max_len(1).for_each(|(weigh, loss)| *loss = arch.dispatch(weigh));

        let Some(upstream) = input.upstream else { return };
        let (mut left, mut left_scales, mut left_priors) = (rows, scales, d_log_prior);
        let (mut left_kept, scratches): (Vec<_>, Vec<_>) =
            rooms.iter_mut().map(|Room { kept, scratch }| (&mut kept[..], &*scratch)).unzip();
        let mut with_rows = |piece: Piece| {
            let count = piece.rows.len();
            let kept = take(&mut left_kept[piece.token], count * kept_of_row);
            let [scales, d_log_prior] = [&mut left_scales, &mut left_priors].map(|left| take(left, count));
            (piece, take(&mut left, count * vocab), kept, scales, d_log_prior)
        };
        let jobs: Vec<(Vec<_>, _)> = pieces
            .into_iter()
            .zip(&mut sums)
            .map(|(pieces, sums)| (pieces.into_iter().map(&mut with_rows).collect(), sums))
            .collect();
        jobs.into_par_iter().with_max_len(1).for_each(|(pieces, sums)| {
            for (Piece { token, rows: of_token }, rows, kept, scales, d_log_prior) in pieces {
                let Scratch { components, listed, visit } = scratches[token];
                arch.dispatch(Grade {
                    shared,
                    aim: input.goal.aim(start + token),
                    rows: &mut *rows,
                    is_mixture,
                    components: &components[of_token.clone()],
                    listed: &listed[of_token.start * width..of_token.end * width],
                    visit,
                    sees: Sees::new(&input.goal.aim(start + token), input.goal.statistics),
                    upstream: upstream[start + token],
                    kept,
                    d_log_prior,
                    scales: &mut *scales,
                    sums,
                });
                form.finish(rows, scales);
            }
        });
    }

    /// Makes the gradients that are sums over all rows.
    pub(super) fn finish(mut self, input: &Input<'_, T>, output: &mut Output<T>) {
        if let Some(bias) = &mut output.bias {
            add(bias, &self.all.iter().map(|worker| &worker.sums.bias[..]).collect::<Vec<_>>());
        }
        if let Some(params) = &mut output.params {
            let (first, rest) = self.all.split_first_mut().expect("at least one thread");
            add(&mut first.sums.table, &rest.iter().map(|worker| &worker.sums.table[..]).collect::<Vec<_>>());
            input.shared.map.finish(&first.sums.table, params);
        }
    }
}

impl Form {
    /// Brings rows of unscaled gradients into this form.
    fn finish<T: Real>(self, rows: &mut [T], scales: &[T]) {
        let vocab = rows.len() / scales.len().max(1);
        let rows = rows.chunks_exact_mut(vocab.max(1)).zip(scales);
        match self {
            Self::Unscaled => {}
            Self::Scaled => rows.for_each(|(row, scale)| row.iter_mut().for_each(|g| *g *= *scale)),
            Self::Short => rows.for_each(|(row, scale)| shorten(row, *scale)),
        }
    }
}

/// Adds all parts to a sum, in their order, each thread for a run of numbers.
fn add<T: Real>(sum: &mut [T], parts: &[&[T]]) {
    sum.par_chunks_mut(GRAIN).enumerate().for_each(|(run, sum)| {
        for part in parts {
            let part = &part[run * GRAIN..run * GRAIN + sum.len()];
            sum.iter_mut().zip(part).for_each(|(sum, x)| *sum += *x);
        }
    });
}

impl<T: Real> Worker<T> {
    /// Scores tokens one after the other.
    fn score(&mut self, input: &Input<'_, T>, mut tokens: Chunk<'_, T>, form: Form) {
        let Self { sums, room: Room { kept, scratch } } = self;
        let (components, shared, arch) = (input.components, &input.shared, Arch::new());
        while tokens.tokens() > 0 {
            let Chunk { start: token, rows, scales, loss, statistics, d_log_prior, mut gates, .. } =
                tokens.take(1);
            if let Some(gates) = &mut gates {
                gates.add_to(rows);
            }
            let log_prior = input.log_prior.map(|prior| &prior[token * components..(token + 1) * components]);
            let upstream = input.upstream.map(|upstream| Upstream {
                loss: upstream[token],
                d_log_prior,
                kept: &mut *kept,
                scales: &mut *scales,
                sums: &mut *sums,
            });
            let is_graded = upstream.is_some();
            let (aim, rows_of_token) = (input.goal.aim(token), &mut *rows);
            let scratch = &mut *scratch;
            loss[0] = arch.dispatch(Token {
                shared,
                rows: rows_of_token,
                log_prior,
                aim,
                scratch,
                statistics,
                upstream,
            });
            if is_graded {
                if let Some(gates) = &mut gates {
                    gates.pull_back(rows, scales[0]);
                }
                form.finish(rows, scales);
            }
        }
    }
}

impl<T> Room<T> {
    /// All of it, to be dealt out row by row.
    fn left(&mut self) -> Left<'_, T>
    where
        T: Real,
    {
        let Scratch { components, listed, .. } = &mut self.scratch;
        Left { components, listed, kept: &mut self.kept }
    }
}

/// What is not yet dealt out of a token's room.
struct Left<'a, T> {
    components: &'a mut [Component<T>],
    listed: &'a mut [f64],
    kept: &'a mut [T],
}

/// Some of a token's rows.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Piece {
    token: usize,
    rows: Range<usize>,
}

/// Deals the rows of tokens, in order and as evenly as can be; the pieces of each worker.
fn deal(tokens: usize, components: usize, workers: usize) -> Vec<Vec<Piece>> {
    let rows = tokens * components;
    let bound = |worker: usize| worker * rows / workers;
    let pieces = |worker: usize| {
        let (mut first, last) = (bound(worker), bound(worker + 1));
        let mut pieces = vec![];
        while first < last {
            let token = first / components;
            let end = last.min((token + 1) * components);
            pieces.push(Piece { token, rows: first - token * components..end - token * components });
            first = end;
        }
        pieces
    };
    (0..workers).map(pieces).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_dealt_once_in_order_and_evenly() {
        for (tokens, components, workers) in
            [(1, 2, 1), (1, 15, 16), (4, 15, 16), (3, 5, 4), (2, 7, 3), (5, 1, 8)]
        {
            let dealt = deal(tokens, components, workers);
            assert_eq!(dealt.len(), workers);
            let rows: Vec<(usize, usize)> = dealt
                .iter()
                .flatten()
                .flat_map(|piece| piece.rows.clone().map(|row| (piece.token, row)))
                .collect();
            let want: Vec<_> =
                (0..tokens).flat_map(|token| (0..components).map(move |row| (token, row))).collect();
            assert_eq!(rows, want, "{tokens} tokens, {components} components, {workers} workers");
            let counts =
                dealt.iter().map(|pieces| pieces.iter().map(|piece| piece.rows.len()).sum::<usize>());
            let most = (tokens * components).div_ceil(workers);
            assert!(counts.clone().all(|count| count == most || count + 1 == most), "{dealt:?}");
        }
    }
}
