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
//! `q̃` is a level for all words, the same for each or a given distribution, and something more for a few that are listed,
//! mostly for one. Without a level a row is left
//! *unscaled*: with `e_v = e^{a_v − max}` and `S = Σ_v e_v` its gradient is
//!
//! ```text
//! (u c / S) · (e − (S / c) q̃ r)
//! ```
//!
//! a vector that is known, but for the listed words, as soon as its row is, times a number known after all rows of the
//! token. The products that follow take the number with the small matrices, so no pass over the logits is spent on it.
//! A row's sums for the parameters of its map are unscaled, too. `max` may be any number near the largest logit: a row is
//! visited once, block by block, and the largest of the first blocks will do. A level, and statistics, need `P_v` of all words, for which `visit.rs` visits the rows once more.

use highrank_kernels::cpu::{BLOCK, Buffer, LANES, Real};
use pulp::{Simd, WithSimd};

use super::component::Component;
use super::goal::{Aim, Level};
use super::row::{Partial, add_exponentials, add_scaled, larger, total_of};
use super::visit::{Seen, Visit, keep_exponentials, see_single};
use super::words::Words;
use crate::ops::Statistic;

/// How far a logit may be above the number that is subtracted from a row's logits, see [`Words::exponentials`].
const MARGIN: f64 = 16.0;

