//! One token: its `K` rows of logits, which stay in cache, become their own gradient.
//!
//! With `a_k = f(z_k)/τ`, `p_k = softmax(a_k)`, `r_kv = π_k p_kv / P_v`, the target distribution `q̃`, `s_k = Σ_v q̃_v r_kv` and the
//! upstream gradient `u`:
//!
//! ```text
//! ∂/∂a_kv    = u (p_kv c_k − q̃_v r_kv)      c_k = s_k + 2 λ π_k LSE_k
//! ∂/∂log π_k = u (λ π_k LSE_k² − s_k)
//! ```
//!
//! `q̃` is a level for all words and something more for a few that are listed, mostly for one. Without a level a row is left
//! *unscaled*: with `e_v = e^{a_v − max}` and `S = Σ_v e_v` its gradient is
//!
//! ```text
//! (u c / S) · (e − (S / c) q̃ r)
//! ```
//!
//! a vector that is known, but for the listed words, as soon as its row is, times a number known after all rows of the
//! token. The products that follow take the number with the small matrices, so no pass over the logits is spent on it.
//! Maps with parameters, whose sums need the true gradient, are scaled in place and have the scale 1. A level, and
//! statistics, need `P_v` of all words, for which `visit.rs` visits the rows once more.

use highrank_kernels::cpu::{Buffer, Real};
use pulp::{Simd, WithSimd};

use super::component::{Component, is_masked};
use super::goal::Aim;
use super::map::Map;
use super::row::{exponentials, max};
use super::visit::{Seen, Visit, keep_exponentials, see_single};
use crate::ops::{MASKED, Statistic};

/// Words whose bias gradients are summed over a token's rows at a time: they stay in the first-level cache.
const TILE: usize = 1024;

/// What all tokens of a call share.
pub(super) struct Shared<'a, T> {
    pub(super) vocab: usize,
    /// That of masked words is 0.
    pub(super) bias: Option<&'a [T]>,
    /// The words of probability 0.
    pub(super) masked: &'a [usize],
    pub(super) map: Map<'a, T>,
    /// Divides mapped logits.
    pub(super) temperature: T,
}

impl<T: Real> Shared<'_, T> {
    /// Turns a row of products into mapped logits; `kept` is empty, or takes what the map keeps of them.
    #[inline(always)]
    fn map_row(&self, row: &mut [T], kept: &mut [T]) {
        if let Some(bias) = self.bias {
            row.iter_mut().zip(bias).for_each(|(z, b)| *z += *b);
        }
        self.map.apply(row, kept);
        if self.temperature != T::ONE {
            row.iter_mut().for_each(|z| *z /= self.temperature);
        }
        self.masked.iter().for_each(|word| row[*word] = T::of(MASKED));
    }
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
    /// Upstream gradient of the token's loss.
    pub(super) loss: T,
    /// Gradient of the token's log-priors, `[K]`, or nothing.
    pub(super) d_log_prior: &'a mut [T],
    /// What the map [keeps](Map::kept) of each row.
    pub(super) kept: &'a mut [T],
    /// What each row must be multiplied with to be its gradient, `[K]`.
    pub(super) scales: &'a mut [T],
    pub(super) sums: &'a mut Sums<T>,
}

/// What a thread works with, token by token.
pub(super) struct Scratch<T> {
    /// `[K]`
    pub(super) components: Vec<Component<T>>,
    /// Of each listed word in each row: `a − top`, then what it takes of the row's gradient, `e_i r_ki`, `[K, m]`.
    pub(super) listed: Vec<f64>,
    pub(super) visit: Visit<T>,
}

