//! One token: its `K` rows of logits, which stay in cache, become their own gradient.
//!
//! A row is left *unscaled*: with `e_v = e^{f(z_v) − max}`, `S = Σ e_v` and the token's weight `w = u γ_k`, the gradient
//!
//! ```text
//! w (softmax(f(z)) − onehot_y) ∘ f'(z)  =  (w / S) · (e − S·onehot_y) ∘ f'(z)
//! ```
//!
//! is a vector known as soon as its row is, times a number known after all rows of the token. The products that follow
//! take the number with the small matrices, so no pass over the logits is spent on it. Maps with parameters, whose sums
//! need the true gradient, are scaled in place and have the scale 1.

use highrank_kernels::cpu::{Buffer, Real, sigmoid, softplus};
use pulp::{Simd, WithSimd};

use super::map::Map;

/// Width of the accumulators: a reduction over a row keeps this many partial results, so that it can be vectorised and
/// gives the same bits on every machine.
const LANES: usize = 32;

/// Words whose bias gradients are summed over a token's rows at a time: they stay in the first-level cache.
const TILE: usize = 1024;

/// What all tokens of a call share.
pub(super) struct Shared<'a, T> {
    pub(super) vocab: usize,
    pub(super) bias: Option<&'a [T]>,
    pub(super) map: Map<'a, T>,
}

/// Sums that a thread keeps over its tokens.
pub(super) struct Sums<T> {
    /// Gradient of the decoder bias, `[V]`, or nothing.
    pub(super) bias: Buffer<T>,
    /// What [`Map::backward`] sums, or nothing.
    pub(super) table: Buffer<T>,
}

/// The gradient a token is asked for.
pub(super) struct Upstream<'a, T> {
    /// Upstream gradient of the token's nll.
    pub(super) nll: T,
    /// Gradient of the token's log-priors, `[K]`, or nothing.
    pub(super) d_log_prior: &'a mut [T],
    /// What the map [keeps](Map::kept) of each row.
    pub(super) kept: &'a mut [T],
    /// What each row must be multiplied with to be its gradient, `[K]`.
    pub(super) scales: &'a mut [T],
    pub(super) sums: &'a mut Sums<T>,
}

/// Scores one token and, if asked, leaves the unscaled gradient of its logits in their place.
pub(super) struct Token<'t, 'a, T> {
    pub(super) shared: &'t Shared<'a, T>,
    /// `h·Wᵀ` without bias, `[K, V]`.
    pub(super) rows: &'t mut [T],
    /// `log π_k`, `[K]`, or nothing.
    pub(super) log_prior: Option<&'t [T]>,
    pub(super) word: usize,
    /// `[K]`, scratch: sum of exponentials and joint log-probability of each row.
    pub(super) stats: &'t mut [[T; 2]],
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
            let (log_likelihood, sum) = match (&shared.map, &mut upstream) {
                (Map::Identity, Some(_)) => score(row, shared.bias, word, &Identity, true),
                (Map::Identity, None) => score(row, shared.bias, word, &Identity, false),
                (Map::Sigsoftmax, Some(_)) => score(row, shared.bias, word, &Sigsoftmax, true),
                (Map::Sigsoftmax, None) => score(row, shared.bias, word, &Sigsoftmax, false),
                (map, upstream) => {
                    if let Some(bias) = shared.bias {
                        row.iter_mut().zip(bias).for_each(|(z, b)| *z += *b);
                    }
                    let kept = map.kept() * vocab;
                    match upstream {
                        Some(upstream) => map.apply(row, &mut upstream.kept[k * kept..(k + 1) * kept]),
                        None => map.apply(row, &mut []),
                    }
                    score(row, None, word, &Identity, upstream.is_some())
                }
            };
            let log_prior = log_prior.map_or(T::ZERO, |prior| prior[k]);
            *stats = [sum, log_prior + log_likelihood];
        }
        let joint = stats.iter().map(|stats| stats[1]);
        let top = joint.clone().fold(T::LOWEST, |top, x| if x > top { x } else { top });
        let mixed = joint.map(|x| (x - top).wide().exp()).sum::<f64>();
        let nll = -(top + T::of(mixed.ln()));
        if let Some(upstream) = upstream {
            backward(shared, rows, stats, nll, upstream);
        }
        nll
    }
}

/// An increasing map without parameters, whose row is done in one pass.
trait Pointwise<T> {
    /// `f(z)`.
    fn value(&self, z: T) -> T;
    /// `f(z)` and `f'(z)`.
    fn value_and_slope(&self, z: T) -> (T, T);
}

struct Identity;

impl<T: Real> Pointwise<T> for Identity {
    #[inline(always)]
    fn value(&self, z: T) -> T {
        z
    }

    #[inline(always)]
    fn value_and_slope(&self, z: T) -> (T, T) {
        (z, T::ONE)
    }
}

struct Sigsoftmax;

impl<T: Real> Pointwise<T> for Sigsoftmax {
    #[inline(always)]
    fn value(&self, z: T) -> T {
        z - softplus(-z)
    }

