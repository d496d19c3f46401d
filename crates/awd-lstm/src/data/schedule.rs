//! The lengths of an epoch's training steps.

use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Normal};
use rand_pcg::Pcg64Mcg;
use runs::mix_seed;

/// One training step: which rows it reads and how its learning rate is scaled.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TrainStep {
    /// First row.
    pub start: usize,
    /// Rows of this step.
    pub length: usize,
    /// Factor of the learning rate: the drawn length over `bptt`.
    pub lr_scale: f64,
}

/// Probability that a step keeps the full base length.
const FULL_LENGTH: f64 = 0.95;
/// Standard deviation of a step's length, in rows.
const DEVIATION: f64 = 5.0;
/// The shortest length drawn, in rows.
const SHORTEST: usize = 5;

/// All training steps of epoch `epoch` over columns of `rows` tokens, as in the AWD-LSTM program (Merity et al., arXiv 1708.02182,
/// section 4.1).
///
/// Each length is drawn as `max(5, int(Normal(base, 5)))`, at most `bptt + max_delta`, where `base` is `bptt`
/// with probability 0.95 and `bptt / 2` otherwise. The learning rate is proportional to the drawn length, so a
/// short step does not weigh more than a long one. The end of the text cuts the last step short. A single row
/// left over is no step: it has no time difference to regularise.
///
/// The steps depend on the seed and the epoch alone, so they can be made again at any time.
///
/// # Panics
/// If `bptt` is 0.
pub fn schedule(rows: usize, bptt: usize, max_delta: usize, seed: u64, epoch: usize) -> Vec<TrainStep> {
    assert!(bptt > 0, "bptt must be at least 1");
    let mut rng = Pcg64Mcg::seed_from_u64(mix_seed(seed, epoch as u64, u64::MAX));
    let mut steps = Vec::new();
    let mut start = 0;
    while start + 2 < rows {
        let base = if rng.random_bool(FULL_LENGTH) { bptt as f64 } else { bptt as f64 / 2.0 };
        let normal = Normal::new(base, DEVIATION).expect("the deviation is finite");
        let drawn = (normal.sample(&mut rng) as usize).max(SHORTEST).min(bptt.saturating_add(max_delta));
        let length = drawn.min(rows - 1 - start);
        steps.push(TrainStep { start, length, lr_scale: drawn as f64 / bptt as f64 });
        start += length;
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_cover_the_rows_without_gaps() {
        for rows in [3, 4, 7, 100, 2501] {
            let steps = schedule(rows, 35, 40, 28, 1);
            let mut next = 0;
            for step in steps {
                assert_eq!(step.start, next);
                assert!(step.length > 0);
                next += step.length;
            }
            // All targets but perhaps that of a single last row.
            assert!(next == rows - 1 || next == rows - 2, "{next} of {rows}");
        }
        assert!(schedule(2, 35, 40, 28, 1).is_empty());
    }

    #[test]
    fn depends_on_seed_and_epoch_alone() {
        let one = schedule(5000, 35, 40, 28, 3);
        assert_eq!(one, schedule(5000, 35, 40, 28, 3));
        assert_ne!(one, schedule(5000, 35, 40, 28, 4));
        assert_ne!(one, schedule(5000, 35, 40, 29, 3));
    }

    #[test]
    fn lengths_follow_the_published_law() {
        let steps = schedule(2_000_000, 70, 40, 1, 1);
        let steps = &steps[..steps.len() - 1];
        assert!(steps.iter().all(|step| (5..=110).contains(&step.length)));
        for step in steps {
            assert_eq!(step.lr_scale, step.length as f64 / 70.0);
        }
        // Half-length steps are 5 % of all, and nearly all of them lie below 52.5.
        let short = steps.iter().filter(|step| step.length < 52).count() as f64 / steps.len() as f64;
        assert!((short - 0.05).abs() < 0.01, "{short}");
        let mean = steps.iter().map(|step| step.length as f64).sum::<f64>() / steps.len() as f64;
        // 0.95 · 70 + 0.05 · 35, less the half that truncation takes away.
        assert!((mean - 67.75).abs() < 0.2, "{mean}");
    }

    #[test]
    fn the_cap_and_the_floor_hold() {
        let capped = schedule(100_000, 35, 0, 5, 1);
        assert!(capped.iter().all(|step| step.length <= 35));
        let tiny = schedule(10_000, 2, 40, 5, 1);
        let steps = &tiny[..tiny.len() - 1];
        assert!(steps.iter().all(|step| step.length >= 5));
    }

    #[test]
    fn a_largest_delta_is_no_limit() {
        assert_eq!(schedule(1000, 35, usize::MAX, 5, 1), schedule(1000, 35, 1000, 5, 1));
    }

    #[test]
    fn mixed_seeds_do_not_collide() {
        let mut seen = std::collections::HashSet::new();
        for seed in 0..10 {
            for epoch in 0..20 {
                for step in 0..50 {
                    assert!(seen.insert(mix_seed(seed, epoch, step)));
                }
            }
        }
    }
}