/// Scores one token and, if asked, leaves the unscaled gradient of its logits in their place.
pub(super) struct Token<'t, 'a, T> {
    pub(super) shared: &'t Shared<'a, T>,
    /// `h·Wᵀ` without bias, `[K, V]`.
    pub(super) rows: &'t mut [T],
    /// `log π_k`, `[K]`, or nothing.
    pub(super) log_prior: Option<&'t [T]>,
    pub(super) aim: Aim<'t, T>,
    pub(super) scratch: &'t mut Scratch<T>,
    /// The token's [statistics](Statistic), or nothing.
    pub(super) statistics: &'t mut [T],
    pub(super) upstream: Option<Upstream<'t, T>>,
}

impl<T: Real> WithSimd for Token<'_, '_, T> {
    type Output = T;

    /// The token's loss.
    #[inline(always)]
    fn with_simd<S: Simd>(mut self, _simd: S) -> T {
        let wants_statistics = !self.statistics.is_empty();
        let sees_all = self.aim.level != T::ZERO || wants_statistics;
        let mut seen = self.score_rows(sees_all, wants_statistics);

        let Self { shared, rows, log_prior, aim, scratch, statistics, upstream } = self;
        let Scratch { components, listed, visit } = scratch;
        let Listed { mut loss, nll } = score_listed(&aim, components, listed);
        match log_prior {
            Some(_) if sees_all => {
                seen = visit.run(rows, shared.vocab, components, aim.level, wants_statistics);
            }
            Some(_) => {}
            None => components[0].share += aim.level.wide() * seen.unmasked as f64,
        }
        loss -= aim.level.wide() * seen.log_probs;
        let z_term: f64 = components.iter().map(|part| part.pull() * part.lse()).sum();
        // Also without a z-loss: a row that is not all numbers shows here, whichever words are listed.
        loss += aim.z_loss * z_term;
        if wants_statistics {
            statistics[Statistic::Nll as usize] = T::of(nll);
            statistics[Statistic::Entropy as usize] = T::of(seen.entropy);
            statistics[Statistic::Argmax as usize] = T::of(seen.argmax as f64);
            statistics[Statistic::MaxLogProb as usize] = T::of(seen.max_log_prob);
            statistics[Statistic::ZTerm as usize] = T::of(z_term);
        }
        if let Some(upstream) = upstream {
            let rows = Rows { shared, rows, is_mixture: log_prior.is_some() };
            rows.backward(&aim, components, listed, visit, upstream);
        }
        T::of(loss)
    }
}

impl<T: Real> Token<'_, '_, T> {
    /// Turns products into exponentials, and makes the components of them. What is to be seen of all words, if there is but one
    /// component.
    #[inline(always)]
    fn score_rows(&mut self, sees_all: bool, wants_statistics: bool) -> Seen {
        let Self { shared, rows, log_prior, aim, scratch, upstream, .. } = self;
        let (vocab, width) = (shared.vocab, aim.ids.len());
        let kept = shared.map.kept() * vocab;
        let mut seen = Seen::default();
        for (k, row) in rows.chunks_exact_mut(vocab).enumerate() {
            match upstream {
                Some(upstream) => shared.map_row(row, &mut upstream.kept[k * kept..(k + 1) * kept]),
                None => shared.map_row(row, &mut []),
            }
            let top = max(row);
            let listed = scratch.listed[k * width..(k + 1) * width].iter_mut();
            listed.zip(aim.ids).for_each(|(listed, id)| *listed = (row[*id] - top).wide());
            let sum = match log_prior {
                _ if !sees_all => exponentials(row, top, upstream.is_some()),
                Some(_) => keep_exponentials(row, top),
                None => {
                    let sum;
                    (sum, seen) = see_single(row, top, vocab - shared.masked.len(), wants_statistics);
                    sum
                }
            };
            let log_prior = log_prior.map_or(0.0, |prior| prior[k].wide());
            scratch.components[k] = Component::new(top, sum, log_prior);
        }
        seen
    }
}

/// What the listed words make of a token.
struct Listed {
    /// Their part of the cross-entropy, without the level.
    loss: f64,
    /// `−log P` of the last one, which is the token's word.
    nll: f64,
}