impl<T: Real> Words<'_, T> {
    /// Turns a row of products into mapped logits. The largest one, as [`max`](super::row::max). `kept` is empty, or takes
    /// as many arrays as [`kept_of_row`](Self::kept_of_row) counts.
    #[inline(always)]
    pub(super) fn map_row(&self, row: &mut [T], kept: &mut [T]) -> T {
        let (logits, parts) = kept.split_at_mut(self.array().min(kept.len()));
        let mut top = T::LOWEST;
        let step = self.map.block();
        let (mut logits, mut parts) = (logits.chunks_mut(step), parts.chunks_mut(step));
        for (i, block) in row.chunks_mut(step).enumerate() {
            let (logits, parts) = (logits.next().unwrap_or_default(), parts.next().unwrap_or_default());
            top = larger(top, self.map_block(block, i * step, logits, parts));
        }
        top
    }

    /// The mapped logits of some words of a row of products; `logits` is empty, or takes the logits.
    #[inline(always)]
    fn map_words(&self, row: &[T], words: &[usize], mapped: &mut [f64], logits: &mut [T]) {
        let mut logits = logits.chunks_mut(LANES);
        for (words, mapped) in words.chunks(LANES).zip(mapped.chunks_mut(LANES)) {
            let mut block = [T::ZERO; LANES];
            let block = &mut block[..words.len()];
            for (z, word) in block.iter_mut().zip(words) {
                *z = row[*word] + self.bias.map_or(T::ZERO, |bias| bias[*word]);
            }
            if let Some(logits) = logits.next() {
                logits[..block.len()].copy_from_slice(block);
            }
            self.map.apply(block, &mut []);
            let inverse = T::ONE / self.temperature;
            for ((mapped, a), word) in mapped.iter_mut().zip(&*block).zip(words) {
                *mapped = if self.is_masked(*word) { f64::NEG_INFINITY } else { (*a * inverse).wide() };
            }
        }
    }

    /// Turns a row of products into exponentials of mapped logits, block by block. Returns the number that was subtracted
    /// from them, and the exponentials' sum. If `graded`, what is left of a row is an exponential times the map's slope, and
    /// `kept` takes the rest.
    ///
    /// That number is the first block's largest mapped logit until one is above it by [`MARGIN`], which is when all that was
    /// made is scaled. It need not be the largest: no exponential is too large for its type.
    #[inline(always)]
    fn exponentials(&self, row: &mut [T], kept: &mut Kept<'_, T>, graded: bool) -> (T, T) {
        let Kept { lanes, parts, sums, arrays, .. } = kept;
        let (logits, slopes) = arrays.split_at_mut(self.array().min(arrays.len()));
        let (mut top, mut sum) = (T::MIN, Partial([T::ZERO; BLOCK]));
        lanes.fill(T::ZERO);
        let step = self.map.block();
        let (mut logits, mut slopes) = (logits.chunks_mut(step), slopes.chunks_mut(step));
        for first in (0..self.vocab).step_by(step) {
            let (before, block) = row.split_at_mut(first);
            let block = &mut block[..step.min(self.vocab - first)];
            let (logits, slopes) = match self.map.is_table() {
                true => (logits.next().unwrap_or_default(), slopes.next().unwrap_or_default()),
                false => (&mut [][..], &mut **parts),
            };
            let largest = self.map_block(block, first, logits, slopes);
            if largest > top + T::of(MARGIN) {
                let factor = (top - largest).exp_of_bounded();
                top = largest;
                let made = if graded { before } else { &mut [] };
                for values in [made, lanes, &mut sum.0] {
                    values.iter_mut().for_each(|x| *x *= factor);
                }
            }
            add_exponentials(block, top, graded, &mut sum.0);
            if graded {
                self.map.pull_back(parts, block, lanes);
            }
        }
        let lanes = lanes.chunks(self.map.lanes());
        sums.iter_mut().zip(lanes).for_each(|(sum, lanes)| *sum = total_of(lanes));
        (top, total_of(&sum.0))
    }

    /// Turns the gradient of a row's mapped logits into that of the logits, which are kept; leaves the row's sums.
    #[inline(always)]
    fn pull_back(&self, row: &mut [T], kept: &mut Kept<'_, T>) {
        let Kept { lanes, parts, sums, arrays, .. } = kept;
        lanes.fill(T::ZERO);
        let step = self.map.block();
        for (g, z) in row.chunks_mut(step).zip(arrays.chunks_mut(step)) {
            self.map.apply(&mut z[..g.len()], parts);
            self.map.pull_back(parts, g, lanes);
        }
        let lanes = lanes.chunks(self.map.lanes());
        sums.iter_mut().zip(lanes).for_each(|(sum, lanes)| *sum = total_of(lanes));
    }

    /// Adds to a row of [exponentials times slopes](Self::exponentials), and to its sums, what gradients of some words' mapped
    /// logits add.
    #[inline(always)]
    fn add_words(&self, row: &mut [T], words: &[usize], g: impl Iterator<Item = T>, kept: &mut Kept<'_, T>) {
        let Kept { lanes, parts, sums, listed, .. } = kept;
        lanes.fill(T::ZERO);
        let mut g = g;
        for (words, logits) in words.chunks(LANES).zip(listed.chunks(LANES)) {
            let (mut block, mut gradients) = ([T::ZERO; LANES], [T::ZERO; LANES]);
            let (block, gradients) = (&mut block[..words.len()], &mut gradients[..words.len()]);
            block.copy_from_slice(&logits[..words.len()]);
            gradients.iter_mut().zip(&mut g).for_each(|(to, g)| *to = g);
            self.map.apply(block, parts);
            self.map.pull_back(parts, gradients, lanes);
            words.iter().zip(&*gradients).for_each(|(word, g)| row[*word] += *g);
        }
        let lanes = lanes.chunks(self.map.lanes());
        sums.iter_mut().zip(lanes).for_each(|(sum, lanes)| *sum += total_of(lanes));
    }

    /// How many values a row keeps from its first stage to its last if gradients are asked for, see [`Kept`]: with
    /// `listed` words, and with what [all words](Sees) need or without.
    pub(super) fn kept_of_row(&self, listed: usize, sees_all: bool) -> usize {
        if self.map.is_identity() {
            return 0;
        }
        // The logits where they are needed again, and the parts of a map with a table.
        let arrays = match self.map.is_table() {
            true => 1 + self.map.parts(),
            false => usize::from(sees_all),
        };
        self.layout(listed).iter().sum::<usize>() + arrays * self.array()
    }

    /// Length of an array over the vocabulary.
    fn array(&self) -> usize {
        self.vocab.next_multiple_of(LANES)
    }

    /// Lengths of a row's lanes, parts, sums and listed logits; multiples of [`LANES`].
    fn layout(&self, listed: usize) -> [usize; 4] {
        let (sums, parts) = match self.map.is_table() {
            true => (0, 0),
            false => (self.map.num_sums(), self.map.parts() * self.map.block()),
        };
        [sums * self.map.lanes(), parts, sums.next_multiple_of(LANES), listed.next_multiple_of(LANES)]
    }

    /// Divides what a row keeps, [`kept_of_row`](Self::kept_of_row) values or none.
    #[inline(always)]
    fn divide<'k>(&self, kept: &'k mut [T], listed: usize) -> Kept<'k, T> {
        let layout = if kept.is_empty() { [0; 4] } else { self.layout(listed) };
        let [lanes, parts, sums, _] = layout;
        let (lanes, rest) = kept.split_at_mut(lanes);
        let (parts, rest) = rest.split_at_mut(parts);
        let (sums, rest) = rest.split_at_mut(sums);
        let (listed, arrays) = rest.split_at_mut(layout[3]);
        Kept { sums: &mut sums[..lanes.len() / self.map.lanes()], lanes, parts, listed, arrays }
    }
}