    #[inline(always)]
    fn value_and_slope(&self, z: T) -> (T, T) {
        (z - softplus(-z), T::ONE + sigmoid(-z))
    }
}

/// Log-probability of `word` and the sum of exponentials of a row of logits, to which the bias is still to be added.
/// If `graded`, the row becomes its unscaled gradient.
#[inline(always)]
fn score<T: Real>(
    row: &mut [T],
    bias: Option<&[T]>,
    word: usize,
    map: &impl Pointwise<T>,
    graded: bool,
) -> (T, T) {
    match bias {
        Some(bias) => score_with(row, Some(&bias[..row.len()]), word, map, graded),
        None => score_with(row, None, word, map, graded),
    }
}

#[inline(always)]
fn score_with<T: Real>(
    row: &mut [T],
    bias: Option<&[T]>,
    word: usize,
    map: &impl Pointwise<T>,
    graded: bool,
) -> (T, T) {
    let at = |row: &[T], word: usize| match bias {
        Some(bias) => row[word] + bias[word],
        None => row[word],
    };
    // The map increases, so the largest mapped logit is the largest logit, mapped.
    let max = map.value(match bias {
        Some(bias) => max(row, bias, |z, b| z + b),
        None => max(row, row, |z, _| z),
    });
    let (target, target_slope) = map.value_and_slope(at(row, word));
    let target = target - max;

    let mut lanes = [T::ZERO; LANES];
    let visit = |z: T, lane: &mut T| {
        let (value, slope) = map.value_and_slope(z);
        let e = (value - max).exp();
        *lane += e;
        e * slope
    };
    match bias {
        Some(bias) => {
            let (blocks, rest) = row.as_chunks_mut::<LANES>();
            let (bias_blocks, bias_rest) = bias.as_chunks::<LANES>();
            for (block, bias) in blocks.iter_mut().zip(bias_blocks) {
                for i in 0..LANES {
                    let e = visit(block[i] + bias[i], &mut lanes[i]);
                    if graded {
                        block[i] = e;
                    }
                }
            }
            for ((z, bias), lane) in rest.iter_mut().zip(bias_rest).zip(&mut lanes) {
                *z = visit(*z + *bias, lane);
            }
        }
        None => {
            let (blocks, rest) = row.as_chunks_mut::<LANES>();
            for block in blocks {
                for i in 0..LANES {
                    let e = visit(block[i], &mut lanes[i]);
                    if graded {
                        block[i] = e;
                    }
                }
            }
            for (z, lane) in rest.iter_mut().zip(&mut lanes) {
                *z = visit(*z, lane);
            }
        }
    }
    let sum = T::of(lanes.iter().map(|lane| lane.wide()).sum());
    if graded {
        row[word] = (target.exp() - sum) * target_slope;
    }
    (target - sum.ln(), sum)
}

/// The scale `u γ_k / S` of each row, and the sums that the rows contribute to.
#[inline(always)]
fn backward<T: Real>(
    shared: &Shared<'_, T>,
    rows: &mut [T],
    stats: &[[T; 2]],
    nll: T,
    upstream: Upstream<'_, T>,
) {
    let vocab = shared.vocab;
    let Upstream { nll: upstream_nll, d_log_prior, kept, scales, sums } = upstream;
    let kept_of_row = shared.map.kept() * vocab;
    for (k, (row, [sum, joint])) in rows.chunks_exact_mut(vocab).zip(stats).enumerate() {
        let weight = upstream_nll * T::of((*joint + nll).wide().exp());
        if let Some(slot) = d_log_prior.get_mut(k) {
            *slot = -weight;
        }
        scales[k] = weight / *sum;
        if kept_of_row > 0 {
            let scale = std::mem::replace(&mut scales[k], T::ONE);
            let kept = &kept[k * kept_of_row..(k + 1) * kept_of_row];
            shared.map.backward(kept, row, scale, &mut sums.table);
        }
    }
    for (tile, sums) in sums.bias.chunks_mut(TILE).enumerate() {
        for (row, scale) in rows.chunks_exact(vocab).zip(&*scales) {
            let row = &row[tile * TILE..tile * TILE + sums.len()];
            sums.iter_mut().zip(row).for_each(|(sum, g)| *sum = scale.mul_add(*g, *sum));
        }
    }
}

/// The largest `of(x, y)` of two slices of one length. NaN is passed over here and shows in the sum of exponentials.
#[inline(always)]
fn max<T: Real>(xs: &[T], ys: &[T], of: impl Fn(T, T) -> T) -> T {
    let larger = |a: T, b: T| if b > a { b } else { a };
    let mut lanes = [T::LOWEST; LANES];
    let (x_blocks, x_rest) = xs.as_chunks::<LANES>();
    let (y_blocks, y_rest) = ys.as_chunks::<LANES>();
    for (x, y) in x_blocks.iter().zip(y_blocks) {
        for i in 0..LANES {
            lanes[i] = larger(lanes[i], of(x[i], y[i]));
        }
    }
    let rest = x_rest.iter().zip(y_rest).map(|(x, y)| of(*x, *y));
    rest.fold(lanes.into_iter().fold(T::LOWEST, larger), larger)
}
