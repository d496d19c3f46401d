//! What a dense target and statistics need of all words: `log P_v`, and sums over it. For a mixture the rows are visited a second
//! time.
//!
//! `P_v = Σ_k π_k e_kv / S_k` is summed as it stands: every exponential has its row's maximum subtracted. Words for which that
//! is too little to be exact are done in log space, with all of their tile; ordinary logits never get there. For these
//! words a row keeps an exponential that is too small to be a number as its logarithm, which is negative.

use std::slice::ChunksExact;

use highrank_kernels::cpu::{Buffer, LANES, Real};

use super::component::Component;
use super::mapped_logits::MappedLogits;
use super::row::{find, larger, max, sum_of, sums};
use super::target::Dense;
use crate::ops::Divergence;

/// Words of a tile: with all rows of a token it stays in the first-level cache.
const TILE: usize = 256;

/// Words that predictions visit at a time: of one row they stay in the first-level cache, and they are enough for what is made
/// once a run not to count.
pub(super) const RUN: usize = 1024;

/// Below this probability a sum over the rows is not exact: `1e8` times the smallest normal number of f32.
pub(super) const FAINT: f64 = 1e-30;

/// Sums over all words of a token.
#[derive(Debug)]
pub(super) struct WordSums {
    /// What the dense target has of all words, `Σ_v q̃_v`; only where there is one component.
    pub(super) mass: f64,
    /// `−Σ_v q̃_v log P_v` with the dense target for `q̃`, or the divergence from another head.
    pub(super) cross_entropy: f64,
    /// This and the next two only where they are asked for.
    pub(super) entropy: f64,
    /// The likeliest word, the lowest of equals.
    pub(super) argmax: usize,
    pub(super) max_log_prob: f64,
}

impl Default for WordSums {
    fn default() -> Self {
        Self { mass: 0.0, cross_entropy: 0.0, entropy: 0.0, argmax: 0, max_log_prob: f64::NEG_INFINITY }
    }
}

/// `e^{a − top}` of a row of mapped logits, in place, and their sum; those that are too small as their logarithms.
#[inline(always)]
pub(super) fn store_exponentials<T: Real>(row: &mut [T], top: T) -> f64 {
    let [sum] = sums(row, |lanes| {
        let mut exponentials = [T::ZERO; LANES];
        for (a, e) in lanes.iter_mut().zip(&mut exponentials) {
            let shift = *a - top;
            *e = shift.exp_of_bounded();
            *a = if *e > T::ZERO { *e } else { shift };
        }
        [exponentials]
    });
    sum
}

/// An exponential that is stored as [`store_exponentials`] does.
#[inline(always)]
pub(super) fn exponential<T: Real>(stored: T) -> T {
    if stored > T::ZERO { stored } else { T::ZERO }
}

/// The logarithm of an exponential that is stored as [`store_exponentials`] does.
#[inline(always)]
fn logarithm<T: Real>(stored: T) -> T {
    let log = stored.log();
    if stored > T::ZERO { log } else { stored }
}

/// Words whose probabilities are summed at a time, in registers.
const BLOCK: usize = 64;

/// `Σ_k w_k e_kv` of a run of words, for rows of [stored](store_exponentials) exponentials, each with `w_k`.
#[inline(always)]
pub(super) fn linear_mixture<'r, T: Real, R: Iterator<Item = (&'r [T], T)>>(
    rows: impl Fn() -> R,
    probs: &mut [T],
) {
    let (blocks, rest) = probs.as_chunks_mut::<BLOCK>();
    let whole = blocks.len() * BLOCK;
    for (i, block) in blocks.iter_mut().enumerate() {
        let mut sums = [T::ZERO; BLOCK];
        for (row, weight) in rows() {
            let (values, _) = row[i * BLOCK..].as_chunks::<BLOCK>();
            for (sum, e) in sums.iter_mut().zip(&values[0]) {
                *sum = weight.mul_add(exponential(*e), *sum);
            }
        }
        *block = sums;
    }
    rest.fill(T::ZERO);
    for (row, weight) in rows() {
        for (sum, e) in rest.iter_mut().zip(&row[whole..]) {
            *sum = weight.mul_add(exponential(*e), *sum);
        }
    }
}