/// What a row keeps from its first stage to its last, all of it empty if no gradients are asked for. The first two are
/// used within a stage only.
struct Kept<'k, T> {
    /// Partial results of `sums`.
    lanes: &'k mut [T],
    /// What [`CpuMap::apply`](crate::logit_map::CpuMap::apply) leaves of a block.
    parts: &'k mut [T],
    /// What the row adds to the sums of the map, before it is multiplied with the row's scale.
    sums: &'k mut [T],
    /// The logits of the listed words, `[m]`.
    listed: &'k mut [T],
    /// The logits, if they are needed again, and what a map with a table leaves of them, each `[V]`.
    arrays: &'k mut [T],
}

/// Sums that a thread keeps over its tokens.
pub(super) struct Sums<T> {
    /// Gradient of the decoder bias, `[V]`, or nothing.
    pub(super) bias: Buffer<T>,
    /// What the map [sums](crate::logit_map::CpuMap::num_sums), or nothing.
    pub(super) table: Buffer<T>,
}

/// The gradient a token is asked for.
pub(super) struct Upstream<'a, T> {
    /// Upstream gradient of the token's loss.
    pub(super) loss: T,
    /// Gradient of the token's log-priors, `[K]`, or nothing.
    pub(super) d_log_prior: &'a mut [T],
    /// What each row [keeps](Words::kept_of_row).
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
    pub(super) shared: &'t Words<'a, T>,
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
    fn with_simd<S: Simd>(self, simd: S) -> T {
        let Self { shared, rows, log_prior, aim, scratch, statistics, mut upstream } = self;
        let Scratch { components, listed, visit } = scratch;
        let (is_mixture, is_graded) = (log_prior.is_some(), upstream.is_some());
        let sees = Sees::new(&aim, !statistics.is_empty());
        let kept = upstream.as_mut().map_or(&mut [][..], |upstream| &mut *upstream.kept);
        let score = Score { shared, aim, rows, log_prior, components, listed, kept, is_graded, sees };
        let seen = score.with_simd(simd);
        let weigh = Weigh { shared, aim, rows, is_mixture, components, listed, visit, seen, statistics };
        let loss = weigh.with_simd(simd);
        if let Some(Upstream { loss: upstream, d_log_prior, kept, scales, sums }) = upstream {
            Grade {
                shared,
                aim,
                rows,
                is_mixture,
                components,
                listed,
                visit,
                sees,
                upstream,
                kept,
                d_log_prior,
                scales,
                sums,
            }
            .with_simd(simd);
        }
        loss
    }
}

/// What a token asks of all words.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sees {
    /// `log P_v`.
    all: bool,
    statistics: bool,
}

impl Sees {
    pub(super) fn new<T: Real>(aim: &Aim<'_, T>, statistics: bool) -> Self {
        Self { all: !aim.level.is_nothing() || statistics, statistics }
    }
}

/// The first of a token's three stages: turns products into exponentials, and makes the components of them. It works on any
/// run of the token's rows, of which all that belongs to a row is given, and returns what is to be seen of all words if
/// there is but one component.
pub(super) struct Score<'s, 'a, T> {
    pub(super) shared: &'s Words<'a, T>,
    pub(super) aim: Aim<'s, T>,
    /// `h·Wᵀ` without bias, `[k, V]`.
    pub(super) rows: &'s mut [T],
    /// `[k]`
    pub(super) log_prior: Option<&'s [T]>,
    /// `[k]`
    pub(super) components: &'s mut [Component<T>],
    /// As [`Scratch::listed`], `[k, m]`.
    pub(super) listed: &'s mut [f64],
    /// Takes what each row [keeps](Words::kept_of_row); empty if nothing is graded.
    pub(super) kept: &'s mut [T],
    /// Whether the rows' gradients are asked for.
    pub(super) is_graded: bool,
    pub(super) sees: Sees,
}

