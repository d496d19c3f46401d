//! The second visit of a mixture's rows: `log P_v` of every word, and what a level of the targets makes of it.
//!
//! `P_v = Σ_k π_k e_kv / S_k` is summed as it stands: every exponential has its row's maximum subtracted. Words for which that
//! is too little to be exact are done in log space, with all of their tile; ordinary logits never get there. For these
//! words a row keeps an exponential that is too small to be a number as its logarithm, which is negative.

use std::slice::ChunksExact;

use highrank_kernels::cpu::{Buffer, Real};

use super::component::Component;
use super::goal::Level;
use super::row::{find, larger, max, sum_of, sums};
use super::words::Words;

/// Words of a tile: with all rows of a token it stays in the first-level cache.
const TILE: usize = 256;

/// Below this probability a sum over the rows is not exact: `1e8` times the smallest normal number of f32.
pub(super) const FAINT: f64 = 1e-30;

/// What the visit of all words has seen.
#[derive(Debug)]
pub(super) struct Seen {
    /// What the level has of all words, `Σ_v q̃_v`; only where there is one component.
    pub(super) mass: f64,
    /// `−Σ_v q̃_v log P_v` with the level for `q̃`.
    pub(super) cross_entropy: f64,
    /// This and the next two only for statistics.
    pub(super) entropy: f64,
    /// The likeliest word, the lowest of equals.
    pub(super) argmax: usize,
    pub(super) max_log_prob: f64,
}

impl Default for Seen {
    fn default() -> Self {
        Self { mass: 0.0, cross_entropy: 0.0, entropy: 0.0, argmax: 0, max_log_prob: f64::NEG_INFINITY }
    }
}

/// `e^{a − top}` of a row of mapped logits, in place, and their sum; those that are too small as their logarithms.
#[inline(always)]
pub(super) fn keep_exponentials<T: Real>(row: &mut [T], top: T) -> T {
    let [sum] = sums(row, |a| {
        let shift = *a - top;
        let e = shift.exp_of_bounded();
        *a = if e > T::ZERO { e } else { shift };
        [e]
    });
    T::of(sum)
}

/// An exponential that is kept as [`keep_exponentials`] does.
#[inline(always)]
pub(super) fn exponential<T: Real>(kept: T) -> T {
    if kept > T::ZERO { kept } else { T::ZERO }
}

/// The logarithm of an exponential that is kept as [`keep_exponentials`] does.
#[inline(always)]
pub(super) fn logarithm<T: Real>(kept: T) -> T {
    let log = kept.log();
    if kept > T::ZERO { log } else { kept }
}

/// The distance of a logit from the largest one; −∞ is that of a masked word, which counts for nothing.
#[inline(always)]
fn counted<T: Real>(shift: T) -> T {
    if shift > T::LOWEST { shift } else { T::ZERO }
}

/// A single row: `e^{a − top}` in place, their sum, and what is to be seen of its `unmasked` words.
#[inline(always)]
pub(super) fn see_single<T: Real>(
    row: &mut [T],
    top: T,
    level: &Level<'_, T>,
    unmasked: usize,
    statistics: bool,
) -> (T, Seen) {
    let mut seen = Seen::default();
    let (even, keep) = (level.even.wide(), level.keep.wide());
    let (mut mass, mut shift_of_mass) = (0.0, 0.0);
    if !level.row.is_empty() {
        mass = sum_of(level.row, level.row, |q, _| q);
        shift_of_mass = sum_of(row, level.row, |a, q| counted(a - top) * q);
    }
    if statistics {
        seen.argmax = find(row, top).unwrap_or(0);
    }
    let [sum, shifts, products] = sums(row, |a| {
        let shift = *a - top;
        *a = shift.exp_of_bounded();
        let shift = counted(shift);
        [*a, shift, *a * shift]
    });
    let log_sum = sum.ln();
    let unmasked = unmasked as f64;
    seen.mass = even * unmasked + keep * mass;
    seen.cross_entropy = even * (unmasked * log_sum - shifts) + keep * (mass * log_sum - shift_of_mass);
    seen.entropy = log_sum - products / sum;
    seen.max_log_prob = -log_sum;
    (T::of(sum), seen)
}