/// `log Σ_k w_k e_kv` of a run of at most [`RUN`] words, in log space, for rows of [stored](store_exponentials) exponentials, each
/// with `log w_k`.
#[inline(always)]
pub(super) fn log_mixture<'r, T: Real>(
    rows: impl Iterator<Item = (&'r [T], T)> + Clone,
    log_probs: &mut [T],
) {
    let mut tops = [T::LOWEST; RUN];
    for (row, log_weight) in rows.clone() {
        for (top, e) in tops.iter_mut().zip(row) {
            *top = larger(*top, logarithm(*e) + log_weight);
        }
    }
    log_probs.fill(T::ZERO);
    for (row, log_weight) in rows {
        for ((sum, top), e) in log_probs.iter_mut().zip(&tops).zip(row) {
            *sum += (logarithm(*e) + log_weight - *top).exp_of_bounded();
        }
    }
    log_probs.iter_mut().zip(&tops).for_each(|(sum, top)| *sum = *top + sum.log());
}

/// The distance of a logit from the largest one; −∞ is that of a masked word, which counts for nothing.
#[inline(always)]
fn counted<T: Real>(shift: T) -> T {
    if shift > T::LOWEST { shift } else { T::ZERO }
}

/// A single row: `e^{a − top}` in place, or `a − top` if asked for, the sum of the exponentials, and the sums over its `unmasked` words.
///
/// Masked words are left with an exponential or a shift of 0.
#[inline(always)]
pub(super) fn sum_single_row<T: Real>(
    row: &mut [T],
    top: T,
    target: &Dense<'_, T>,
    unmasked: usize,
    (statistics, keep_shifts): (bool, bool),
) -> (T, WordSums) {
    let mut word_sums = WordSums::default();
    let (even, keep) = (target.even.wide(), target.keep.wide());
    let (mut mass, mut shift_of_mass) = (0.0, 0.0);
    if !target.row.is_empty() {
        mass = sum_of(target.row, target.row, |q, _| q);
        shift_of_mass = sum_of(row, target.row, |a, q| counted(a - top) * q);
    }
    if statistics {
        word_sums.argmax = find(row, top).unwrap_or(0);
    }
    let [sum, shifts, products] = sums(row, |lanes| {
        let [mut exponentials, mut shifts, mut products] = [[T::ZERO; LANES]; 3];
        for (i, a) in lanes.iter_mut().enumerate() {
            let shift = *a - top;
            let e = shift.exp_of_bounded();
            let counted = counted(shift);
            // The gradient of an entropy needs the logarithm again.
            *a = if keep_shifts { counted } else { e };
            (exponentials[i], shifts[i], products[i]) = (e, counted, e * counted);
        }
        [exponentials, shifts, products]
    });
    let log_sum = sum.ln();
    let unmasked = unmasked as f64;
    word_sums.mass = even * unmasked + keep * mass;
    word_sums.cross_entropy = even * (unmasked * log_sum - shifts) + keep * (mass * log_sum - shift_of_mass);
    word_sums.entropy = log_sum - products / sum;
    word_sums.max_log_prob = -log_sum;
    (T::of(sum), word_sums)
}

/// The second visit of a mixture's rows, and what it leaves for their gradients.
pub(super) struct AllWords<T> {
    /// `q̃_v / P_v` of the target, with all that it has of a word, or `log P_v` in a faint tile, `[V]`.
    ratios: Buffer<T>,
    /// Whether a tile is done in log space.
    faint: Vec<bool>,
}

/// A tile of words.
struct Tile<T> {
    /// The first word, and the one after the last.
    start: usize,
    end: usize,
    /// `P_v`
    probs: [T; TILE],
    /// `log P_v`; 0 for masked words, which have no probability and no part of the target.
    log_probs: [T; TILE],
    /// `q̃_v` of the target, at last with all that it has of a word.
    targets: [T; TILE],
}

/// What is asked for of all words.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked {
    pub(super) entropy: bool,
    pub(super) statistics: bool,
}

impl<T: Real> AllWords<T> {
    /// For mixtures over `vocab` words, with a target or without.
    pub(super) fn new(vocab: usize, has_dense: bool) -> Self {
        Self {
            ratios: Buffer::new(if has_dense { vocab } else { 0 }),
            faint: vec![false; vocab.div_ceil(TILE)],
        }
    }

