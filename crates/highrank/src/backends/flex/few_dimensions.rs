//! Scoring under a decoder of few dimensions: no chunks, each thread takes its tokens alone.
//!
//! Such a product has so little arithmetic that writing the logits of a chunk and reading them back takes most of the time. So
//! a thread makes the products of a few tokens, visits their rows, and takes their gradients back, before these rows leave
//! its own cache. The decoder's gradient is summed by each thread for itself, and these sums are added in their order.

use core::ops::Range;

use burn::backend::Flex;
use highrank_kernels::cpu::{Buffer, Factor, FewColumns, Real, in_pool};
use highrank_kernels::{Floats, Precision};

use super::call::Call;
use super::contexts::TokenContexts;
use super::tensors::take;
use super::workers::{TokenRows, Workers};
use crate::ops::{ContextSource, Gradients, Likelihood};

/// Most dimensions for which this is faster.
const MOST: usize = 24;

/// Bytes of the logits that a thread makes at a time: what a decoder and its gradient leave of a second-level cache of a
/// megabyte.
const GROUP: usize = 384 << 10;

/// Rows of a group, unless a token has more: enough for reading the decoder to be worth it, and no more than can share the
/// first-level cache with some of its words.
const FEWEST_ROWS: usize = 8;
const MOST_ROWS: usize = 16;

/// A decoder of few dimensions, and what the threads work with.
pub(super) struct FewDimensions<T> {
    decoder: FewColumns<T>,
    /// Tokens of a group, whose rows a thread works on at a time.
    group: usize,
    all: Vec<Own<T>>,
}

/// What one thread works with beside what scores its tokens.
struct Own<T> {
    /// Of a group, `[rows, V]`.
    logits: Buffer<T>,
    /// What each row of logits must be multiplied with to be its gradient.
    scales: Vec<T>,
    /// The contexts of a group, `[rows, d]`.
    contexts: Buffer<T>,
    /// The gradient of the decoder, if wanted.
    d_decoder: Option<FewColumns<T>>,
}

/// Tokens that one thread takes.
struct Part<'a, T> {
    tokens: TokenRows<'a, T>,
    /// `[tokens·K, d]`
    contexts: Factor<'a, T>,
    /// The same, or nothing.
    d_contexts: &'a mut [T],
}

impl<T: Real> FewDimensions<T> {
    /// None if this would be no faster: where the decoder has more dimensions, words have gates, there are less than two
    /// tokens for each thread, or what all threads need for themselves is more than the memory of a chunk. To be made by the calling thread.
    pub(super) fn new(
        input: &Likelihood<Floats<Flex>>,
        call: &Call<'_, T>,
        gradients: Option<&Gradients<Buffer<T>>>,
    ) -> Option<Self> {
        let Call { tokens, components, d, precision, .. } = *call;
        let (vocab, threads) = (call.logits.vocab, rayon::current_num_threads());
        let rows = (GROUP / (vocab * size_of::<T>()).max(1)).clamp(FEWEST_ROWS, MOST_ROWS);
        let group = (rows / components).max(1);
        let rows = group.min(tokens) * components;
        let sums = if gradients.is_some() { d } else { 0 };
        let needed = (threads * (rows + sums)).saturating_mul(vocab);
        let is_faster = (1..=MOST).contains(&d)
            && precision == Precision::Full
            && !matches!(input.contexts, ContextSource::Gated(_))
            && tokens >= 2 * threads
            // As many numbers as a chunk has, which is counted in the decoder's type.
            && needed <= input.chunk_bytes / input.weight.dtype().size();
        if !is_faster {
            return None;
        }
        let has_d_decoder = gradients.is_some_and(|gradients| gradients.weight.is_some());
        let own = || Own {
            logits: Buffer::new(rows * vocab),
            scales: vec![T::ZERO; rows],
            contexts: Buffer::new(rows * d),
            d_decoder: has_d_decoder.then(|| FewColumns::zeros(vocab, d)),
        };
        let decoder = in_pool(|| FewColumns::new(call.decoder));
        Some(Self { decoder, group, all: (0..threads).map(|_| own()).collect() })
    }

    /// Scores a block of tokens, and leaves the gradient of its contexts where that is asked for.
    ///
    /// What a worker is given depends on the number of workers alone.
    pub(super) fn score(
        &mut self,
        workers: &mut Workers<'_, T>,
        mut tokens: TokenRows<'_, T>,
        contexts: TokenContexts<'_, T>,
        d: usize,
        is_graded: bool,
    ) {
        let (count, workers_count, components) = (tokens.tokens(), self.all.len(), tokens.components);
        let bound = |worker: usize| worker * count / workers_count;
        let rows = |worker: usize| bound(worker) * components..bound(worker + 1) * components;
        let mut d_contexts = contexts.d_contexts.unwrap_or_default();
        let (decoder, group) = (&self.decoder, self.group);
        let parts = self.all.iter_mut().enumerate().map(|(worker, own)| {
            let Range { start, end } = rows(worker);
            let part = Part {
                tokens: tokens.take(bound(worker + 1) - bound(worker)),
                contexts: contexts.contexts.block(start..end, 0..d),
                d_contexts: take(&mut d_contexts, (end - start) * d),
            };
            (own, part)
        });
        workers.each(parts, |(own, part), score| own.run(decoder, group, part, is_graded, score));
    }

    /// Writes the decoder's gradient, the sum over all rows.
    pub(super) fn finish(&self, d_decoder: &mut [T]) {
        let parts: Vec<_> = self.all.iter().filter_map(|own| own.d_decoder.as_ref()).collect();
        FewColumns::sum(&parts, d_decoder);
    }
}

impl<T: Real> Own<T> {
    /// Group after group.
    fn run(
        &mut self,
        decoder: &FewColumns<T>,
        group: usize,
        part: Part<'_, T>,
        is_graded: bool,
        score: &mut dyn FnMut(TokenRows<'_, T>),
    ) {
        let Part { mut tokens, contexts, mut d_contexts } = part;
        let (components, d) = (tokens.components, decoder.columns());
        let mut first = 0;
        while tokens.tokens() > 0 {
            let group = tokens.take(group);
            let rows = group.tokens() * components;
            let logits = &mut self.logits[..rows * decoder.rows()];
            let (scales, left) = (&mut self.scales[..rows], &mut self.contexts[..rows * d]);
            for (row, out) in left.chunks_exact_mut(d).enumerate() {
                contexts.write_row(first + row, out, |x| x);
            }
            first += rows;
            decoder.multiply(left, logits);
            score(TokenRows { rows: &mut *logits, scales: &mut *scales, ..group });
            if !is_graded {
                continue;
            }
            let scaled = left.chunks_exact_mut(d).zip(&*scales);
            scaled.for_each(|(row, scale)| row.iter_mut().for_each(|x| *x *= *scale));
            let back = take(&mut d_contexts, rows * d);
            let has_back = !back.is_empty();
            let sums = self.d_decoder.as_mut().map(|sums| (&*left, sums));
            decoder.pull_back(logits, has_back.then_some(&mut *back), sums);
            let rows = back.chunks_exact_mut(d).zip(&*scales);
            rows.for_each(|(row, scale)| row.iter_mut().for_each(|x| *x *= *scale));
        }
    }
}
