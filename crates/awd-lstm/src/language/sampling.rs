//! Discrete distributions that can be drawn from.

use rand::{Rng, RngExt};

/// Probabilities of all words, with their running sums for drawing.
#[derive(Debug, Clone)]
pub(super) struct Table {
    pub(super) probs: Vec<f64>,
    sums: Vec<f64>,
}

impl Table {
    /// The distribution proportional to `weights`, of which at least one is positive.
    pub(super) fn new(weights: Vec<f64>) -> Self {
        let total: f64 = weights.iter().sum();
        let probs: Vec<f64> = weights.into_iter().map(|weight| weight / total).collect();
        let sums = probs
            .iter()
            .scan(0.0, |sum, prob| {
                *sum += prob;
                Some(*sum)
            })
            .collect();
        Self { probs, sums }
    }

    /// A word drawn by inverting the running sum.
    pub(super) fn draw<R: Rng + ?Sized>(&self, rng: &mut R) -> usize {
        // The last sum may differ from 1 by rounding; scaling by it keeps the draw inside the table.
        let point = rng.random::<f64>() * self.sums[self.sums.len() - 1];
        self.sums.partition_point(|&sum| sum <= point).min(self.sums.len() - 1)
    }
}

/// Zipf's weights `1 / (rank + offset)` for `count` ranks from 1.
pub(super) fn zipf(count: usize, offset: f64) -> impl Iterator<Item = f64> {
    (1..=count).map(move |rank| 1.0 / (rank as f64 + offset))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_pcg::Pcg64Mcg;

    #[test]
    fn draws_follow_the_probabilities_and_never_a_zero() {
        let table = Table::new(vec![0.0, 3.0, 0.0, 1.0, 0.0]);
        let mut rng = Pcg64Mcg::seed_from_u64(7);
        let mut counts = [0usize; 5];
        for _ in 0..40_000 {
            counts[table.draw(&mut rng)] += 1;
        }
        assert_eq!((counts[0], counts[2], counts[4]), (0, 0, 0));
        // Five standard deviations of a binomial count.
        assert!((counts[1] as f64 - 30_000.0).abs() < 5.0 * (40_000.0 * 0.75 * 0.25_f64).sqrt());
    }
}
