//! Theorem 1 (Ganea et al., ICML 2019): no softmax comes nearer to a matrix of log-probabilities than its small singular values.

use plotters::prelude::SeriesLabelPosition;
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use serde::Serialize;

use super::evidence::Evidence;
use super::matrix::{Matrix, dot};
use super::minimise::minimise;
use program::chart::{Chart, Scale};
use program::failure::Failure;

/// How many contexts, words and dimensions are tried, and how long each fit takes.
pub struct Sizes {
    /// N, the number of contexts.
    pub contexts: usize,
    /// M, the number of words.
    pub words: usize,
    /// Values of d.
    pub dims: &'static [usize],
    /// Steps of a fit.
    pub steps: usize,
    /// Fits from different starting points; the best counts.
    pub starts: usize,
}

impl Default for Sizes {
    fn default() -> Self {
        Self { contexts: 40, words: 30, dims: &[1, 2, 4, 8, 12, 16, 20, 24, 26, 28], steps: 1500, starts: 2 }
    }
}

/// Standard deviation of the true logits.
const SPREAD: f64 = 0.3;

/// Errors of fitted softmaxes, and their floor.
///
/// `A` holds the true log-probabilities `[N, M]`, `Q` those of a softmax without bias. `Q` has rank `d + 1` at most, so by Eckart,
/// Young and Mirsky
///
/// ```text
/// ‖A − Q‖²_F ≥ Σ_{k > d + 1} σ_k(A)²        and, the same,        ‖A − Q‖_F ≥ √(Σ_{k > d + 1} σ_k(A)²)
/// ```
///
/// With a root on one side and a square on the other it does not hold. The normaliser is the same for every word, so with the mean
/// of every row taken away `Q` has rank d, and there is a nearer floor: `Σ_{k > d} σ_k(A − row means)²`.
#[derive(Debug, Serialize)]
pub struct ErrorFloor {
    contexts: usize,
    words: usize,
    fits: Vec<Fit>,
}

#[derive(Debug, Serialize)]
struct Fit {
    d: usize,
    /// Sum of the squares of all singular values of A beyond the first d + 1.
    floor: f64,
    /// The same of A without its row means, beyond the first d.
    nearer_floor: f64,
    /// `‖A − Q‖²_F` of a softmax that was fitted to it.
    squared_error: f64,
    /// The same of a softmax that was fitted to the cross-entropy.
    squared_error_of_cross_entropy: f64,
    /// Rank of the log-probabilities of the first.
    rank: usize,
    /// Whether `‖A − Q‖_F ≥ Σ σ²` would hold.
    norm_above_squares: bool,
    /// Whether `‖A − Q‖²_F ≥ √(Σ σ²)` would hold.
    square_above_root: bool,
}

impl ErrorFloor {
    /// Of a random truth.
    ///
    /// # Errors
    /// If a decomposition does not converge.
    pub fn measure(sizes: &Sizes, seed: u64) -> Result<Self, Failure> {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let truth = Matrix::normal(sizes.contexts, sizes.words, &mut rng).map(|x| SPREAD * x).log_softmax();
        let beyond =
            |values: &[f64], first: usize| values.iter().skip(first).map(|value| value * value).sum();
        let values = truth.spectrum()?.singular_values;
        let centred = truth.less(|row| row.iter().sum::<f64>() / row.len() as f64);
        let centred_values = centred.spectrum()?.singular_values;
        let mut fits = vec![];
        for &d in sizes.dims {
            let floor: f64 = beyond(&values, d + 1);
            let (mut squared, mut entropic) = (f64::INFINITY, f64::INFINITY);
            let mut rank = 0;
            for _ in 0..sizes.starts {
                let near = fit(&truth, d, sizes.steps, Goal::SquaredError, &mut rng)?;
                let error = near.squared_distance(&truth);
                if error < squared {
                    (squared, rank) = (error, near.rank()?);
                }
                let likely = fit(&truth, d, sizes.steps, Goal::CrossEntropy, &mut rng)?;
                entropic = likely.squared_distance(&truth).min(entropic);
            }
            fits.push(Fit {
                d,
                floor,
                nearer_floor: beyond(&centred_values, d),
                squared_error: squared,
                squared_error_of_cross_entropy: entropic,
                rank,
                norm_above_squares: squared.sqrt() >= floor,
                square_above_root: squared >= floor.sqrt(),
            });
        }
        Ok(Self { contexts: sizes.contexts, words: sizes.words, fits })
    }
}

#[derive(Clone, Copy)]
enum Goal {
    SquaredError,
    CrossEntropy,
}

