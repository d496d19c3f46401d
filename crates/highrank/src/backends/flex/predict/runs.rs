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

    /// Does a step with a run of a row, from word `first` on; what that makes of exponentials.
    #[inline(always)]
    pub(super) fn step(&self, first: usize, run: &mut [T], step: Step) -> LogSumExp {
        match step {
            Step::Logits => self.add_bias(first, run),
            Step::Normalise(whole) => {
                // The maximum first: a log-probability near 0 keeps its digits.
                let (top, log_sum) = (T::of(whole.top), T::of(whole.sum.ln()));
                run.iter_mut().for_each(|a| *a = (*a - top) - log_sum);
            }
            Step::Measure | Step::Exponentials => {
                let top = self.map_run(first, run, &mut []);
                // There is no difference from −∞, the largest where all words are masked.
                let base = if top == T::LOWEST { T::ZERO } else { top };
                let sum = match step {
                    Step::Exponentials => store_exponentials(run, base),
                    _ => {
                        let [sum] = sums(run, |lanes| {
                            let mut exponentials = *lanes;
                            exponentials.iter_mut().for_each(|a| *a = (*a - base).exp());
                            [exponentials]
                        });
                        sum
                    }
                };
                return LogSumExp { top: top.wide(), sum };
            }
        }
        self.mask(first, run, T::LOWEST);
        LogSumExp::NONE
    }
}

/// What is done to a run.
#[derive(Debug, Clone, Copy)]
pub(super) enum Step {
    /// Turns products into logits; −∞ for masked words.
    Logits,
    /// Turns products into mapped logits, −∞ for masked words.
    Measure,
    /// Turns products into `e^{a − top}`, those that are too small for a number into their logarithms, which are negative.
    Exponentials,
    /// Turns mapped logits into log-probabilities, −∞ for masked words.
    Normalise(LogSumExp),
}
