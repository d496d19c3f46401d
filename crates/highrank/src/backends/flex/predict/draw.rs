//! A word by a row of mapped logits.

use highrank_kernels::cpu::Real;

use super::super::all_words::RUN;
use super::runs::LogSumExp;
use crate::ops::Drawn;

/// Draws the word of a row of mapped logits, `[V]`, at which the sum of the probabilities, in the vocabulary's order, exceeds
/// `number` times their sum. Of the row's runs only the one that it is in is gone through.
#[inline(always)]
pub(super) fn pick<T: Real>(row: &[T], sums: &[LogSumExp], number: f64) -> Drawn {
    let whole = LogSumExp::of(sums);
    if whole.sum.is_nan() {
        return Drawn::NotANumber;
    }
    if whole.sum == 0.0 {
        return Drawn::AllMasked;
    }
    let scale = |part: &LogSumExp| (part.top - whole.top).exp();
    let mut left = number * whole.sum;
    let mut chosen = None;
    for (run, part) in sums.iter().enumerate() {
        let mass = part.sum * scale(part);
        if mass > 0.0 {
            // Rounding can leave a remainder after the last run; it belongs to the last that can occur.
            chosen = Some((run, left.max(0.0) / scale(part)));
            left -= mass;
            if left < 0.0 {
                break;
            }
        }
    }
    let (run, left) = chosen.expect("the largest logit's run has a probability");
    let first = run * RUN;
    let values = &row[first..row.len().min(first + RUN)];
    Drawn::Word(first + pick_in_run(values, T::of(sums[run].top), left))
}

/// The first word at which the sum of the exponentials exceeds `left`, or the last that has any.
#[inline(always)]
fn pick_in_run<T: Real>(run: &[T], top: T, mut left: f64) -> usize {
    let mut values = [T::ZERO; RUN];
    values.iter_mut().zip(run).for_each(|(value, a)| *value = (*a - top).exp());
    let mut last = 0;
    for (word, value) in values[..run.len()].iter().enumerate() {
        if *value > T::ZERO {
            last = word;
            left -= value.wide();
            if left < 0.0 {
                break;
            }
        }
    }
    last
}
