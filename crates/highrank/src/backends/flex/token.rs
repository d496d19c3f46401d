//! One token: its `K` rows of logits, which stay in cache, become their own gradient.
//!
//! With `a_k = f(z_k)/τ`, `p_k = softmax(a_k)`, `r_kv = π_k p_kv / P_v`, the target distribution `q̃`, `s_k = Σ_v q̃_v r_kv` and the
//! upstream gradient `u`:
//!
//! ```text
//! ∂/∂a_kv    = u (p_kv c_k − q̃_v r_kv)      c_k = s_k + π_k (2 λ LSE_k + η)
//! ∂/∂log π_k = u (π_k LSE_k (λ LSE_k + η) − s_k)
//! ```
//!
//! The rows go through three stages: [`Forward`] works on any run of them, [`LossStage`] on all, [`Backward`] on any run
//! again. Without a [dense](Dense) part of `q̃` a row's gradient is left *unscaled*: with `e_v = e^{a_v − max}` and
//! `S = Σ_v e_v` it is
//!
//! ```text
//! (u c / S) · (e − (S / c) q̃ r)
//! ```
//!
//! a vector that is known, but for the listed words, as soon as its row is, times a number known after all rows of the
//! token. The products that follow take the number with the small matrices, so no pass over the logits is spent on it.
//! A row's sums for the parameters of its map are unscaled, too. `max` may be any number near the largest logit: a row is
//! visited once, block by block, and the largest of the first blocks will do. A dense target, and statistics, need `P_v` of all words
//! ([`all_words`](super::all_words)).

use highrank_kernels::cpu::{Buffer, Real};
use pulp::{Simd, WithSimd};

use super::all_words::{AllWords, Asked, WordSums, store_exponentials, sum_single_row};
use super::component::Component;
use super::mapped_logits::MappedLogits;
use super::row::add_scaled;
use super::target::{Dense, Target};
use crate::ops::Statistic;

/// What the stages of a token share.
#[derive(Clone, Copy)]
pub(super) struct Token<'s, 'a, T> {
    pub(super) logits: &'s MappedLogits<'a, T>,
    pub(super) target: Target<'s, T>,
    /// Whether its rows are components of a mixture. So is a single row that is compared with another head's.
    pub(super) is_mixture: bool,
    /// Whether the rows' gradients are asked for.
    pub(super) is_graded: bool,
    pub(super) asked: Asked,
}

impl<T: Real> Token<'_, '_, T> {
    /// Whether `log P_v` of all words is needed.
    #[inline(always)]
    fn needs_all_words(&self) -> bool {
        !self.target.dense.is_zero() || self.asked.statistics || self.asked.entropy
    }

    /// Whether a single row is left as `a − top`, for the gradient of its entropy.
    #[inline(always)]
    fn keeps_shifts(&self) -> bool {
        self.is_graded && !self.is_mixture && self.target.dense.entropy != T::ZERO
    }
}

/// What a thread works with, token by token.
pub(super) struct Scratch<T> {
    /// `[K]`
    pub(super) mixture: Vec<Component<T>>,
    /// Of each listed word in each row: `a − top`, then what it takes of the row's gradient, `e_i r_ki`, `[K, m]`.
    pub(super) listed: Vec<f64>,
    pub(super) all_words: AllWords<T>,
    /// Where it is asked for.
    pub(super) entropy: f64,
}

/// Gradients that a thread sums over its tokens.
pub(super) struct SharedGradients<T> {
    /// Of the decoder's bias, `[V]`, or nothing.
    pub(super) bias: Buffer<T>,
    /// What the map [sums](crate::logit_map::CpuMap::layout), or nothing.
    pub(super) map_sums: Buffer<T>,
}