/// Log-probabilities `[N, M]` of a softmax over d dimensions, without bias, fitted to the true ones from a random start.
fn fit(truth: &Matrix, d: usize, steps: usize, goal: Goal, rng: &mut Pcg64Mcg) -> Result<Matrix, Failure> {
    let (contexts, words) = (truth.rows, truth.columns);
    let scale = (SPREAD / (d as f64).sqrt()).sqrt();
    // Contexts h, then word vectors w.
    let start = Matrix::normal(contexts + words, d, rng).map(|x| scale * x);
    let log_probs = |x: &[f64]| {
        let (h, w) = x.split_at(contexts * d);
        let (h, w) = (Matrix::new(contexts, d, h.to_vec()), Matrix::new(words, d, w.to_vec()));
        h.times_transposed(&w).log_softmax()
    };
    let (x, _) = minimise(start.values, steps, |x| {
        let q = log_probs(x);
        let (mut value, (h, w)) = (0.0, x.split_at(contexts * d));
        let mut gradient = vec![0.0; x.len()];
        let (d_h, d_w) = gradient.split_at_mut(contexts * d);
        for c in 0..contexts {
            let (q, a) = (q.row(c), truth.row(c));
            // Gradient of the log-probabilities, then of the logits.
            let d_q: Vec<f64> = match goal {
                Goal::SquaredError => q.iter().zip(a).map(|(q, a)| 2.0 * (q - a)).collect(),
                Goal::CrossEntropy => a.iter().map(|a| -a.exp()).collect(),
            };
            value += match goal {
                Goal::SquaredError => q.iter().zip(a).map(|(q, a)| (q - a).powi(2)).sum::<f64>(),
                Goal::CrossEntropy => dot(&d_q, q),
            };
            let total: f64 = d_q.iter().sum();
            let here = &h[c * d..(c + 1) * d];
            let d_here = &mut d_h[c * d..(c + 1) * d];
            for (m, (d_q, q)) in d_q.iter().zip(q).enumerate() {
                let d_logit = d_q - q.exp() * total;
                let word = &w[m * d..(m + 1) * d];
                d_here.iter_mut().zip(word).for_each(|(d_h, w)| *d_h += d_logit * w);
                d_w[m * d..(m + 1) * d].iter_mut().zip(here).for_each(|(d_w, h)| *d_w += d_logit * h);
            }
        }
        (value, gradient)
    })?;
    Ok(log_probs(&x))
}

impl Evidence for ErrorFloor {
    fn holds(&self) -> bool {
        self.fits.iter().all(|fit| {
            let rounding = 1.0 + 1e-9;
            fit.nearer_floor * rounding >= fit.floor
                && fit.squared_error * rounding >= fit.nearer_floor
                && fit.squared_error_of_cross_entropy * rounding >= fit.nearer_floor
                && fit.rank <= (fit.d + 1).min(self.words)
        })
    }

    fn text(&self) -> String {
        let mut text = format!(
            "Theorem 1: squared error of a softmax over d dimensions, {} contexts, {} words\n",
            self.contexts, self.words
        );
        let titles = ["floor", "nearer", "fitted", "over", "fitted to CE", "|.| >= sum s^2", "|.|^2 >= root"];
        let [floor, nearer, fitted, over, entropic, norm, square] = titles;
        text += &format!(
            "{:>4}{floor:>12}{nearer:>12}{fitted:>12}{over:>8}{entropic:>14}{norm:>16}{square:>15}",
            "d"
        );
        let word = |holds: bool| if holds { "holds" } else { "FAILS" };
        for fit in &self.fits {
            let over = 100.0 * (fit.squared_error / fit.nearer_floor - 1.0);
            text += &format!(
                "\n{:>4}{:>12.5}{:>12.5}{:>12.5}{over:>7.1}%{:>14.5}{:>16}{:>15}",
                fit.d,
                fit.floor,
                fit.nearer_floor,
                fit.squared_error,
                fit.squared_error_of_cross_entropy,
                word(fit.norm_above_squares),
                word(fit.square_above_root),
            );
        }
        text + "\nsquared error >= sum of squares holds everywhere; a root on one side alone does not"
    }

    fn chart(&self) -> Chart {
        let line = |label: &str, of: fn(&Fit) -> f64| {
            let points = self.fits.iter().map(|fit| (fit.d as f64, of(fit) / fit.floor)).collect();
            (label.to_string(), points)
        };
        Chart {
            caption: "Theorem 1: squared error of a softmax over its floor".into(),
            x: ("d", Scale::Linear),
            y: ("over the floor", Scale::Linear),
            lines: vec![
                line("floor: singular values of A beyond d + 1", |fit| fit.floor),
                line("those of A without row means, beyond d", |fit| fit.nearer_floor),
                line("softmax fitted to the squared error", |fit| fit.squared_error),
                line("softmax fitted to the cross-entropy", |fit| fit.squared_error_of_cross_entropy),
            ],
            labels: Some(SeriesLabelPosition::UpperLeft),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fitted_softmaxes_stay_above_the_floor_and_the_mixed_forms_fail() {
        let sizes = Sizes { contexts: 20, words: 14, dims: &[1, 4, 9, 12], steps: 400, starts: 1 };
        let floor = ErrorFloor::measure(&sizes, 5).unwrap();
        assert!(floor.holds(), "{}", floor.text());
        for fit in &floor.fits {
            // The floors are no idle ones.
            assert!(fit.squared_error < 1.1 * fit.nearer_floor, "{}", floor.text());
            assert!(fit.nearer_floor < 2.0 * fit.floor && fit.nearer_floor > 1.01 * fit.floor);
            assert_eq!(fit.rank, fit.d + 1);
        }
        // A tail above 1 defeats one mixed form, a tail below 1 the other.
        assert!(!floor.fits[0].norm_above_squares && floor.fits[0].square_above_root, "{}", floor.text());
        assert!(!floor.fits[3].square_above_root && floor.fits[3].norm_above_squares, "{}", floor.text());
    }

    #[test]
    fn enough_dimensions_leave_nothing() {
        let sizes = Sizes { contexts: 9, words: 6, dims: &[5], steps: 2000, starts: 1 };
        let floor = ErrorFloor::measure(&sizes, 5).unwrap();
        assert!(floor.fits[0].nearer_floor < 1e-25 && floor.fits[0].floor == 0.0);
        assert!(floor.fits[0].squared_error < 1e-12, "{}", floor.text());
    }
}