impl<T: Real> WithSimd for Score<'_, '_, T> {
    type Output = Seen;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) -> Seen {
        let Self { shared, aim, rows, log_prior, components, listed, kept, is_graded, sees } = self;
        let is_mixture = log_prior.is_some();
        let (vocab, width) = (shared.vocab, aim.ids.len());
        let kept_of_row = kept.len() / components.len();
        let mut seen = Seen::default();
        for (k, row) in rows.chunks_exact_mut(vocab).enumerate() {
            let kept = &mut kept[k * kept_of_row..(k + 1) * kept_of_row];
            let mut kept = shared.divide(kept, width);
            let listed = &mut listed[k * width..(k + 1) * width];
            shared.map_words(row, aim.ids, listed, kept.listed);
            let (top, sum) = if !sees.all {
                shared.exponentials(row, &mut kept, is_graded)
            } else {
                let top = shared.map_row(row, kept.arrays);
                if is_mixture {
                    (top, keep_exponentials(row, top))
                } else {
                    let sum;
                    let unmasked = vocab - shared.masked.len();
                    (sum, seen) = see_single(row, top, &aim.level, unmasked, sees.statistics);
                    (top, sum)
                }
            };
            listed.iter_mut().for_each(|a| *a = (T::of(*a) - top).wide());
            let log_prior = log_prior.map_or(0.0, |prior| prior[k].wide());
            components[k] = Component::new(top, sum, log_prior);
        }
        seen
    }
}

/// The second stage: a token's loss and statistics, by all of its components.
pub(super) struct Weigh<'s, 'a, T> {
    pub(super) shared: &'s Words<'a, T>,
    pub(super) aim: Aim<'s, T>,
    /// The exponentials, `[K, V]`; only looked at where a mixture's words are all seen.
    pub(super) rows: &'s mut [T],
    pub(super) is_mixture: bool,
    pub(super) components: &'s mut [Component<T>],
    pub(super) listed: &'s mut [f64],
    pub(super) visit: &'s mut Visit<T>,
    /// What the first stage has seen.
    pub(super) seen: Seen,
    /// The token's [statistics](Statistic), or nothing.
    pub(super) statistics: &'s mut [T],
}

