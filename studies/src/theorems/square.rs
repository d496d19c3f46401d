//! Theorem 6 (Ganea et al., ICML 2019): squaring the elements of almost any N by N matrix of rank N − 1 makes its rank N.

use plotters::prelude::SeriesLabelPosition;
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use serde::Serialize;

use super::evidence::Evidence;
use super::matrix::Matrix;
use highrank::analysis::Spectrum;
use highrank_benches::timing::median;
use program::chart::{Chart, Scale};
use program::failure::Failure;

/// Rows and columns of the matrices, and how many of each are drawn. A matrix of 2 rows has rank 1, and so has its square.
const SIZES: [usize; 7] = [2, 3, 4, 8, 16, 32, 64];
const DRAWS: usize = 40;

/// Ranks of random matrices whose elements are squared.
#[derive(Debug, Serialize)]
pub struct SquaredRanks {
    sizes: Vec<OfSize>,
    /// What the square cannot help: `(what, N, rank, rank of the square)`.
    exceptions: Vec<(&'static str, usize, usize, usize)>,
}

#[derive(Debug, Serialize)]
struct OfSize {
    size: usize,
    draws: usize,
    /// Matrices that were drawn with rank N − 1.
    deficient: usize,
    /// Matrices whose square has rank N.
    full: usize,
    /// Threshold of the rank over the largest singular value.
    threshold: f64,
    /// Medians over the draws of the smallest singular value over the largest, before and after.
    before: f64,
    after: f64,
}

impl SquaredRanks {
    /// Of random matrices of several sizes.
    ///
    /// # Errors
    /// If a decomposition does not converge.
    pub fn measure(seed: u64) -> Result<Self, Failure> {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let mut sizes = vec![];
        for size in SIZES {
            let (mut deficient, mut full, mut threshold) = (0, 0, 0.0);
            let (mut before, mut after) = (vec![], vec![]);
            for _ in 0..DRAWS {
                let matrix = Matrix::of_rank(size, size, size - 1, &mut rng);
                let (plain, squared) = (matrix.spectrum()?, matrix.map(|x| x * x).spectrum()?);
                deficient += usize::from(plain.rank(f64::EPSILON) == size - 1);
                full += usize::from(squared.rank(f64::EPSILON) == size);
                before.push(smallest_over_largest(&plain));
                after.push(smallest_over_largest(&squared));
                threshold = squared.threshold(f64::EPSILON) / squared.singular_values[0];
            }
            let [before, after] = [before, after].map(|ratios| median(ratios).unwrap_or(f64::NAN));
            sizes.push(OfSize { size, draws: DRAWS, deficient, full, threshold, before, after });
        }
        let mut exceptions = vec![];
        for (what, sign) in [("two equal rows", 1.0), ("two opposite rows", -1.0)] {
            let size = 16;
            let mut matrix = Matrix::normal(size, size, &mut rng);
            let row: Vec<f64> = matrix.row(0).iter().map(|x| sign * x).collect();
            matrix.row_mut(1).copy_from_slice(&row);
            exceptions.push((what, size, matrix.rank()?, matrix.map(|x| x * x).rank()?));
        }
        Ok(Self { sizes, exceptions })
    }
}

fn smallest_over_largest(spectrum: &Spectrum) -> f64 {
    let values = &spectrum.singular_values;
    values[values.len() - 1] / values[0]
}

impl Evidence for SquaredRanks {
    fn holds(&self) -> bool {
        self.sizes.iter().all(|of| {
            // By theorem 5 the square of rank 1 has rank 1.
            let full = if of.size < 3 { 0 } else { of.draws };
            of.deficient == of.draws && of.full == full
        })
    }

    fn text(&self) -> String {
        let mut text = String::from(
            "Theorem 6: the elements of N by N matrices of rank N - 1 squared; smallest singular value over the largest\n",
        );
        let titles = ["draws", "rank N - 1", "then rank N", "before", "after", "threshold"];
        let [draws, deficient, full, before, after, threshold] = titles;
        text +=
            &format!("{:>4}{draws:>7}{deficient:>12}{full:>13}{before:>10}{after:>10}{threshold:>11}", "N");
        for of in &self.sizes {
            let OfSize { size, draws, deficient, full, threshold, before, after } = of;
            text += &format!(
                "\n{size:>4}{draws:>7}{deficient:>12}{full:>13}{before:>10.1e}{after:>10.1e}{threshold:>11.1e}"
            );
        }
        for (what, size, rank, squared) in &self.exceptions {
            text += &format!("\nnot for {what}: N {size}, rank {rank}, squared {squared}");
        }
        text
    }

    fn chart(&self) -> Chart {
        let points =
            |of: fn(&OfSize) -> f64| self.sizes.iter().map(|size| (size.size as f64, of(size))).collect();
        Chart {
            caption: "Theorem 6: smallest singular value of a matrix of rank N - 1, and of its square".into(),
            x: ("N", Scale::Logarithmic),
            y: ("smallest over largest", Scale::Logarithmic),
            lines: vec![
                ("elements squared".into(), points(|of| of.after)),
                ("as drawn".into(), points(|of| of.before)),
                ("threshold of the rank".into(), points(|of| of.threshold)),
            ],
            labels: Some(SeriesLabelPosition::MiddleRight),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn squares_have_full_rank_from_three_rows_on() {
        let ranks = SquaredRanks::measure(4).unwrap();
        assert!(ranks.holds(), "{}", ranks.text());
        assert_eq!((ranks.sizes[0].size, ranks.sizes[0].full), (2, 0));
        // Almost any matrix is not any matrix: opposite rows even become equal.
        for (what, size, rank, squared) in &ranks.exceptions {
            assert_eq!((*rank, *squared), (size - 1, size - 1), "{what}");
        }
    }
}
