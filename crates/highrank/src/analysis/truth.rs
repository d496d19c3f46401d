//! A model against distributions that are known.

use super::divergence::kl_divergence;
use super::error::AnalysisError;
use super::rows;

/// Index of the largest value, the first of equal ones: never a masked word, unless all are.
fn mode(row: &[f64]) -> usize {
    (1..row.len()).fold(0, |best, i| if row[i] > row[best] { i } else { best })
}

/// How close a model comes to the true next-word distributions (Ganea et al., ICML 2019, section 5.1): see [`TruthFit`].
///
/// The truth may give words the probability 0 (log-probability −∞), different ones in every context. If the model masks a
/// word that the truth does not, the mean is +∞.
///
/// # Example
/// ```
/// use highrank::analysis::AgainstTruth;
///
/// let log = |row: [f64; 2]| row.map(f64::ln);
/// let mut fit = AgainstTruth::new(2);
/// fit.add_rows(&log([0.5, 0.5]), &log([0.25, 0.75]))?;
/// assert!((fit.finish()?.mean_kl - 0.5 * (4f64 / 3.0).ln()).abs() < 1e-15);
/// # Ok::<(), highrank::analysis::AnalysisError>(())
/// ```
#[derive(Debug, Clone)]
pub struct AgainstTruth {
    columns: usize,
    rows: usize,
    kl: f64,
    matches: usize,
}

/// What [`AgainstTruth`] has found: means over contexts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TruthFit {
    /// Of `KL(truth ‖ model)` in nats.
    pub mean_kl: f64,
    /// Share of contexts whose most probable word, the first of equal ones, is the true one, in [0, 1].
    pub mode_match: f64,
}

impl AgainstTruth {
    /// For distributions over `columns` words.
    pub fn new(columns: usize) -> Self {
        Self { columns, rows: 0, kl: 0.0, matches: 0 }
    }

    /// Takes in the same contexts' true and modelled log-probabilities, row after row, in nats.
    ///
    /// # Errors
    /// If the values do not make whole rows, one is NaN or +∞, a row is −∞ throughout, or there are more rows of one than
    /// of the other. Nothing is taken in then.
    pub fn add_rows(&mut self, truth: &[f64], model: &[f64]) -> Result<(), AnalysisError> {
        let count = rows::check("the truth", truth, self.columns, self.rows)?;
        let what = "the model";
        rows::expect_size(what, "rows", rows::check(what, model, self.columns, self.rows)?, count)?;
        self.rows += count;
        for (truth, model) in truth.chunks_exact(self.columns).zip(model.chunks_exact(self.columns)) {
            self.kl += kl_divergence(truth, model);
            self.matches += usize::from(mode(truth) == mode(model));
        }
        Ok(())
    }

    /// The means over the contexts read so far.
    ///
    /// # Errors
    /// Without any context.
    pub fn finish(&self) -> Result<TruthFit, AnalysisError> {
        let contexts = rows::at_least("a mean over contexts", self.rows, 1)?;
        Ok(TruthFit { mean_kl: self.kl / contexts, mode_match: self.matches as f64 / contexts })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_over_all_blocks() {
        let log = |row: [f64; 3]| row.map(f64::ln);
        let (a, b) = (log([0.2, 0.5, 0.3]), log([0.1, 0.3, 0.6]));
        let mut fit = AgainstTruth::new(3);
        fit.add_rows(&[a, b].concat(), &[a, a].concat()).unwrap();
        fit.add_rows(&a, &b).unwrap();
        let found = fit.finish().unwrap();
        assert_eq!((fit.rows, found.mode_match), (3, 1.0 / 3.0));
        let want = (kl_divergence(&b, &a) + kl_divergence(&a, &b)) / 3.0;
        assert!((found.mean_kl - want).abs() < 1e-15);
    }

    #[test]
    fn bad_blocks_are_refused_and_leave_no_trace() {
        let mut fit = AgainstTruth::new(2);
        assert_eq!(
            fit.finish().unwrap_err().to_string(),
            "too few contexts for a mean over contexts: 0, expected at least 1"
        );
        let error = fit.add_rows(&[-1.0; 4], &[-1.0; 2]).unwrap_err().to_string();
        assert_eq!(error, "rows of the model: 1, expected 2");
        let error = fit.add_rows(&[-1.0; 2], &[-1.0; 3]).unwrap_err().to_string();
        assert_eq!(error, "3 values do not make rows of 2 columns");
        let error = fit.add_rows(&[-1.0; 2], &[-1.0, f64::INFINITY]).unwrap_err().to_string();
        assert!(error.starts_with("row 0, column 1 of the model is inf, but"), "{error}");
        let error = fit.add_rows(&[-1.0, f64::NAN], &[-1.0; 2]).unwrap_err().to_string();
        assert!(error.starts_with("row 0, column 1 of the truth is NaN, but"), "{error}");
        assert_eq!(fit.rows, 0);
    }

    #[test]
    fn the_first_of_equal_modes_counts() {
        assert_eq!(mode(&[-2.0, -1.0, -1.0]), 1);
        assert_eq!(mode(&[rows::MASKED, -9.0, rows::MASKED]), 1);
    }

    #[test]
    fn words_that_the_truth_rules_out_are_no_matter_and_ones_that_the_model_does_are() {
        let log = |row: [f64; 3]| row.map(f64::ln);
        let (truth, model) = (log([0.0, 0.5, 0.5]), log([0.5, 0.25, 0.25]));
        let mut fit = AgainstTruth::new(3);
        fit.add_rows(&truth, &model).unwrap();
        assert_eq!(fit.finish().unwrap(), TruthFit { mean_kl: 2f64.ln(), mode_match: 0.0 });
        fit.add_rows(&model, &truth).unwrap();
        assert_eq!(fit.finish().unwrap().mean_kl, f64::INFINITY);
    }
}