impl<T: Real> WithSimd for Weigh<'_, '_, T> {
    type Output = T;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) -> T {
        let Self { shared, aim, rows, is_mixture, components, listed, visit, mut seen, statistics } = self;
        let wants_statistics = !statistics.is_empty();
        let Listed { mut loss, mut nll } = score_listed(shared, &aim, components, listed);
        if !is_mixture {
            components[0].share += seen.mass;
        } else if !aim.level.is_nothing() || wants_statistics {
            seen = visit.run(rows, shared, components, &aim.level, wants_statistics);
        }
        // A distribution may have some of a masked word.
        if !aim.level.row.is_empty() && shared.masked.iter().any(|word| aim.level.row[*word] > T::ZERO) {
            seen.cross_entropy = f64::INFINITY;
        }
        loss += seen.cross_entropy;
        if aim.ids.is_empty() {
            nll = seen.cross_entropy;
        }
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
        T::of(loss)
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
fn score_listed<T: Real>(
    shared: &Words<'_, T>,
    aim: &Aim<'_, T>,
    components: &mut [Component<T>],
    listed: &mut [f64],
) -> Listed {
    let width = aim.ids.len();
    let mut result = Listed { loss: 0.0, nll: 0.0 };
    for (i, (word, extra)) in aim.ids.iter().zip(aim.extra).enumerate() {
        let extra = extra.wide();
        if shared.is_masked(*word) {
            result.nll = f64::INFINITY;
            // A listed word of probability 0 adds nothing, even if it is masked.
            if extra != 0.0 {
                result.loss = f64::INFINITY;
            }
            // The gradient of a masked word is 0; that of the others means nothing where the loss is infinite.
            for (listed, part) in listed.iter_mut().skip(i).step_by(width).zip(&mut *components) {
                part.share += extra * part.log_prior.exp();
                *listed = 0.0;
            }
            continue;
        }
        let of_word = || listed.iter().skip(i).step_by(width);
        let joints = || components.iter().zip(of_word()).map(|(part, shift)| part.joint(*shift));
        let top = joints().fold(f64::NEG_INFINITY, f64::max);
        let log_prob = top + joints().map(|joint| (joint - top).exp()).sum::<f64>().ln();
        result.nll = -log_prob;
        if extra != 0.0 {
            result.loss += extra * result.nll;
        }
        for (listed, part) in listed.iter_mut().skip(i).step_by(width).zip(&mut *components) {
            let taken = match extra {
                0.0 => 0.0,
                _ => extra * (part.joint(*listed) - log_prob).exp(),
            };
            part.share += taken;
            *listed = taken;
        }
    }
    result
}

/// The third stage: turns exponentials into gradients, makes those of the log-priors, and adds what the rows contribute to
/// sums. It works on any run of the token's rows.
pub(super) struct Grade<'s, 'a, T> {
    pub(super) shared: &'s Words<'a, T>,
    pub(super) aim: Aim<'s, T>,
    /// `[k, V]`
    pub(super) rows: &'s mut [T],
    pub(super) is_mixture: bool,
    pub(super) components: &'s [Component<T>],
    pub(super) listed: &'s [f64],
    pub(super) visit: &'s Visit<T>,
    /// What the first stage has seen.
    pub(super) sees: Sees,
    /// Upstream gradient of the token's loss.
    pub(super) upstream: T,
    /// As the first stage has left it.
    pub(super) kept: &'s mut [T],
    /// `[k]`, or nothing.
    pub(super) d_log_prior: &'s mut [T],
    /// `[k]`
    pub(super) scales: &'s mut [T],
    pub(super) sums: &'s mut Sums<T>,
}

impl<T: Real> WithSimd for Grade<'_, '_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) {
        let Self { shared, aim, rows, is_mixture, components, listed, visit, upstream, .. } = self;
        let Self { sees, kept, d_log_prior, scales, sums, .. } = self;
        let (vocab, width) = (shared.vocab, aim.ids.len());
        let (upstream_loss, kept_of_row) = (upstream.wide(), kept.len() / components.len());
        for (k, (row, part)) in rows.chunks_exact_mut(vocab).zip(components).enumerate() {
            let (pull, sum) = (aim.z_loss * part.pull(), part.sum.wide());
            let of_probs = part.share + 2.0 * pull;
            if let Some(slot) = d_log_prior.get_mut(k) {
                *slot = T::of(upstream_loss * (pull * part.lse() - part.share));
            }
            // What the row, and what the listed words take of it, are multiplied with.
            let (scale, unit) = if aim.level.is_nothing() {
                let of_probs = away_from_zero(of_probs);
                (of_probs / sum, sum / of_probs)
            } else {
                let of_exponentials = T::of(of_probs / sum);
                if is_mixture {
                    visit.finish(row, part, of_exponentials, &aim.level);
                } else {
                    let Level { even, keep, row: distribution } = aim.level;
                    row.iter_mut().for_each(|e| *e = of_exponentials.mul_add(*e, -even));
                    row.iter_mut().zip(distribution).for_each(|(g, q)| *g = (-keep).mul_add(*q, *g));
                }
                shared.masked.iter().for_each(|word| row[*word] = T::ZERO);
                (1.0, 1.0)
            };
            scales[k] = T::of(upstream_loss * scale / shared.temperature.wide());
            let taken = &listed[k * width..(k + 1) * width];
            let listed = taken.iter().map(|taken| T::of(-unit * taken));
            let mut kept = shared.divide(&mut kept[k * kept_of_row..(k + 1) * kept_of_row], width);
            let map = &shared.map;
            if !sees.all && !map.is_identity() && !map.is_table() {
                // The rest of the row has its slopes already.
                shared.add_words(row, aim.ids, listed, &mut kept);
            } else {
                aim.ids.iter().zip(listed).for_each(|(id, g)| row[*id] += g);
                if map.is_table() {
                    let (logits, parts) = kept.arrays.split_at(shared.array());
                    map.pull_back_row(&logits[..vocab], parts, row, scales[k], &mut sums.table);
                } else if !map.is_identity() {
                    shared.pull_back(row, &mut kept);
                }
            }
            sums.table.iter_mut().zip(&*kept.sums).for_each(|(sum, x)| *sum = scales[k].mul_add(*x, *sum));
        }
        add_scaled(&mut sums.bias, rows, scales);
    }
}

/// A number to divide by: a factor too small to matter otherwise.
#[inline(always)]
fn away_from_zero(x: f64) -> f64 {
    const LEAST: f64 = 1e-20;
    if x.abs() < LEAST { LEAST.copysign(x) } else { x }
}
