//! Discrete distributions over few of many outcomes.

use rand::{Rng, RngExt};

/// Outcomes with their probabilities, which are positive, each once.
#[derive(Debug, Clone)]
pub(super) struct Law {
    pub(super) parts: Vec<(usize, f64)>,
}

impl Law {
    /// Zipf's law in Mandelbrot's form over some distinct outcomes, most probable first.
    pub(super) fn zipf(outcomes: impl IntoIterator<Item = usize>) -> Self {
        let weights = (1..).map(|rank: u32| 1.0 / (f64::from(rank) + 2.7));
        let mut parts: Vec<(usize, f64)> = outcomes.into_iter().zip(weights).collect();
        let total: f64 = parts.iter().map(|(_, weight)| weight).sum();
        parts.iter_mut().for_each(|(_, weight)| *weight /= total);
        Self { parts }
    }

    /// `(1 − share) · self + share · other`, most probable first; of equally probable outcomes the one with the lower number.
    pub(super) fn mixed(&self, other: &Self, share: f64) -> Self {
        let scaled = |law: &Self, by: f64| -> Vec<(usize, f64)> {
            law.parts.iter().map(|&(outcome, part)| (outcome, by * part)).collect()
        };
        let mut all = scaled(self, 1.0 - share);
        all.extend(scaled(other, share));
        all.sort_by_key(|&(outcome, _)| outcome);
        all.dedup_by(|next, kept| {
            let same = next.0 == kept.0;
            kept.1 += if same { next.1 } else { 0.0 };
            same
        });
        all.retain(|&(_, part)| part > 0.0);
        all.sort_by(|one, next| next.1.total_cmp(&one.1));
        Self { parts: all }
    }

    /// One outcome.
    pub(super) fn draw<R: Rng + ?Sized>(&self, rng: &mut R) -> usize {
        let mut left = rng.random::<f64>();
        for &(outcome, part) in &self.parts {
            left -= part;
            if left < 0.0 {
                return outcome;
            }
        }
        // The sum may be less than 1 by rounding.
        self.parts.last().map_or(0, |(outcome, _)| *outcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_pcg::Pcg64Mcg;

    /// The probability of an outcome.
    fn prob(law: &Law, outcome: usize) -> f64 {
        law.parts.iter().find(|(other, _)| *other == outcome).map_or(0.0, |(_, part)| *part)
    }

    #[test]
    fn a_mixture_has_every_outcome_once() {
        let (one, other) = (Law::zipf([7, 3, 5]), Law::zipf([2, 7]));
        let mixed = one.mixed(&other, 0.25);
        assert_eq!(mixed.parts.len(), 4);
        for outcome in 0..9 {
            let expected = 0.75 * prob(&one, outcome) + 0.25 * prob(&other, outcome);
            assert!((prob(&mixed, outcome) - expected).abs() < 1e-15);
        }
        assert!(mixed.parts.is_sorted_by(|one, next| one.1 >= next.1));
        assert!((mixed.parts.iter().map(|part| part.1).sum::<f64>() - 1.0).abs() < 1e-15);
        assert_eq!(one.mixed(&other, 0.0).parts, one.parts);
        let even = Law::zipf([4]).mixed(&Law::zipf([1]), 0.5);
        assert_eq!(even.parts, [(1, 0.5), (4, 0.5)]);
    }

    #[test]
    fn draws_follow_the_probabilities() {
        let law = Law::zipf([9, 0, 4]);
        let mut rng = Pcg64Mcg::seed_from_u64(2);
        let mut counts = [0u32; 10];
        (0..40_000).for_each(|_| counts[law.draw(&mut rng)] += 1);
        for (outcome, count) in counts.into_iter().enumerate() {
            let prob = prob(&law, outcome);
            // Five standard deviations of a binomial count.
            let slack = 5.0 * (40_000.0 * prob * (1.0 - prob)).sqrt();
            assert!((f64::from(count) - 40_000.0 * prob).abs() <= slack, "{outcome}: {count}");
        }
    }
}
