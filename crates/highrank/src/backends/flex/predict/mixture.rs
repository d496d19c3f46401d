//! A run of a mixture's log-probabilities: `log P_v = log Σ_k (π_k / S_k) e_kv`.
//!
//! The sum is made as it stands; in log space only where that is not exact, which ordinary logits never come to.

use highrank_kernels::cpu::Real;

use super::super::all_words::{FAINT, linear_mixture, log_mixture};
use super::super::mapped_logits::MappedLogits;
use super::runs::LogSumExp;

/// What a run's exponentials of one component are multiplied with to be its part of a probability.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Weight<T> {
    weight: T,
    /// The logarithm of that.
    log: T,
}

/// The weights `[runs, K]` of a token's components, by the sums `[K, runs]` of their rows.
#[inline(always)]
pub(super) fn weigh<T: Real>(sums: &[LogSumExp], log_prior: &[T], weights: &mut [Weight<T>]) {
    let components = log_prior.len();
    let runs = sums.len() / components;
    for (k, (sums, log_prior)) in sums.chunks_exact(runs).zip(log_prior).enumerate() {
        let whole = LogSumExp::of(sums);
        let log_share = log_prior.wide() - whole.sum.ln();
        for (run, sum) in sums.iter().enumerate() {
            let log = log_share + (sum.top - whole.top);
            weights[run * components + k] = Weight { weight: T::of(log.exp()), log: T::of(log) };
        }
    }
}

/// Makes a run of a mixture's log-probabilities from word `first` on, −∞ for masked words, of a token's rows of exponentials,
/// `[K, V]`, and their weights in the run, `[K]`.
#[inline(always)]
pub(super) fn mix<T: Real>(
    logits: &MappedLogits<'_, T>,
    rows: &[T],
    first: usize,
    weights: &[Weight<T>],
    out: &mut [T],
) {
    let run = first..first + out.len();
    let rows = || rows.chunks_exact(logits.vocab).map(|row| &row[run.clone()]).zip(weights);
    linear_mixture(|| rows().map(|(row, weight)| (row, weight.weight)), out);
    // Any probability that is not faint.
    logits.mask(first, out, T::ONE);
    let faint = T::of(FAINT);
    match out.iter().fold(false, |any, prob| any | (*prob < faint)) {
        true => log_mixture(rows().map(|(row, weight)| (row, weight.log)), out),
        false => out.iter_mut().for_each(|prob| *prob = prob.log()),
    }
    logits.mask(first, out, T::LOWEST);
}
