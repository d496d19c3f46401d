//! A row of logits, run by run: mapped logits, their maximum, the sum of their exponentials.

use highrank_kernels::cpu::Real;

use super::super::all_words::{RUN, store_exponentials};
use super::super::mapped_logits::MappedLogits;
use super::super::row::sums;

/// A run of a row, or all of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct LogSumExp {
    /// The largest mapped logit; −∞ if all words are masked.
    pub(super) top: f64,
    /// `Σ_v e^{a_v − top}`; NaN if a logit is no number.
    pub(super) sum: f64,
}

impl LogSumExp {
    /// Of no words.
    pub(super) const NONE: Self = Self { top: f64::NEG_INFINITY, sum: 0.0 };

    /// Of all runs of a row.
    #[inline(always)]
    pub(super) fn of(runs: &[Self]) -> Self {
        runs.iter().fold(Self::NONE, |whole, run| whole.and(*run))
    }

    /// Both, one after the other.
    #[inline(always)]
    fn and(self, next: Self) -> Self {
        let (most, least) = if next.top > self.top { (next, self) } else { (self, next) };
        Self { top: most.top, sum: most.sum + least.below(most.top) }
    }

    /// The sum below a number that is at least the largest logit.
    #[inline(always)]
    fn below(&self, top: f64) -> f64 {
        match self.sum {
            // Masked words alone, of whose logits there is no difference.
            0.0 => 0.0,
            sum => sum * (self.top - top).exp(),
        }
    }
}

impl<T: Real> MappedLogits<'_, T> {
    /// Number of runs of a row.
    pub(super) fn runs(&self) -> usize {
        self.vocab.div_ceil(RUN)
    }

    /// Turns products into logits; −∞ for masked words.
    #[inline(always)]
    pub(super) fn logits(&self, first: usize, run: &mut [T]) {
        self.add_bias(first, run);
        self.mask(first, run, T::LOWEST);
    }

    /// Turns products into mapped logits, −∞ for masked words. Gives the largest, and what to subtract from them: that, or 0 if
    /// all are masked.
    #[inline(always)]
    fn mapped(&self, first: usize, run: &mut [T]) -> (T, T) {
        let top = self.map_run(first, run, &mut []);
        (top, if top == T::LOWEST { T::ZERO } else { top })
    }

    /// Turns products into mapped logits.
    #[inline(always)]
    pub(super) fn measure(&self, first: usize, run: &mut [T]) -> LogSumExp {
        let (top, base) = self.mapped(first, run);
        let [sum] = sums(run, |lanes| {
            let mut exponentials = *lanes;
            exponentials.iter_mut().for_each(|a| *a = (*a - base).exp());
            [exponentials]
        });
        LogSumExp { top: top.wide(), sum }
    }

    /// Turns products into `e^{a − top}`, those that are too small for a number into their logarithms, which are negative.
    #[inline(always)]
    pub(super) fn measured_exponentials(&self, first: usize, run: &mut [T]) -> LogSumExp {
        let (top, base) = self.mapped(first, run);
        LogSumExp { top: top.wide(), sum: store_exponentials(run, base) }
    }

    /// Turns mapped logits into log-probabilities, −∞ for masked words.
    #[inline(always)]
    pub(super) fn normalise(&self, first: usize, run: &mut [T], whole: LogSumExp) {
        // The maximum first: a log-probability near 0 keeps its digits.
        let (top, log_sum) = (T::of(whole.top), T::of(whole.sum.ln()));
        run.iter_mut().for_each(|a| *a = (*a - top) - log_sum);
        self.mask(first, run, T::LOWEST);
    }
}
