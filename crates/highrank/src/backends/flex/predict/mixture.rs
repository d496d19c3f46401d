//! A run of a mixture's log-probabilities: `log P_v = log Σ_k (π_k / S_k) e_kv`.
//!
//! The sum is made as it stands; in log space only where that is not exact, which ordinary logits never come to.

use core::ops::Range;

use highrank_kernels::cpu::Real;

use super::super::row::larger;
use super::super::visit::{FAINT, exponential, logarithm};
use super::super::words::Words;
use super::runs::{Part, RUN};

/// Words that are summed at a time, in registers.
const BLOCK: usize = 64;

/// What a run's exponentials of one component are multiplied with to be its part of a probability.
#[derive(Debug, Clone, Copy)]
pub(super) struct Weight<T> {
    weight: T,
    /// The logarithm of that.
    log: T,
}

impl<T: Real> Weight<T> {
    pub(super) const NONE: Self = Self { weight: T::ZERO, log: T::LOWEST };
}

/// The weights `[runs, K]` of a token's components, by the parts `[K, runs]` of their rows.
#[inline(always)]
pub(super) fn weigh<T: Real>(parts: &[Part], log_prior: &[T], weights: &mut [Weight<T>]) {
    let components = log_prior.len();
    let runs = parts.len() / components;
    for (k, (parts, log_prior)) in parts.chunks_exact(runs).zip(log_prior).enumerate() {
        let whole = parts.iter().fold(Part::NONE, |whole, part| whole.and(*part));
        let log_share = log_prior.wide() - whole.sum.ln();
        for (run, part) in parts.iter().enumerate() {
            let log = log_share + (part.top - whole.top);
            weights[run * components + k] = Weight { weight: T::of(log.exp()), log: T::of(log) };
        }
    }
}

/// A token's rows of exponentials, `[K, V]`.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a, T> {
    pub(super) words: &'a Words<'a, T>,
    pub(super) values: &'a [T],
}

impl<T: Real> Rows<'_, T> {
    /// Writes the log-probabilities of a run of words, −∞ for masked words.
    #[inline(always)]
    pub(super) fn mix(&self, first: usize, weights: &[Weight<T>], out: &mut [T]) {
        let run = first..first + out.len();
        self.sum(run.clone(), weights, out);
        // Any probability that is not faint.
        self.words.mask(first, out, T::ONE);
        let faint = T::of(FAINT);
        match out.iter().fold(false, |any, prob| any | (*prob < faint)) {
            true => self.sum_logarithms(run, weights, out),
            false => out.iter_mut().for_each(|prob| *prob = prob.log()),
        }
        self.words.mask(first, out, T::LOWEST);
    }

    /// `P_v`
    #[inline(always)]
    fn sum(&self, run: Range<usize>, weights: &[Weight<T>], out: &mut [T]) {
        let rows = || self.values.chunks_exact(self.words.vocab).zip(weights);
        let (blocks, rest) = out.as_chunks_mut::<BLOCK>();
        for (i, block) in blocks.iter_mut().enumerate() {
            let mut probs = [T::ZERO; BLOCK];
            for (row, Weight { weight, .. }) in rows() {
                let (values, _) = row[run.start + i * BLOCK..run.end].as_chunks::<BLOCK>();
                for (prob, e) in probs.iter_mut().zip(&values[0]) {
                    *prob = weight.mul_add(exponential(*e), *prob);
                }
            }
            *block = probs;
        }
        rest.fill(T::ZERO);
        let places = run.end - rest.len()..run.end;
        for (row, Weight { weight, .. }) in rows() {
            for (prob, e) in rest.iter_mut().zip(&row[places.clone()]) {
                *prob = weight.mul_add(exponential(*e), *prob);
            }
        }
    }

    /// `log P_v`
    #[inline(always)]
    fn sum_logarithms(&self, run: Range<usize>, weights: &[Weight<T>], out: &mut [T]) {
        let rows = || self.values.chunks_exact(self.words.vocab).map(|row| &row[run.clone()]).zip(weights);
        let mut tops = [T::LOWEST; RUN];
        for (row, weight) in rows() {
            for (top, e) in tops.iter_mut().zip(row) {
                *top = larger(*top, logarithm(*e) + weight.log);
            }
        }
        out.fill(T::ZERO);
        for (row, weight) in rows() {
            for ((sum, top), e) in out.iter_mut().zip(&tops).zip(row) {
                *sum += (logarithm(*e) + weight.log - *top).exp();
            }
        }
        out.iter_mut().zip(&tops).for_each(|(sum, top)| *sum = *top + sum.log());
    }
}
