//! A word by a token's distribution.

use crate::ops::Drawn;

/// The first word at which the sum of the probabilities, in the vocabulary's order, exceeds `number` times their sum.
pub(crate) fn draw_in_order(log_probs: &[f64], number: f64) -> Drawn {
    let probs: Vec<f64> = log_probs.iter().map(|x| x.exp()).collect();
    let total: f64 = probs.iter().sum();
    if total.is_nan() || total == f64::INFINITY {
        return Drawn::NotANumber;
    }
    let mut left = number * total;
    let drawn = probs.iter().position(|&prob| {
        left -= prob;
        left < 0.0
    });
    // Rounding can leave a remainder after the last word; it belongs to the last that can occur.
    match drawn.or_else(|| probs.iter().rposition(|&prob| prob > 0.0)) {
        Some(word) => Drawn::Word(word),
        None => Drawn::AllMasked,
    }
}