/// The first of a token's three stages: turns products into exponentials, and makes the components of them. It works on any
/// run of the token's rows, of which all that belongs to a row is given, and returns the sums over all words if there is but
/// one component.
pub(super) struct Forward<'s, 'a, T> {
    pub(super) token: Token<'s, 'a, T>,
    /// `h·Wᵀ` without bias, `[k, V]`.
    pub(super) rows: &'s mut [T],
    /// `[k]`, or nothing.
    pub(super) log_prior: &'s [T],
    /// `[k]`
    pub(super) mixture: &'s mut [Component<T>],
    /// As [`Scratch::listed`], `[k, m]`.
    pub(super) listed: &'s mut [f64],
    /// Takes what each row [saves](MappedLogits::saved_of_row); empty if nothing is graded.
    pub(super) saved: &'s mut [T],
}

impl<T: Real> WithSimd for Forward<'_, '_, T> {
    type Output = WordSums;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) -> WordSums {
        let Self { token, rows, log_prior, mixture, listed, saved } = self;
        let Token { logits, target, is_mixture, is_graded, asked } = token;
        let (vocab, width) = (logits.vocab, target.listed.len());
        let saved_of_row = saved.len() / mixture.len();
        let mut word_sums = WordSums::default();
        for (k, row) in rows.chunks_exact_mut(vocab).enumerate() {
            let saved = &mut saved[k * saved_of_row..(k + 1) * saved_of_row];
            let mut saved = logits.split(saved, width);
            let listed = &mut listed[k * width..(k + 1) * width];
            logits.map_listed(row, target.listed, listed, saved.listed);
            let (top, sum) = if !token.needs_all_words() {
                logits.exponentials(row, &mut saved, is_graded)
            } else {
                let top = logits.map_run(0, row, saved.arrays);
                if is_mixture {
                    (top, T::of(store_exponentials(row, top)))
                } else {
                    let sum;
                    let options = (asked.statistics, token.keeps_shifts());
                    (sum, word_sums) = sum_single_row(row, top, &target.dense, logits.unmasked(), options);
                    (top, sum)
                }
            };
            listed.iter_mut().for_each(|a| *a = (T::of(*a) - top).wide());
            mixture[k] = Component::new(top, sum, log_prior.get(k).map_or(0.0, |prior| prior.wide()));
        }
        word_sums
    }
}

/// The second stage: a token's loss and statistics, by all of its components.
pub(super) struct LossStage<'s, 'a, T> {
    pub(super) token: Token<'s, 'a, T>,
    /// The exponentials, `[K, V]`; only looked at where all words of a mixture are needed.
    pub(super) rows: &'s mut [T],
    pub(super) scratch: &'s mut Scratch<T>,
    /// What the first stage has returned.
    pub(super) word_sums: WordSums,
    /// The token's [statistics](Statistic), or nothing.
    pub(super) statistics: &'s mut [T],
    /// Takes the log-probabilities of the listed words, and after them entropy and normaliser where asked for; or nothing.
    pub(super) log_probs: &'s mut [T],
}

impl<T: Real> WithSimd for LossStage<'_, '_, T> {
    type Output = T;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) -> T {
        let Self { token, rows, scratch, mut word_sums, statistics, log_probs } = self;
        let Token { logits, target, .. } = token;
        let Scratch { mixture, listed, all_words, entropy } = scratch;
        let (mut loss, nll) = score_listed(logits, &target, mixture, listed, log_probs);
        if !token.is_mixture {
            mixture[0].share += word_sums.mass;
        } else if token.needs_all_words() {
            word_sums = all_words.run(rows, logits, mixture, &target.dense, token.asked);
        }
        *entropy = word_sums.entropy;
        if let (true, Some(slot)) = (token.asked.entropy, log_probs.get_mut(target.listed.len())) {
            *slot = T::of(word_sums.entropy);
        }
        if token.asked.entropy {
            loss += target.dense.entropy.wide() * word_sums.entropy;
        }
        loss += if target.has_masked { f64::INFINITY } else { word_sums.cross_entropy };
        let z_term: f64 = mixture.iter().map(|part| part.pull() * part.lse()).sum();
        if let Some(factor) = target.normaliser {
            let normaliser: f64 = mixture.iter().map(Component::pull).sum();
            loss += factor.wide() * normaliser;
            let place = target.listed.len() + usize::from(token.asked.entropy);
            log_probs.get_mut(place).into_iter().for_each(|slot| *slot = T::of(normaliser));
        }
        // Also without a z-loss: a row that is not all numbers shows here, whichever words are listed.
        loss += target.z_loss * z_term;
        if token.asked.statistics {
            statistics[Statistic::Nll as usize] = T::of(nll);
            statistics[Statistic::Entropy as usize] = T::of(word_sums.entropy);
            statistics[Statistic::Argmax as usize] = T::of(word_sums.argmax as f64);
            statistics[Statistic::MaxLogProb as usize] = T::of(word_sums.max_log_prob);
            statistics[Statistic::ZTerm as usize] = T::of(z_term);
        }
        T::of(loss)
    }
}

