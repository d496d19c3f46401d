//! What products become before their softmax: bias, map, temperature, masked words; and the way back.
//!
//! A row of products is gone through block by block, as long as the map's parts of a block stay in cache.

use core::ops::Range;

use burn::backend::Flex;
use highrank_kernels::Floats;
use highrank_kernels::cpu::{BLOCK, Buffer, LANES, Real};

use super::row::{Partial, add_bias, add_exponentials, larger, max, total_of};
use super::tensors::values;
use crate::logit_map::CpuMap;
use crate::ops::{LikelihoodInput, MASKING_BIAS};

/// How far a logit may be above the number that is subtracted from a row's logits, see [`MappedLogits::exponentials`].
const MARGIN: f64 = 16.0;

/// What makes mapped logits of products, for all rows of a call.
pub(super) struct MappedLogits<'a, T> {
    /// `V`
    pub(super) vocab: usize,
    bias: Option<&'a [T]>,
    /// A copy of it, where words are masked. That of masked words is 0: whatever a map makes of their logits then is a number.
    finite_bias: Option<Buffer<T>>,
    /// The words of probability 0, in order.
    pub(super) masked: Vec<usize>,
    pub(super) map: CpuMap<'a, T>,
    /// Divides mapped logits.
    pub(super) temperature: T,
}

impl<'a, T: Real> MappedLogits<'a, T> {
    /// Of a likelihood [as it is read](super::call::as_read).
    pub(super) fn new(input: &'a LikelihoodInput<Floats<Flex>>) -> Self {
        let bias = input.bias.as_ref().map(values::<T>);
        let is_masked = |word: &usize| bias.is_some_and(|bias| bias[*word] <= T::of(MASKING_BIAS));
        let masked: Vec<_> = (0..input.vocab()).filter(is_masked).collect();
        let finite_bias = bias.filter(|_| !masked.is_empty()).map(|bias| {
            let mut bias = Buffer::of(bias);
            masked.iter().for_each(|word| bias[*word] = T::ZERO);
            bias
        });
        Self {
            vocab: input.vocab(),
            bias,
            finite_bias,
            masked,
            map: CpuMap::new(input.map, input.map_params.as_ref().map_or(&[][..], values)),
            temperature: T::of(input.temperature),
        }
    }

    /// `[V]`, if there is one; finite.
    pub(super) fn bias(&self) -> Option<&[T]> {
        self.finite_bias.as_deref().or(self.bias)
    }

    /// Words that are not masked.
    pub(super) fn unmasked(&self) -> usize {
        self.vocab - self.masked.len()
    }

    /// The masked words among those of a run, counted from its first.
    #[inline(always)]
    pub(super) fn masked_in(&self, run: Range<usize>) -> impl Iterator<Item = usize> + Clone {
        let from = |word: usize| self.masked.partition_point(|masked| *masked < word);
        let masked = match &self.masked[..] {
            [] => &[][..],
            masked => &masked[from(run.start)..from(run.end)],
        };
        masked.iter().map(move |word| word - run.start)
    }

    /// Adds the bias of words `first ..`.
    #[inline(always)]
    pub(super) fn add_bias(&self, first: usize, run: &mut [T]) {
        if let Some(bias) = self.bias() {
            run.iter_mut().zip(&bias[first..]).for_each(|(z, b)| *z += *b);
        }
    }

    /// Whether the word is masked.
    #[inline(always)]
    pub(super) fn is_masked(&self, word: usize) -> bool {
        self.masked.binary_search(&word).is_ok()
    }

    /// `value` for the masked words of a run.
    #[inline(always)]
    pub(super) fn mask(&self, first: usize, run: &mut [T], value: T) {
        self.masked_in(first..first + run.len()).for_each(|place| run[place] = value);
    }