/// What the visit leaves for the rows' gradients.
pub(super) struct Visit<T> {
    /// `q̃_v / P_v` of the level, or `log P_v` in a faint tile, `[V]`.
    spread: Buffer<T>,
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
    /// `log P_v`; 0 for masked words, which have no probability and no part of the level.
    log_probs: [T; TILE],
    /// `q̃_v` of the level.
    levels: [T; TILE],
}

impl<T: Real> Visit<T> {
    /// For mixtures over `vocab` words, with a level or without.
    pub(super) fn new(vocab: usize, has_level: bool) -> Self {
        Self {
            spread: Buffer::new(if has_level { vocab } else { 0 }),
            faint: vec![false; vocab.div_ceil(TILE)],
        }
    }

    /// Sees all words of rows of [exponentials](keep_exponentials), `[K, V]`, and adds to the components' shares what the
    /// level has of each. Without a level the rows become exponentials and nothing else.
    #[inline(always)]
    pub(super) fn run(
        &mut self,
        rows: &mut [T],
        words: &Words<'_, T>,
        components: &mut [Component<T>],
        level: &Level<'_, T>,
        statistics: bool,
    ) -> Seen {
        let (vocab, mut seen) = (words.vocab, Seen::default());
        for (number, start) in (0..vocab).step_by(TILE).enumerate() {
            let end = vocab.min(start + TILE);
            let [probs, log_probs, levels] = [[T::ZERO; TILE]; 3];
            let mut tile = Tile { start, end, probs, log_probs, levels };
            let masked = words.masked_in(start..end);
            let is_faint = !tile.mix(rows.chunks_exact(vocab), components, masked.clone());
            self.faint[number] = is_faint;
            if is_faint {
                tile.mix_logarithms(rows.chunks_exact(vocab), components, masked.clone());
            }
            if level.is_nothing() {
                for row in rows.chunks_exact_mut(vocab) {
                    row[start..end].iter_mut().for_each(|e| *e = exponential(*e));
                }
            } else {
                tile.take(level, masked.clone());
                let spread = &mut self.spread[start..end];
                tile.share(rows.chunks_exact(vocab), components, is_faint, masked.clone(), spread);
            }
            seen.add(tile, statistics, masked);
        }
        seen
    }