/// Turns `a − top` of the listed words into `e_i r_ki`; `log_probs` takes as many log-probabilities as it has places. Returns
/// their part of the cross-entropy, without the dense part, and `−log P` of the last one, which is the token's word.
#[inline(always)]
fn score_listed<T: Real>(
    logits: &MappedLogits<'_, T>,
    target: &Target<'_, T>,
    mixture: &mut [Component<T>],
    listed: &mut [f64],
    log_probs: &mut [T],
) -> (f64, f64) {
    let width = target.listed.len();
    let (mut loss, mut nll) = (0.0, 0.0);
    for (i, (word, extra)) in target.listed.iter().zip(target.extra).enumerate() {
        let extra = extra.wide();
        if logits.is_masked(*word) {
            nll = f64::INFINITY;
            log_probs.get_mut(i).into_iter().for_each(|slot| *slot = T::LOWEST);
            // A listed word of probability 0 adds nothing, even if it is masked.
            if extra != 0.0 {
                loss = f64::INFINITY;
            }
            // The gradient of a masked word is 0; that of the others means nothing where the loss is infinite.
            for (listed, part) in listed.iter_mut().skip(i).step_by(width).zip(&mut *mixture) {
                part.share += extra * part.log_prior.exp();
                *listed = 0.0;
            }
            continue;
        }
        let of_word = || listed.iter().skip(i).step_by(width);
        let joints = || mixture.iter().zip(of_word()).map(|(part, shift)| part.joint(*shift));
        let top = joints().fold(f64::NEG_INFINITY, f64::max);
        let log_prob = top + joints().map(|joint| (joint - top).exp()).sum::<f64>().ln();
        nll = -log_prob;
        log_probs.get_mut(i).into_iter().for_each(|slot| *slot = T::of(log_prob));
        if extra != 0.0 {
            loss += extra * nll;
        }
        for (listed, part) in listed.iter_mut().skip(i).step_by(width).zip(&mut *mixture) {
            let taken = match extra {
                0.0 => 0.0,
                _ => extra * (part.joint(*listed) - log_prob).exp(),
            };
            part.share += taken;
            *listed = taken;
        }
    }
    (loss, nll)
}

/// The third stage: turns exponentials into gradients, makes those of the log-priors, and adds what the rows contribute to
/// sums. It works on any run of the token's rows.
pub(super) struct Backward<'s, 'a, T> {
    pub(super) token: Token<'s, 'a, T>,
    /// `[k, V]`
    pub(super) rows: &'s mut [T],
    /// Of the token.
    pub(super) scratch: &'s Scratch<T>,
    /// The first row's number among the token's.
    pub(super) first: usize,
    /// Upstream gradient of the token's loss.
    pub(super) upstream: T,
    /// As the first stage has left it.
    pub(super) saved: &'s mut [T],
    /// `[k]`, or nothing.
    pub(super) d_log_prior: &'s mut [T],
    /// What each row must be multiplied with to be its gradient, `[k]`.
    pub(super) scales: &'s mut [T],
    pub(super) gradients: &'s mut SharedGradients<T>,
}