    /// Turns products into mapped logits, −∞ for masked words, of words from `first` on, at most [a block](CpuMap::layout) of
    /// them. The largest one, as [`max`]. `logits` and `parts` are empty, or take the logits, and what [`CpuMap::apply`] leaves.
    #[inline(always)]
    fn map_block(&self, block: &mut [T], first: usize, logits: &mut [T], parts: &mut [T]) -> T {
        if let Some(bias) = self.bias()
            && self.map.layout.is_identity
            && self.temperature == T::ONE
            && self.masked_in(first..first + block.len()).next().is_none()
        {
            return add_bias(block, &bias[first..first + block.len()]);
        }
        match self.bias() {
            // Both in one pass.
            Some(bias) if !logits.is_empty() => {
                for ((z, bias), saved) in block.iter_mut().zip(&bias[first..]).zip(logits) {
                    *z += *bias;
                    *saved = *z;
                }
            }
            _ => {
                self.add_bias(first, block);
                logits.iter_mut().zip(&*block).for_each(|(saved, z)| *saved = *z);
            }
        }
        self.map.apply(block, parts);
        if self.temperature != T::ONE {
            let inverse = T::ONE / self.temperature;
            block.iter_mut().for_each(|z| *z *= inverse);
        }
        self.mask(first, block, T::LOWEST);
        max(block)
    }

    /// Turns a run of a row of products, from word `first` on, into mapped logits. The largest one, as
    /// [`max`](super::row::max). `saved` is empty, or takes of a whole row as many arrays as
    /// [`saved_of_row`](Self::saved_of_row) counts.
    #[inline(always)]
    pub(super) fn map_run(&self, first: usize, run: &mut [T], saved: &mut [T]) -> T {
        let (logits, parts) = saved.split_at_mut(self.array().min(saved.len()));
        let mut top = T::LOWEST;
        let step = self.map.layout.block;
        let (mut logits, mut parts) = (logits.chunks_mut(step), parts.chunks_mut(step));
        for (i, block) in run.chunks_mut(step).enumerate() {
            let (logits, parts) = (logits.next().unwrap_or_default(), parts.next().unwrap_or_default());
            top = larger(top, self.map_block(block, first + i * step, logits, parts));
        }
        top
    }

