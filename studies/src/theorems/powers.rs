//! Theorem 5 (Ganea et al., ICML 2019): an elementwise power p of a matrix of rank d has rank `C(d + p − 1, p)` at most.

use plotters::prelude::SeriesLabelPosition;
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use serde::Serialize;

use super::evidence::Evidence;
use super::matrix::Matrix;
use program::chart::{Chart, Scale};
use program::failure::Failure;

/// Rows and columns of the matrices.
const SIZE: usize = 120;
/// Ranks of the matrices.
const RANKS: [usize; 5] = [1, 2, 3, 4, 5];
/// The powers.
const POWERS: [usize; 5] = [1, 2, 3, 4, 5];

/// Ranks of elementwise powers of random square matrices.
#[derive(Debug, Serialize)]
pub struct PowerRanks {
    size: usize,
    powers: Vec<Power>,
}

#[derive(Debug, Serialize)]
struct Power {
    /// Rank of the matrix.
    d: usize,
    power: usize,
    /// Rank of its power.
    rank: usize,
    /// `C(d + p − 1, p)`, the number of monomials of degree p in d variables, or the size of the matrix.
    bound: usize,
}

impl PowerRanks {
    /// Of one random matrix a rank.
    ///
    /// # Errors
    /// If a decomposition does not converge.
    pub fn measure(seed: u64) -> Result<Self, Failure> {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let mut powers = vec![];
        for d in RANKS {
            let matrix = Matrix::of_rank(SIZE, SIZE, d, &mut rng);
            for power in POWERS {
                let rank = matrix.map(|x| x.powi(power as i32)).rank()?;
                let bound = binomial(d + power - 1, power).min(SIZE);
                powers.push(Power { d, power, rank, bound });
            }
        }
        Ok(Self { size: SIZE, powers })
    }
}

/// The number of subsets of k of n.
fn binomial(n: usize, k: usize) -> usize {
    // Every partial product is a binomial coefficient itself.
    (1..=k).fold(1, |product, i| product * (n - k + i) / i)
}

impl Evidence for PowerRanks {
    fn holds(&self) -> bool {
        self.powers.iter().all(|power| power.rank <= power.bound)
    }

    fn text(&self) -> String {
        let mut text = format!(
            "Theorem 5: rank of the elementwise power p of a matrix of rank d, {0} by {0} (bound)\n{1:>4}",
            self.size, "d"
        );
        for power in POWERS {
            text += &format!("{:>12}", format!("p = {power}"));
        }
        for d in RANKS {
            text += &format!("\n{d:>4}");
            for Power { rank, bound, .. } in self.powers.iter().filter(|power| power.d == d) {
                text += &format!("{:>12}", format!("{rank} ({bound})"));
            }
        }
        text
    }

    fn chart(&self) -> Chart {
        let mut lines = vec![];
        for d in RANKS {
            let line = |of: fn(&Power) -> usize| -> Vec<(f64, f64)> {
                let of_d = self.powers.iter().filter(|power| power.d == d);
                of_d.map(|power| (power.power as f64, of(power) as f64)).collect()
            };
            let (ranks, bounds) = (line(|power| power.rank), line(|power| power.bound));
            if ranks == bounds {
                lines.push((format!("d {d}: rank and bound"), ranks));
            } else {
                lines.extend([(format!("d {d}: rank"), ranks), (format!("d {d}: bound"), bounds)]);
            }
        }
        Chart {
            caption: format!("Theorem 5: rank of elementwise powers, {0} by {0}", self.size),
            x: ("power p", Scale::Linear),
            y: ("rank", Scale::Logarithmic),
            lines,
            labels: Some(SeriesLabelPosition::UpperLeft),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_reach_their_bound_and_no_more() {
        for seed in [1, 2] {
            let ranks = PowerRanks::measure(seed).unwrap();
            assert!(ranks.holds(), "{}", ranks.text());
            assert!(ranks.powers.iter().all(|power| power.rank == power.bound), "{}", ranks.text());
        }
        assert_eq!([binomial(5, 0), binomial(5, 2), binomial(9, 5), binomial(4, 4)], [1, 10, 126, 1]);
    }
}
