//! What logits become before their softmax: bias, map, temperature, masked words.

use core::ops::Range;

use highrank_kernels::cpu::Real;

use super::row::{add_bias, max};
use crate::logit_map::CpuMap;

/// What all rows of a call share.
pub(super) struct Words<'a, T> {
    /// `V`
    pub(super) vocab: usize,
    /// That of masked words is 0.
    pub(super) bias: Option<&'a [T]>,
    /// The words of probability 0, in order.
    pub(super) masked: &'a [usize],
    pub(super) map: CpuMap<'a, T>,
    /// Divides mapped logits.
    pub(super) temperature: T,
}

impl<T: Real> Words<'_, T> {
    /// The masked words among those of a run, counted from its first.
    #[inline(always)]
    pub(super) fn masked_in(&self, run: Range<usize>) -> impl Iterator<Item = usize> + Clone {
        let from = |word: usize| self.masked.partition_point(|masked| *masked < word);
        let masked = match self.masked {
            [] => &[][..],
            masked => &masked[from(run.start)..from(run.end)],
        };
        masked.iter().map(move |word| word - run.start)
    }

    /// Adds the bias of words `first ..`.
    #[inline(always)]
    pub(super) fn add_bias(&self, first: usize, run: &mut [T]) {
        if let Some(bias) = self.bias {
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

    /// Turns products into mapped logits, −∞ for masked words, of words from `first` on, at most [a block](CpuMap::block) of
    /// them. The largest one, as [`max`]. `logits` and `parts` are empty, or take the logits, and what [`CpuMap::apply`] leaves.
    #[inline(always)]
    pub(super) fn map_block(&self, block: &mut [T], first: usize, logits: &mut [T], parts: &mut [T]) -> T {
        if let Some(bias) = self.bias
            && self.map.is_identity()
            && self.temperature == T::ONE
            && self.masked_in(first..first + block.len()).next().is_none()
        {
            return add_bias(block, &bias[first..first + block.len()]);
        }
        self.add_bias(first, block);
        logits.iter_mut().zip(&*block).for_each(|(kept, z)| *kept = *z);
        self.map.apply(block, parts);
        if self.temperature != T::ONE {
            let inverse = T::ONE / self.temperature;
            block.iter_mut().for_each(|z| *z *= inverse);
        }
        self.mask(first, block, T::LOWEST);
        max(block)
    }
}
