//! One token: its `K` rows of logits, which stay in cache, become their own gradient.

use pulp::{Simd, WithSimd};

use super::map::Map;
use crate::cpu::Real;

/// Width of the accumulators: a reduction over a row keeps this many partial results, so that it can be vectorised and
/// gives the same bits on every machine.
const LANES: usize = 16;

/// What all tokens of a call share.
pub(super) struct Shared<'a, T> {
    pub(super) vocab: usize,
    pub(super) bias: Option<&'a [T]>,
    pub(super) map: Map<'a, T>,
}

/// Sums that a thread keeps over its tokens.
pub(super) struct Sums<T> {
    /// Gradient of the decoder bias, `[V]`.
    pub(super) bias: Vec<T>,
    /// Gradient of the packed map parameters.
    pub(super) params: Vec<T>,
}

/// The gradient a token is asked for.
pub(super) struct Upstream<'a, T> {
    /// Upstream gradient of the token's nll.
    pub(super) nll: T,
    /// Gradient of the token's log-priors, `[K]`.
    pub(super) d_log_prior: &'a mut [T],
    /// The logits before the map, `[K, V]`; unused for the identity.
    pub(super) logits: &'a mut [T],
    pub(super) sums: &'a mut Sums<T>,
}

/// Scores one token and, if asked, leaves the gradient of its logits in their place.
pub(super) struct Token<'t, 'a, T> {
    pub(super) shared: &'t Shared<'a, T>,
    /// `h·Wᵀ` without bias, `[K, V]`.
    pub(super) rows: &'t mut [T],
    /// `log π_k`, `[K]`, or nothing.
    pub(super) log_prior: Option<&'t [T]>,
    pub(super) word: usize,
    /// `[K]`, scratch: maximum, sum of exponentials and joint log-probability of each row.
    pub(super) stats: &'t mut [[T; 3]],
    pub(super) upstream: Option<Upstream<'t, T>>,
}

impl<T: Real> WithSimd for Token<'_, '_, T> {
    type Output = T;

    /// The token's nll.
    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) -> T {
        let Self { shared, rows, log_prior, word, stats, mut upstream } = self;
        let vocab = shared.vocab;
        for (k, (row, stats)) in rows.chunks_exact_mut(vocab).zip(stats.iter_mut()).enumerate() {
            if let Some(bias) = shared.bias {
                row.iter_mut().zip(bias).for_each(|(z, b)| *z += *b);
            }
            if !shared.map.is_identity() {
                if let Some(upstream) = &mut upstream {
                    upstream.logits[k * vocab..(k + 1) * vocab].copy_from_slice(row);
                }
                shared.map.apply(row);
            }
            let max = max(row);
            let at_target = row[word] - max;
            let sum = exponentials(row, max);
            let log_prior = log_prior.map_or(T::ZERO, |prior| prior[k]);
            *stats = [max, sum, log_prior + at_target - sum.ln()];
        }
        let joint = stats.iter().map(|stats| stats[2]);
        let top = joint.clone().fold(T::LOWEST, |top, x| if x > top { x } else { top });
        let mixed = joint.map(|x| (x - top).wide().exp()).sum::<f64>();
        let nll = -(top + T::of(mixed.ln()));
        if let Some(upstream) = upstream {
            backward(shared, rows, word, stats, nll, upstream);
        }
        nll
    }
}

/// `u γ_k (softmax − onehot)` through the map, row by row.
#[inline(always)]
fn backward<T: Real>(
    shared: &Shared<'_, T>,
    rows: &mut [T],
    word: usize,
    stats: &[[T; 3]],
    nll: T,
    upstream: Upstream<'_, T>,
) {
    let vocab = shared.vocab;
    let Upstream { nll: upstream_nll, d_log_prior, logits, sums } = upstream;
    for (k, (row, stats)) in rows.chunks_exact_mut(vocab).zip(stats).enumerate() {
        let [_, sum, joint] = *stats;
        let weight = upstream_nll * T::of((joint + nll).wide().exp());
        if let Some(slot) = d_log_prior.get_mut(k) {
            *slot = -weight;
        }
        let scale = weight / sum;
        row.iter_mut().for_each(|g| *g *= scale);
        row[word] = row[word] - weight;
        if !shared.map.is_identity() {
            shared.map.backward(&logits[k * vocab..(k + 1) * vocab], row, &mut sums.params);
        }
        sums.bias.iter_mut().zip(&*row).for_each(|(sum, g)| *sum += *g);
    }
}

/// The largest element. NaN is passed over here and shows in the sum of exponentials.
#[inline(always)]
fn max<T: Real>(row: &[T]) -> T {
    let mut lanes = [T::LOWEST; LANES];
    let (blocks, rest) = row.as_chunks::<LANES>();
    for block in blocks {
        for (lane, x) in lanes.iter_mut().zip(block) {
            *lane = if *x > *lane { *x } else { *lane };
        }
    }
    let larger = |a: T, b: &T| if *b > a { *b } else { a };
    rest.iter().fold(lanes.iter().fold(T::LOWEST, larger), larger)
}

/// Replaces `x` by `e^{x − max}` and returns the sum.
#[inline(always)]
fn exponentials<T: Real>(row: &mut [T], max: T) -> T {
    let mut lanes = [T::ZERO; LANES];
    let (blocks, rest) = row.as_chunks_mut::<LANES>();
    for block in blocks {
        for (lane, x) in lanes.iter_mut().zip(block) {
            let y = (*x - max).exp();
            *x = y;
            *lane += y;
        }
    }
    for (lane, x) in lanes.iter_mut().zip(rest) {
        *x = (*x - max).exp();
        *lane += *x;
    }
    T::of(lanes.iter().map(|lane| lane.wide()).sum())
}
