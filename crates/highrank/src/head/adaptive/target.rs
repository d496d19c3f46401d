//! The distribution that a token is scored against, without a number for every word.

use std::ops::Range;

use burn::tensor::{DType, Device, Int, Tensor, TensorData};

use crate::loss::TargetDistribution;

/// The words of a vocabulary, or of a part of it.
pub(super) struct Words<'a> {
    unmasked: &'a [bool],
    /// Number of those that are not masked.
    count: usize,
}

impl<'a> Words<'a> {
    /// - unmasked: of each word
    pub(super) fn new(unmasked: &'a [bool]) -> Self {
        Self { unmasked, count: unmasked.iter().filter(|unmasked| **unmasked).count() }
    }

    /// Those that are not masked and that a target does not list.
    fn unlisted(&self, listed: &[(usize, f64)]) -> usize {
        self.count - listed.iter().filter(|(word, _)| self.unmasked[*word]).count()
    }
}

/// A distribution over words: some are listed, and all other unmasked ones have the same probability.
pub(super) struct Target {
    /// Different words.
    listed: Vec<(usize, f64)>,
    level: f64,
}

impl Target {
    /// Of listed words, what they leave of 1 shared by the other unmasked words, smoothed: `(1 − ε) q + ε/V'` on the `V'` unmasked
    /// words.
    ///
    /// - rounding: what the probabilities' sum may be off by; they leave nothing if it is no more than that
    pub(super) fn new(listed: Vec<(usize, f64)>, rounding: f64, smoothing: f64, all: &Words<'_>) -> Self {
        let of_listed = listed.iter().map(|(_, probability)| probability).sum::<f64>();
        let others = all.unlisted(&listed);
        // What is left by rounding belongs to the listed words: the head cluster would share it among its own.
        let (left, whole) = match (1.0 - of_listed).min(1.0) {
            left if left > rounding => (left, 1.0),
            left if left > 0.0 && others > 0 => (0.0, of_listed),
            _ => (0.0, 1.0),
        };
        let share = if others > 0 { left / others as f64 } else { 0.0 };
        let (keep, smooth) = (1.0 - smoothing, smoothing / all.count as f64);
        let smoothed = |(word, probability): (usize, f64)| {
            (word, keep * probability / whole + if all.unmasked[word] { smooth } else { 0.0 })
        };
        let listed = listed.into_iter().map(smoothed).collect();
        Self { listed, level: keep * share + smooth }
    }

    /// Of a token that does not count.
    pub(super) fn nothing() -> Self {
        Self { listed: vec![], level: 0.0 }
    }

    /// What it says of a range of words, numbered from its start.
    pub(super) fn words(&self, range: &Range<usize>) -> Self {
        let inside = self.listed.iter().filter(|(word, _)| range.contains(word));
        let listed = inside.map(|(word, probability)| (word - range.start, *probability)).collect();
        Self { listed, level: self.level }
    }

    /// The sum of all probabilities.
    pub(super) fn mass(&self, words: &Words<'_>) -> f64 {
        let of_listed = self.listed.iter().map(|(_, probability)| probability).sum::<f64>();
        of_listed + self.level * words.unlisted(&self.listed) as f64
    }

    /// With all probabilities divided by a number.
    pub(super) fn over(self, mass: f64) -> Self {
        let listed = self.listed.into_iter().map(|(word, probability)| (word, probability / mass));
        Self { listed: listed.collect(), level: self.level / mass }
    }

    /// Lists another word.
    pub(super) fn list(&mut self, word: usize, probability: f64) {
        self.listed.push((word, probability));
    }

    /// One a token, as a teacher's rows. All rows list as many words, the shorter ones the first of those that they do not list
    /// otherwise.
    pub(super) fn teacher(
        targets: &[Self],
        words: &Words<'_>,
        (device, dtype): (&Device, DType),
    ) -> TargetDistribution {
        let width = targets.iter().map(|target| target.listed.len()).max().unwrap_or(0).max(1);
        let (mut ids, mut probs) = (vec![], vec![]);
        for target in targets {
            let is_listed = |word: &usize| target.listed.iter().any(|(listed, _)| listed == word);
            let others = (0..words.unmasked.len()).filter(|word| !is_listed(word));
            let others = others.map(|word| (word, if words.unmasked[word] { target.level } else { 0.0 }));
            for (word, probability) in target.listed.iter().copied().chain(others).take(width) {
                ids.push(word as i64);
                probs.push(probability);
            }
        }
        let shape = [targets.len(), width];
        TargetDistribution::Teacher {
            ids: Tensor::<2, Int>::from_data(TensorData::new(ids, shape), device).into(),
            probs: Tensor::<2>::from_data(TensorData::new(probs, shape), (device, dtype)).into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounded_probabilities_leave_nothing() {
        let all = Words::new(&[true; 9]);
        let level = |probabilities: [f64; 3], rounding: f64| {
            let listed = probabilities.into_iter().enumerate().collect();
            Target::new(listed, rounding, 0.0, &all).level
        };
        let rounded = [0.7_f32, 0.2, 0.1].map(f64::from);
        assert!(rounded.iter().sum::<f64>() < 1.0);
        assert_eq!(level(rounded, f32::EPSILON.into()), 0.0);
        assert_eq!(level([0.5, 0.3, 0.4], f64::EPSILON), 0.0);
        assert_eq!(level([0.25, 0.25, 0.125], f32::EPSILON.into()), 0.375 / 6.0);
        assert!(level([0.7, 0.2, 0.1 - 1e-8], f64::EPSILON) > 0.0);
        // The listed words have it.
        let listed = [0.5, 0.375, 0.117_187_5].into_iter().enumerate().collect();
        let mass = Target::new(listed, 1.0 / 128.0, 0.0, &all).mass(&all);
        assert!((mass - 1.0).abs() < 1e-15, "{mass}");
        // However many words are listed.
        assert_eq!(level([0.5, 0.375, 0.109_375], 1.0 / 128.0), 0.015_625 / 6.0);
    }
}
