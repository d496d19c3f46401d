//! True distributions, drawn from a Dirichlet law block by block.

use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Gamma};
use rand_pcg::Pcg64Mcg;

/// Probabilities that may be kept between epochs, in bytes: those of 100,000 contexts over 10,000 words, the largest setting of the
/// paper, where drawing would take longer than learning. Beyond that they are drawn anew each time, from the same seed.
const KEPT_BYTES: u64 = 1 << 32;

/// Contexts' distributions over words, each drawn from Dir(alpha, …, alpha).
pub struct Truth {
    gamma: Gamma<f64>,
    alpha: f64,
    words: usize,
    batch: usize,
    contexts: usize,
    seed: u64,
    /// Probabilities of every block in f32, if they fit.
    kept: Option<Vec<Vec<f32>>>,
}

impl Truth {
    /// For `contexts` contexts in blocks of `batch`.
    pub fn new(alpha: f64, words: usize, contexts: usize, batch: usize, seed: u64) -> Self {
        let gamma = Gamma::new(alpha + 1.0, 1.0).expect("the concentration was checked");
        let mut truth = Self { gamma, alpha, words, batch, contexts, seed, kept: None };
        let bytes = (contexts as u64).saturating_mul(words as u64).saturating_mul(4);
        if bytes <= KEPT_BYTES {
            truth.kept = Some((0..truth.blocks()).map(|block| truth.draw(block)).collect());
        }
        truth
    }

    /// Number of blocks.
    pub fn blocks(&self) -> usize {
        self.contexts.div_ceil(self.batch)
    }

    /// Contexts of a block; the last may have fewer than the others.
    pub fn rows(&self, block: usize) -> usize {
        self.batch.min(self.contexts - block * self.batch)
    }

    /// Log-probabilities of a block in nats, row after row.
    ///
    /// Drawn in log space: with a small concentration most probabilities underflow. A variable of Gamma(alpha) is one
    /// of Gamma(alpha + 1) times `U^(1/alpha)`.
    pub fn log_probs(&self, block: usize) -> Vec<f64> {
        // Streams of neighbouring seeds are unrelated: the generator hashes them.
        let mut rng = Pcg64Mcg::seed_from_u64(self.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ block as u64);
        let mut values = Vec::with_capacity(self.rows(block) * self.words);
        for _ in 0..self.rows(block) {
            let start = values.len();
            values.extend((0..self.words).map(|_| {
                let uniform: f64 = 1.0 - rng.random::<f64>();
                self.gamma.sample(&mut rng).ln() + uniform.ln() / self.alpha
            }));
            let row = &mut values[start..];
            let max = row.iter().fold(f64::NEG_INFINITY, |max: f64, x| max.max(*x));
            let log_sum = max + row.iter().map(|x| (x - max).exp()).sum::<f64>().ln();
            row.iter_mut().for_each(|x| *x -= log_sum);
        }
        values
    }

    /// Probabilities of a block, row after row.
    pub fn probabilities(&self, block: usize) -> Vec<f32> {
        match &self.kept {
            Some(kept) => kept[block].clone(),
            None => self.draw(block),
        }
    }

    fn draw(&self, block: usize) -> Vec<f32> {
        self.log_probs(block).into_iter().map(|log_prob| log_prob.exp() as f32).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_those_of_the_dirichlet_law() {
        let words = 8;
        for alpha in [0.01, 0.1, 1.0, 5.0] {
            let truth = Truth::new(alpha, words, 20_000, 64, 7);
            let (mut mean, mut square, mut count) = (0.0, 0.0, 0.0);
            for block in 0..truth.blocks() {
                for row in truth.log_probs(block).chunks(words) {
                    let sum: f64 = row.iter().map(|x| x.exp()).sum();
                    assert!((sum - 1.0).abs() < 1e-12, "alpha {alpha}: {sum}");
                    mean += row[2].exp();
                    square += row[2].exp().powi(2);
                    count += 1.0;
                }
            }
            assert_eq!(count, 20_000.0);
            // E p = 1/M, Var p = (1/M)(1 − 1/M) / (M alpha + 1).
            let share = 1.0 / words as f64;
            let variance = share * (1.0 - share) / (words as f64 * alpha + 1.0);
            let (mean, square) = (mean / count, square / count);
            assert!((mean - share).abs() < 5.0 * (variance / count).sqrt(), "alpha {alpha}: mean {mean}");
            let got = square - mean * mean;
            assert!((got / variance - 1.0).abs() < 0.06, "alpha {alpha}: variance {got} against {variance}");
        }
    }

    #[test]
    fn blocks_cover_all_contexts_and_do_not_change() {
        let truth = Truth::new(0.1, 5, 23, 10, 3);
        assert_eq!((0..truth.blocks()).map(|block| truth.rows(block)).collect::<Vec<_>>(), [10, 10, 3]);
        let again = Truth { kept: None, ..Truth::new(0.1, 5, 23, 10, 3) };
        for block in 0..3 {
            assert_eq!(truth.probabilities(block), again.probabilities(block));
            assert_eq!(truth.log_probs(block).len(), truth.rows(block) * 5);
        }
        assert_ne!(truth.log_probs(0)[..5], truth.log_probs(1)[..5]);
    }
}
