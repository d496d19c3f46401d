//! Scoring under a decoder of few dimensions: no chunks, each thread takes its tokens alone.
//!
//! Such a product has so little arithmetic that writing the logits of a chunk and reading them back takes most of the time. So
//! a thread makes the products of a few tokens, visits their rows, and takes their gradients back, before these rows leave
//! its own cache. The decoder's gradient is summed by each thread for itself, and these sums are added in their order.

use burn::backend::Flex;
use highrank_kernels::cpu::{Buffer, FewColumns, Real, in_pool};
use highrank_kernels::{Floats, Precision};

use super::call::Call;
use super::contexts::TokenContexts;
use super::workers::{TokenRows, Workers};
use crate::ops::{ContextSource, Gradients, LikelihoodInput};

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

impl<T: Real> FewDimensions<T> {
    /// None if this would be no faster: where the decoder has more dimensions, words have gates, there are less than two
    /// tokens for each thread, or what all threads need for themselves is more than the memory of a chunk. To be made by the calling thread.
    pub(super) fn new(
        input: &LikelihoodInput<Floats<Flex>>,
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
            && needed <= input.chunk_numbers();
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
        mut contexts: TokenContexts<'_, T>,
    ) {
        let (count, workers_count) = (tokens.tokens(), self.all.len());
        let bound = |worker: usize| worker * count / workers_count;
        let (decoder, group) = (&self.decoder, self.group);
        let parts = self.all.iter_mut().enumerate().map(|(worker, own)| {
            let count = bound(worker + 1) - bound(worker);
            (own, tokens.take(count), contexts.take(count))
        });
        workers.each(parts, |(own, tokens, contexts), score| {
            own.run(decoder, group, tokens, contexts, score);
        });
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
        mut tokens: TokenRows<'_, T>,
        mut contexts: TokenContexts<'_, T>,
        score: &mut dyn FnMut(TokenRows<'_, T>),
    ) {
        let d = decoder.columns();
        while tokens.tokens() > 0 {
            let group = tokens.take(group);
            let of_group = contexts.take(group.tokens());
            let rows = of_group.contexts.rows();
            let logits = &mut self.logits[..rows * decoder.rows()];
            let (scales, left) = (&mut self.scales[..rows], &mut self.contexts[..rows * d]);
            for (row, out) in left.chunks_exact_mut(d).enumerate() {
                of_group.contexts.write_row(row, out, |x| x);
            }
            decoder.multiply(left, logits);
            score(TokenRows { rows: &mut *logits, scales: &mut *scales, ..group });
            let mut back = of_group.d_contexts;
            if back.is_none() && self.d_decoder.is_none() {
                continue;
            }
            let scaled = left.chunks_exact_mut(d).zip(&*scales);
            scaled.for_each(|(row, scale)| row.iter_mut().for_each(|x| *x *= *scale));
            let sums = self.d_decoder.as_mut().map(|sums| (&*left, sums));
            decoder.pull_back(logits, back.as_deref_mut(), sums);
            let rows = back.unwrap_or_default().chunks_exact_mut(d).zip(&*scales);
            rows.for_each(|(row, scale)| row.iter_mut().for_each(|x| *x *= *scale));
        }
    }
}