impl<T: Real> WithSimd for Backward<'_, '_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) {
        let Self { token, rows, scratch, first, upstream, saved, d_log_prior, scales, gradients } = self;
        let Token { logits, target, is_mixture, .. } = token;
        let (vocab, width) = (logits.vocab, target.listed.len());
        let Scratch { mixture, listed, all_words, entropy } = scratch;
        let (mixture, listed) = (&mixture[first..first + scales.len()], &listed[first * width..]);
        let (upstream, saved_of_row) = (upstream.wide(), saved.len() / mixture.len());
        for (k, (row, component)) in rows.chunks_exact_mut(vocab).zip(mixture).enumerate() {
            let (pull, sum) = (target.z_loss * component.pull(), component.sum.wide());
            let of_normaliser = target.normaliser.map_or(0.0, T::wide) * component.log_prior.exp();
            let of_probs = component.share + 2.0 * pull + of_normaliser;
            if let Some(slot) = d_log_prior.get_mut(k) {
                *slot = T::of(upstream * ((pull + of_normaliser) * component.lse() - component.share));
            }
            let taken = &listed[k * width..(k + 1) * width];
            // What the row, and what the listed words take of it, are multiplied with.
            let (scale, unit) = if of_probs == 0.0
                && target.dense.is_zero()
                && taken.iter().all(|x| *x == 0.0)
            {
                (0.0, 0.0)
            } else if target.dense.is_zero() {
                let of_probs = away_from_zero(of_probs);
                (of_probs / sum, sum / of_probs)
            } else {
                let of_exponentials = T::of(of_probs / sum);
                if token.keeps_shifts() {
                    // e p (log P + H) beside the targets, with log P = (a − top) − log S.
                    let factor = target.dense.entropy.wide() / sum;
                    let of_shifts = T::of(-factor);
                    let constant = T::of((of_probs / sum) - factor * (entropy - component.log_sum));
                    row_gradient(row, &target.dense, |shift, minus_even| {
                        of_shifts.mul_add(shift, constant).mul_add(shift.exp_of_bounded(), minus_even)
                    });
                } else if is_mixture {
                    all_words.finish(row, component, of_exponentials, &target.dense);
                } else {
                    row_gradient(row, &target.dense, |e, minus_even| of_exponentials.mul_add(e, minus_even));
                }
                logits.masked.iter().for_each(|word| row[*word] = T::ZERO);
                (1.0, 1.0)
            };
            scales[k] = T::of(upstream * scale / logits.temperature.wide());
            let listed = taken.iter().map(|taken| T::of(-unit * taken));
            let mut saved = logits.split(&mut saved[k * saved_of_row..(k + 1) * saved_of_row], width);
            let map = &logits.map;
            if !token.needs_all_words() && !map.layout.is_identity && !map.layout.is_table {
                // The rest of the row has its slopes already.
                logits.add_listed(row, target.listed, listed, &mut saved);
            } else {
                target.listed.iter().zip(listed).for_each(|(id, g)| row[*id] += g);
                if map.layout.is_table {
                    let (z, parts) = saved.arrays.split_at(logits.array());
                    map.pull_back_row(&z[..vocab], parts, row, scales[k], &mut gradients.map_sums);
                } else if !map.layout.is_identity {
                    logits.pull_back(row, &mut saved);
                }
            }
            gradients
                .map_sums
                .iter_mut()
                .zip(&*saved.sums)
                .for_each(|(sum, x)| *sum = scales[k].mul_add(*x, *sum));
        }
        add_scaled(&mut gradients.bias, rows, scales);
    }
}

/// Makes gradients of a single row under a known target distribution, masked words and all.
///
/// - of: a gradient without the target, for what the row has left, plus its second argument
#[inline(always)]
fn row_gradient<T: Real>(row: &mut [T], target: &Dense<'_, T>, of: impl Fn(T, T) -> T) {
    let Dense { even, keep, row: distribution, .. } = *target;
    row.iter_mut().for_each(|x| *x = of(*x, -even));
    row.iter_mut().zip(distribution).for_each(|(g, q)| *g = (-keep).mul_add(*q, *g));
}

/// A number to divide by: a factor too small to matter otherwise.
#[inline(always)]
fn away_from_zero(x: f64) -> f64 {
    const LEAST: f64 = 1e-20;
    if x.abs() < LEAST { LEAST.copysign(x) } else { x }
}