    /// Sees all words of rows of [exponentials](store_exponentials), `[K, V]`, and adds to the components' shares what the
    /// target has of each. Without a target the rows become exponentials and nothing else.
    #[inline(always)]
    pub(super) fn run(
        &mut self,
        rows: &mut [T],
        logits: &MappedLogits<'_, T>,
        mixture: &mut [Component<T>],
        target: &Dense<'_, T>,
        asked: Asked,
    ) -> WordSums {
        let (vocab, mut word_sums) = (logits.vocab, WordSums::default());
        for (number, start) in (0..vocab).step_by(TILE).enumerate() {
            let end = vocab.min(start + TILE);
            let [probs, log_probs, targets] = [[T::ZERO; TILE]; 3];
            let mut tile = Tile { start, end, probs, log_probs, targets };
            let masked = logits.masked_in(start..end);
            let is_faint = !tile.mix(rows.chunks_exact(vocab), mixture, masked.clone());
            self.faint[number] = is_faint;
            if is_faint {
                tile.mix_logarithms(rows.chunks_exact(vocab), mixture, masked.clone());
            }
            if target.is_zero() {
                for row in rows.chunks_exact_mut(vocab) {
                    row[start..end].iter_mut().for_each(|e| *e = exponential(*e));
                }
            } else {
                word_sums.cross_entropy += tile.take(target, masked.clone());
                let ratios = &mut self.ratios[start..end];
                tile.share(rows.chunks_exact(vocab), mixture, is_faint, masked.clone(), ratios);
            }
            word_sums.add(tile, asked, masked);
        }
        word_sums
    }

    /// After [`run`](Self::run) with a target: turns a row into `of_probs · e − q̃ · r`, but for masked words.
    #[inline(always)]
    pub(super) fn finish(&self, row: &mut [T], component: &Component<T>, of_probs: T, target: &Dense<'_, T>) {
        let Component { weight, .. } = *component;
        let tiles = row.chunks_mut(TILE).zip(self.ratios.chunks(TILE)).zip(&self.faint);
        for (tile, ((row, ratios), is_faint)) in tiles.enumerate() {
            if *is_faint {
                let log_weight = component.log_weight;
                for (i, (e, log_prob)) in row.iter_mut().zip(ratios).enumerate() {
                    let share = (logarithm(*e) + log_weight - *log_prob).exp();
                    *e = of_probs * exponential(*e) - target.at(tile * TILE + i, *log_prob) * share;
                }
            } else {
                for (e, ratios) in row.iter_mut().zip(ratios) {
                    *e = exponential(*e) * (of_probs - weight * *ratios);
                }
            }
        }
    }
}