    /// After [`run`](Self::run) with a level: turns a row into `of_probs · e − q̃ · r`, but for masked words.
    #[inline(always)]
    pub(super) fn finish(&self, row: &mut [T], component: &Component<T>, of_probs: T, level: &Level<'_, T>) {
        let Component { weight, .. } = *component;
        let tiles = row.chunks_mut(TILE).zip(self.spread.chunks(TILE)).zip(&self.faint);
        for (tile, ((row, spread), is_faint)) in tiles.enumerate() {
            if *is_faint {
                let log_weight = component.log_weight;
                for (i, (e, log_prob)) in row.iter_mut().zip(spread).enumerate() {
                    let share = (logarithm(*e) + log_weight - *log_prob).exp();
                    *e = of_probs * exponential(*e) - level.of(tile * TILE + i) * share;
                }
            } else {
                for (e, spread) in row.iter_mut().zip(spread) {
                    *e = exponential(*e) * (of_probs - weight * *spread);
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
        components: &[Component<T>],
        masked: impl Iterator<Item = usize> + Clone,
    ) -> bool {
        for (row, component) in rows.zip(components) {
            let row = self.of(row);
            for (prob, e) in self.probs.iter_mut().zip(row) {
                *prob = component.weight.mul_add(exponential(*e), *prob);
            }
        }
        // Any probability that is not faint.
        masked.clone().for_each(|word| self.probs[word] = T::ONE);
        let len = self.end - self.start;
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
        components: &[Component<T>],
        masked: impl Iterator<Item = usize>,
    ) {
        let mut tops = [T::LOWEST; TILE];
        for (row, component) in rows.clone().zip(components) {
            for (top, e) in tops.iter_mut().zip(self.of(row)) {
                *top = larger(*top, logarithm(*e) + component.log_weight);
            }
        }
        let mut sums = [T::ZERO; TILE];
        for (row, component) in rows.zip(components) {
            for ((sum, top), e) in sums.iter_mut().zip(&tops).zip(self.of(row)) {
                *sum += (logarithm(*e) + component.log_weight - *top).exp_of_bounded();
            }
        }
        for i in 0..self.end - self.start {
            self.log_probs[i] = tops[i] + sums[i].log();
            self.probs[i] = self.log_probs[i].exp();
        }
        self.leave_out(masked);
    }

    /// Masked words have probability 0 and add nothing to any sum.
    #[inline(always)]
    fn leave_out(&mut self, masked: impl Iterator<Item = usize>) {
        masked.for_each(|word| (self.probs[word], self.log_probs[word]) = (T::ZERO, T::ZERO));
    }

    /// Its part of the level.
    #[inline(always)]
    fn take(&mut self, level: &Level<'_, T>, masked: impl Iterator<Item = usize>) {
        let Level { even, keep, row } = *level;
        self.levels = [even; TILE];
        // Beyond the last word there is nothing.
        self.levels[self.end - self.start..].fill(T::ZERO);
        if !row.is_empty() {
            let levels = self.levels.iter_mut().zip(&row[self.start..self.end]);
            levels.for_each(|(level, q)| *level = keep.mul_add(*q, *level));
        }
        masked.for_each(|word| self.levels[word] = T::ZERO);
    }

    /// Adds `Σ_v q̃_v r_kv` to the components' shares, and keeps what `q̃ r` is made of.
    #[inline(always)]
    fn share(
        &self,
        rows: ChunksExact<'_, T>,
        components: &mut [Component<T>],
        is_faint: bool,
        masked: impl Iterator<Item = usize>,
        spread: &mut [T],
    ) {
        if !is_faint {
            for ((spread, prob), level) in spread.iter_mut().zip(&self.probs).zip(&self.levels) {
                *spread = *level / *prob;
            }
            masked.for_each(|word| spread[word] = T::ZERO);
            for (row, component) in rows.zip(components) {
                let sum = sum_of(self.of(row), spread, |e, spread| exponential(e) * spread);
                component.share += component.weight.wide() * sum;
            }
            return;
        }
        spread.copy_from_slice(&self.log_probs[..spread.len()]);
        for (row, component) in rows.zip(components) {
            let log_weight = component.log_weight;
            let shares = self.of(row).iter().zip(&*spread).zip(&self.levels);
            component.share += shares
                .map(|((e, log), level)| (*level * (logarithm(*e) + log_weight - *log).exp()).wide())
                .sum::<f64>();
        }
    }
}

impl Seen {
    #[inline(always)]
    fn add<T: Real>(&mut self, tile: Tile<T>, statistics: bool, masked: impl Iterator<Item = usize>) {
        let Tile { start, end, probs, mut log_probs, levels } = tile;
        self.cross_entropy -= sum_of(&levels, &log_probs, |level, log_prob| level * log_prob);
        if !statistics {
            return;
        }
        // Beyond the last word both are 0.
        self.entropy -= sum_of(&probs, &log_probs, |prob, log_prob| prob * log_prob);
        masked.for_each(|word| log_probs[word] = T::LOWEST);
        let log_probs = &log_probs[..end - start];
        let best = max(log_probs);
        if best.wide() > self.max_log_prob {
            self.max_log_prob = best.wide();
            self.argmax = start + find(log_probs, best).unwrap_or(0);
        }
    }
}
