//! Smoothed BLEU of one sentence against one reference.

use std::collections::HashMap;
use std::hash::Hash;

use serde::{Deserialize, Serialize};

/// The orders of BLEU: BLEU-1 to BLEU-4.
pub const ORDERS: usize = 4;

/// Longest n-grams that are counted: the smoothing of the last order looks at the next one.
const LONGEST: usize = ORDERS + 1;

/// The forms of smoothed sentence BLEU that programs use under one name. Figures of different forms must not be compared.
///
/// Written and parsed as `four_orders`, `short_weights` and `repository_2017`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BleuForm {
    /// All four orders are smoothed, whichever BLEU is asked for: method 7 of NLTK with four weights. The form of every figure of this
    /// crate, unless it says otherwise.
    #[default]
    FourOrders,
    /// BLEU-n smooths only its first n orders, and the last of them with the 5-gram precision: NLTK given n weights.
    ShortWeights,
    /// As [`ShortWeights`](Self::ShortWeights), with the rule for empty orders of NLTK 3.2.5, which the published program of Zhao et al.
    /// (arXiv 1703.10960) used.
    #[serde(rename = "repository_2017")]
    Repository2017,
}

runs::by_name! {
    BleuForm, "form of BLEU":
    FourOrders => "four_orders", ShortWeights => "short_weights", Repository2017 => "repository_2017",
}

/// Smoothed BLEU-1 to BLEU-4 of a hypothesis of T tokens against a reference of R tokens, both without marks of begin and end.
///
/// With `c_j` the matches of j-grams, each counted no more often than the reference has it, and `t_j = max(1, T − j + 1)`:
///
/// ```text
/// c_1 = 0:  BLEU-n = 0
/// p_j = c_j / t_j                  if c_j > 0, or j = 5, or T = 1
///     = ln T / (5 · 2^z · t_j)     otherwise; z = 1, 2, … numbers the orders j ≤ 4 with c_j = 0
/// q_0 = p_1 + 1;   q_j = (q_(j−1) + p_j + p_(j+1)) / 3
/// BLEU-n = BP · (q_1 ··· q_n)^(1/n);   BP = 1 if T > R, else exp(1 − R / T)
/// ```
///
/// BLEU can exceed 1: it is 4/3 for BLEU-1 of two equal sentences of at least two tokens, its largest value. The other
/// [forms](BleuForm): `ShortWeights` takes `p_5` for `p_(n+1)` in BLEU-n; `Repository2017` does, too, takes
/// `1 / (j − 1 + 5 / ln T)` for an empty order, and is 0 if T = 1 and one of the first n orders is empty.
///
/// ```
/// use seq2seq::metrics::{BleuForm, sentence_bleu};
///
/// let [bleu1, ..] = sentence_bleu(&["uh", "-", "huh"], &["uh", "-", "huh"], BleuForm::FourOrders);
/// assert!((bleu1 - 4.0 / 3.0).abs() < 1e-12);
/// ```
pub fn sentence_bleu<T: Eq + Hash>(hypothesis: &[T], reference: &[T], form: BleuForm) -> [f64; ORDERS] {
    Grams::new(hypothesis).bleu(&Grams::new(reference), form)
}

/// A sentence with the counts of its n-grams, which every pair that it is in needs.
pub(super) struct Grams<'a, T> {
    length: usize,
    counts: [HashMap<&'a [T], u32>; LONGEST],
}

impl<'a, T: Eq + Hash> Grams<'a, T> {
    pub(super) fn new(sentence: &'a [T]) -> Self {
        let counts = std::array::from_fn(|order| {
            let mut counts = HashMap::new();
            for gram in sentence.windows(order + 1) {
                *counts.entry(gram).or_insert(0) += 1;
            }
            counts
        });
        Self { length: sentence.len(), counts }
    }

    /// Matches of n-grams with one more token than `order`.
    fn matches(&self, reference: &Self, order: usize) -> u32 {
        let of_reference = &reference.counts[order];
        let matched =
            |(gram, count): (&&[T], &u32)| of_reference.get(gram).map_or(0, |most| *count.min(most));
        self.counts[order].iter().map(matched).sum()
    }

    pub(super) fn bleu(&self, reference: &Self, form: BleuForm) -> [f64; ORDERS] {
        let matches: [u32; LONGEST] = std::array::from_fn(|order| self.matches(reference, order));
        if matches[0] == 0 {
            return [0.0; ORDERS];
        }
        let length = self.length as f64;
        let brevity =
            if self.length > reference.length { 1.0 } else { (1.0 - reference.length as f64 / length).exp() };
        let (mut empty, mut halvings) = ([false; LONGEST], 1.0);
        let precisions: [f64; LONGEST] = std::array::from_fn(|order| {
            let possible = self.length.saturating_sub(order).max(1) as f64;
            empty[order] = matches[order] == 0;
            if !empty[order] || order == ORDERS {
                return f64::from(matches[order]) / possible;
            }
            match form {
                BleuForm::Repository2017 => 1.0 / (order as f64 + 5.0 / length.ln()),
                _ if self.length == 1 => 0.0,
                _ => {
                    halvings *= 2.0;
                    length.ln() / (5.0 * halvings * possible)
                }
            }
        });
        let (mut before, mut log_product) = (precisions[0] + 1.0, 0.0);
        std::array::from_fn(|order| {
            let mean = |next: f64| (before + precisions[order] + next) / 3.0;
            let (smoothed, last) = (mean(precisions[order + 1]), mean(precisions[ORDERS]));
            let last = if form == BleuForm::FourOrders { smoothed } else { last };
            let count = (order + 1) as f64;
            let bleu = brevity * ((log_product + last.ln()) / count).exp();
            before = smoothed;
            log_product += smoothed.ln();
            // The library of 2017 divides by ln 1 here; the program counts its failure as 0.
            let fails = form == BleuForm::Repository2017 && self.length == 1;
            if fails && empty[..=order].contains(&true) { 0.0 } else { bleu }
        })
    }
}

#[cfg(test)]
mod tests;