impl<T: Real> Tile<T> {
    /// The tile's part of a row.
    #[inline(always)]
    fn of<'r>(&self, row: &'r [T]) -> &'r [T] {
        &row[self.start..self.end]
    }

    /// `P_v` and its logarithm in linear space. False if that is not exact.
    #[inline(always)]
    fn mix(
        &mut self,
        rows: ChunksExact<'_, T>,
        mixture: &[Component<T>],
        masked: impl Iterator<Item = usize> + Clone,
    ) -> bool {
        let (words, len) = (self.start..self.end, self.end - self.start);
        let weighed = || rows.clone().zip(mixture).map(|(row, part)| (&row[words.clone()], part.weight));
        linear_mixture(weighed, &mut self.probs[..len]);
        // Any probability that is not faint.
        masked.clone().for_each(|word| self.probs[word] = T::ONE);
        let probs = &self.probs[..len];
        self.log_probs.iter_mut().zip(probs).for_each(|(log_prob, prob)| *log_prob = prob.log());
        let faintest = T::largest(probs.iter().map(|prob| -*prob));
        self.leave_out(masked);
        -faintest >= T::of(FAINT)
    }

    /// The same in log space.
    #[inline(always)]
    fn mix_logarithms(
        &mut self,
        rows: ChunksExact<'_, T>,
        mixture: &[Component<T>],
        masked: impl Iterator<Item = usize>,
    ) {
        let words = self.start..self.end;
        let rows = rows.zip(mixture).map(|(row, component)| (&row[words.clone()], component.log_weight));
        let log_probs = &mut self.log_probs[..words.len()];
        log_mixture(rows, log_probs);
        self.probs.iter_mut().zip(&*log_probs).for_each(|(prob, log_prob)| *prob = log_prob.exp());
        self.leave_out(masked);
    }

    /// Masked words have probability 0 and add nothing to any sum.
    #[inline(always)]
    fn leave_out(&mut self, masked: impl Iterator<Item = usize>) {
        masked.for_each(|word| (self.probs[word], self.log_probs[word]) = (T::ZERO, T::ZERO));
    }

    /// Its part of the target, and what that makes of the loss.
    #[inline(always)]
    fn take(&mut self, target: &Dense<'_, T>, masked: impl Iterator<Item = usize> + Clone) -> f64 {
        let Dense { even, keep, row, entropy, model } = *target;
        self.targets = [even; TILE];
        // Beyond the last word there is nothing.
        self.targets[self.end - self.start..].fill(T::ZERO);
        if !row.is_empty() {
            let targets = self.targets.iter_mut().zip(&row[self.start..self.end]);
            targets.for_each(|(target, q)| *target = keep.mul_add(*q, *target));
        }
        masked.clone().for_each(|word| self.targets[word] = T::ZERO);
        let mut loss = -sum_of(&self.targets, &self.log_probs, |target, log_prob| target * log_prob);
        if entropy != T::ZERO {
            let words = self.targets.iter_mut().zip(&self.probs).zip(&self.log_probs);
            words.for_each(|((target, prob), log_prob)| *target += entropy * *prob * *log_prob);
        }
        if let Some((row, divergence)) = model {
            loss += self.compare(&row[self.start..self.end], divergence, masked);
        }
        loss
    }

    /// Adds what a divergence from another head's log-probabilities pulls; what its words make of the divergence.
    #[inline(always)]
    fn compare(
        &mut self,
        log_t: &[T],
        divergence: Divergence,
        masked: impl Iterator<Item = usize> + Clone,
    ) -> f64 {
        let (mut terms, mut log_s) = ([T::ZERO; TILE], self.log_probs);
        masked.clone().for_each(|word| log_s[word] = T::LOWEST);
        let words = log_s.iter().zip(&self.probs).zip(log_t);
        for (((log_s, s), log_t), (term, target)) in words.zip(terms.iter_mut().zip(&mut self.targets)) {
            let [of_word, pull] = divergence.of_word(*s, *log_s, *log_t);
            *term = of_word;
            *target += pull;
        }
        masked.for_each(|word| self.targets[word] = T::ZERO);
        sum_of(&terms, &terms, |term, _| term)
    }

    /// Adds `Σ_v q̃_v r_kv` to the components' shares, and keeps what `q̃ r` is made of.
    #[inline(always)]
    fn share(
        &self,
        rows: ChunksExact<'_, T>,
        mixture: &mut [Component<T>],
        is_faint: bool,
        masked: impl Iterator<Item = usize>,
        ratios: &mut [T],
    ) {
        if !is_faint {
            for ((ratios, prob), target) in ratios.iter_mut().zip(&self.probs).zip(&self.targets) {
                *ratios = *target / *prob;
            }
            masked.for_each(|word| ratios[word] = T::ZERO);
            for (row, component) in rows.zip(mixture) {
                let sum = sum_of(self.of(row), ratios, |e, ratios| exponential(e) * ratios);
                component.share += component.weight.wide() * sum;
            }
            return;
        }
        ratios.copy_from_slice(&self.log_probs[..ratios.len()]);
        for (row, component) in rows.zip(mixture) {
            let log_weight = component.log_weight;
            let shares = self.of(row).iter().zip(&*ratios).zip(&self.targets);
            component.share += shares
                .map(|((e, log), target)| (*target * (logarithm(*e) + log_weight - *log).exp()).wide())
                .sum::<f64>();
        }
    }
}

impl WordSums {
    #[inline(always)]
    fn add<T: Real>(&mut self, tile: Tile<T>, asked: Asked, masked: impl Iterator<Item = usize>) {
        let Tile { start, end, probs, mut log_probs, .. } = tile;
        if asked.entropy || asked.statistics {
            // Beyond the last word both are 0.
            self.entropy -= sum_of(&probs, &log_probs, |prob, log_prob| prob * log_prob);
        }
        if !asked.statistics {
            return;
        }
        masked.for_each(|word| log_probs[word] = T::LOWEST);
        let log_probs = &log_probs[..end - start];
        let best = max(log_probs);
        if best.wide() > self.max_log_prob {
            self.max_log_prob = best.wide();
            self.argmax = start + find(log_probs, best).unwrap_or(0);
        }
    }
}