    /// The mapped logits of some words of a row of products; `logits` is empty, or takes the logits.
    #[inline(always)]
    pub(super) fn map_listed(&self, row: &[T], words: &[usize], mapped: &mut [f64], logits: &mut [T]) {
        let (bias, mut logits) = (self.bias(), logits.chunks_mut(LANES));
        for (words, mapped) in words.chunks(LANES).zip(mapped.chunks_mut(LANES)) {
            let mut block = [T::ZERO; LANES];
            let block = &mut block[..words.len()];
            for (z, word) in block.iter_mut().zip(words) {
                *z = row[*word] + bias.map_or(T::ZERO, |bias| bias[*word]);
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
    /// from them, and the exponentials' sum. If `is_graded`, what is left of a row is an exponential times the map's slope, and
    /// `saved` takes the rest.
    ///
    /// That number is the first block's largest mapped logit until one is above it by [`MARGIN`], which is when all that was
    /// made is scaled. It need not be the largest: no exponential is too large for its type.
    #[inline(always)]
    pub(super) fn exponentials(&self, row: &mut [T], saved: &mut Saved<'_, T>, is_graded: bool) -> (T, T) {
        let Saved { lanes, parts, sums, arrays, .. } = saved;
        let (logits, slopes) = arrays.split_at_mut(self.array().min(arrays.len()));
        let (mut top, mut sum) = (T::MIN, Partial([T::ZERO; BLOCK]));
        lanes.fill(T::ZERO);
        let step = self.map.layout.block;
        let (mut logits, mut slopes) = (logits.chunks_mut(step), slopes.chunks_mut(step));
        for first in (0..self.vocab).step_by(step) {
            let (before, block) = row.split_at_mut(first);
            let block = &mut block[..step.min(self.vocab - first)];
            let (logits, slopes) = match self.map.layout.is_table {
                true => (logits.next().unwrap_or_default(), slopes.next().unwrap_or_default()),
                false => (&mut [][..], &mut **parts),
            };
            let largest = self.map_block(block, first, logits, slopes);
            if largest > top + T::of(MARGIN) {
                let factor = (top - largest).exp_of_bounded();
                top = largest;
                let made = if is_graded { before } else { &mut [] };
                for values in [made, lanes, &mut sum.0] {
                    values.iter_mut().for_each(|x| *x *= factor);
                }
            }
            add_exponentials(block, top, is_graded, &mut sum.0);
            if is_graded {
                self.map.pull_back(parts, block, lanes);
            }
        }
        let lanes = lanes.chunks(self.map.layout.lanes);
        sums.iter_mut().zip(lanes).for_each(|(sum, lanes)| *sum = total_of(lanes));
        (top, total_of(&sum.0))
    }

    /// Turns the gradient of a row's mapped logits into that of the logits; leaves the row's sums. It maps the saved
    /// logits again in place, which overwrites them.
    #[inline(always)]
    pub(super) fn pull_back(&self, row: &mut [T], saved: &mut Saved<'_, T>) {
        let Saved { lanes, parts, sums, arrays, .. } = saved;
        lanes.fill(T::ZERO);
        let step = self.map.layout.block;
        for (g, z) in row.chunks_mut(step).zip(arrays.chunks_mut(step)) {
            self.map.apply(&mut z[..g.len()], parts);
            self.map.pull_back(parts, g, lanes);
        }
        let lanes = lanes.chunks(self.map.layout.lanes);
        sums.iter_mut().zip(lanes).for_each(|(sum, lanes)| *sum = total_of(lanes));
    }

    /// Adds to a row of [exponentials times slopes](Self::exponentials), and to its sums, what gradients of some words' mapped
    /// logits add.
    #[inline(always)]
    pub(super) fn add_listed(
        &self,
        row: &mut [T],
        words: &[usize],
        g: impl Iterator<Item = T>,
        saved: &mut Saved<'_, T>,
    ) {
        let Saved { lanes, parts, sums, listed, .. } = saved;
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
        let lanes = lanes.chunks(self.map.layout.lanes);
        sums.iter_mut().zip(lanes).for_each(|(sum, lanes)| *sum += total_of(lanes));
    }

    /// How many values a row saves from its first stage to its last if gradients are asked for, see [`Saved`]: with
    /// `listed` words, and with what dense targets and statistics need of all words, or without.
    pub(super) fn saved_of_row(&self, listed: usize, all_words: bool) -> usize {
        if self.map.layout.is_identity {
            return 0;
        }
        // The logits where they are needed again, and the parts of a map with a table.
        let arrays = match self.map.layout.is_table {
            true => 1 + self.map.layout.parts,
            false => usize::from(all_words),
        };
        self.lengths(listed).iter().sum::<usize>() + arrays * self.array()
    }

    /// Length of an array over the vocabulary.
    pub(super) fn array(&self) -> usize {
        self.vocab.next_multiple_of(LANES)
    }

    /// Lengths of a row's lanes, parts, sums and listed logits; multiples of [`LANES`].
    fn lengths(&self, listed: usize) -> [usize; 4] {
        let map = &self.map.layout;
        let (sums, parts) = match map.is_table {
            true => (0, 0),
            false => (map.num_sums, map.parts * map.block),
        };
        [sums * map.lanes, parts, sums.next_multiple_of(LANES), listed.next_multiple_of(LANES)]
    }

    /// Divides what a row saves, [`saved_of_row`](Self::saved_of_row) values or none.
    #[inline(always)]
    pub(super) fn split<'s>(&self, saved: &'s mut [T], listed: usize) -> Saved<'s, T> {
        let lengths = if saved.is_empty() { [0; 4] } else { self.lengths(listed) };
        let [lanes, parts, sums, listed_logits] = lengths;
        let (lanes, rest) = saved.split_at_mut(lanes);
        let (parts, rest) = rest.split_at_mut(parts);
        let (sums, rest) = rest.split_at_mut(sums);
        let (listed, arrays) = rest.split_at_mut(listed_logits);
        Saved { sums: &mut sums[..lanes.len() / self.map.layout.lanes], lanes, parts, listed, arrays }
    }
}

/// What a row saves from its first stage to its last, all of it empty if no gradients are asked for. The first two are
/// used within a stage only.
pub(super) struct Saved<'s, T> {
    /// Partial results of `sums`.
    lanes: &'s mut [T],
    /// What [`CpuMap::apply`](crate::logit_map::CpuMap::apply) leaves of a block.
    parts: &'s mut [T],
    /// What the row adds to the sums of the map, before it is multiplied with the row's scale.
    pub(super) sums: &'s mut [T],
    /// The logits of the listed words, `[m]`.
    pub(super) listed: &'s mut [T],
    /// The logits, if they are needed again, and what a map with a table leaves of them, each `[V]`.
    pub(super) arrays: &'s mut [T],
}