/// Turns `a − top` of the listed words into `e_i r_ki`.
#[inline(always)]
fn score_listed<T: Real>(aim: &Aim<'_, T>, components: &mut [Component<T>], listed: &mut [f64]) -> Listed {
    let width = aim.ids.len();
    let mut result = Listed { loss: 0.0, nll: 0.0 };
    for (i, extra) in aim.extra.iter().map(|extra| extra.wide()).enumerate() {
        let of_word = || listed.iter().skip(i).step_by(width);
        let joints = || components.iter().zip(of_word()).map(|(part, shift)| part.joint(*shift));
        let top = joints().fold(f64::NEG_INFINITY, f64::max);
        let log_prob = top + joints().map(|joint| (joint - top).exp()).sum::<f64>().ln();
        let masked = is_masked(listed[i]);
        result.nll = if masked { f64::INFINITY } else { -log_prob };
        // A listed word of probability 0 adds nothing, even if it is masked.
        if extra != 0.0 {
            result.loss += extra * result.nll;
        }
        for (listed, part) in listed.iter_mut().skip(i).step_by(width).zip(&mut *components) {
            let taken = match extra {
                0.0 => 0.0,
                _ => extra * (part.joint(*listed) - log_prob).exp(),
            };
            part.share += taken;
            // The gradient of a masked word is 0, also where its loss is infinite.
            *listed = if masked { 0.0 } else { taken };
        }
    }
    result
}

/// A token's rows of exponentials.
struct Rows<'t, 'a, T> {
    shared: &'t Shared<'a, T>,
    /// `[K, V]`
    rows: &'t mut [T],
    is_mixture: bool,
}

impl<T: Real> Rows<'_, '_, T> {
    /// Makes the rows' gradients, the log-priors', and adds what the rows contribute to sums.
    #[inline(always)]
    fn backward(
        self,
        aim: &Aim<'_, T>,
        components: &[Component<T>],
        listed: &[f64],
        visit: &Visit<T>,
        upstream: Upstream<'_, T>,
    ) {
        let Self { shared, rows, is_mixture } = self;
        let (vocab, width) = (shared.vocab, aim.ids.len());
        let Upstream { loss: upstream_loss, d_log_prior, kept, scales, sums } = upstream;
        let (upstream_loss, kept_of_row) = (upstream_loss.wide(), shared.map.kept() * vocab);
        for (k, (row, part)) in rows.chunks_exact_mut(vocab).zip(components).enumerate() {
            let (pull, sum) = (aim.z_loss * part.pull(), part.sum.wide());
            let of_probs = part.share + 2.0 * pull;
            if let Some(slot) = d_log_prior.get_mut(k) {
                *slot = T::of(upstream_loss * (pull * part.lse() - part.share));
            }
            // What the row, and what the listed words take of it, are multiplied with.
            let (scale, unit) = if aim.level == T::ZERO {
                let of_probs = away_from_zero(of_probs);
                (of_probs / sum, sum / of_probs)
            } else {
                let of_exponentials = T::of(of_probs / sum);
                match is_mixture {
                    true => visit.finish(row, part, of_exponentials, aim.level),
                    false => row.iter_mut().for_each(|e| *e = of_exponentials.mul_add(*e, -aim.level)),
                }
                shared.masked.iter().for_each(|word| row[*word] = T::ZERO);
                (1.0, 1.0)
            };
            for (id, taken) in aim.ids.iter().zip(&listed[k * width..(k + 1) * width]) {
                row[*id] -= T::of(unit * taken);
            }
            scales[k] = T::of(upstream_loss * scale / shared.temperature.wide());
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
}

/// A number to divide by: a factor too small to matter otherwise.
#[inline(always)]
fn away_from_zero(x: f64) -> f64 {
    const LEAST: f64 = 1e-20;
    if x.abs() < LEAST { LEAST.copysign(x) } else { x }
}
