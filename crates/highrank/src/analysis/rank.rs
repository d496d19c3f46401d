//! Empirical rank of a matrix of log-probabilities.

use faer::Mat;
use thiserror::Error;

/// A matrix that cannot be analysed.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum AnalysisError {
    /// The number of values is no positive multiple of the number of columns.
    #[error("{values} values do not make rows of {columns} columns")]
    Shape {
        /// Number of values given.
        values: usize,
        /// Number of columns asked for.
        columns: usize,
    },
    /// NaN or an infinity among the values.
    #[error("row {row}, column {column} is {value}, but a log-probability must be finite")]
    NotFinite {
        /// Row of the first such value.
        row: usize,
        /// Its column.
        column: usize,
        /// The value.
        value: f64,
    },
    /// The decomposition did not converge.
    #[error("the singular value decomposition did not converge")]
    NoConvergence,
}

/// The singular values of a matrix, largest first, and the rank they say it has.
///
/// The rank of a matrix of log-probabilities over contexts and words is at most `d + 1` for a softmax over `h·Wᵀ`
/// (`d + 2` with a decoder bias): the softmax bottleneck (Yang et al., ICLR 2018, section 2.2 and appendix).
#[derive(Debug, Clone)]
pub struct Spectrum {
    /// Singular values in descending order.
    pub singular_values: Vec<f64>,
    rows: usize,
    columns: usize,
}

impl Spectrum {
    /// Decomposes a matrix given row by row, in f64.
    ///
    /// Holds the matrix and a working copy: `16 · rows · columns` bytes.
    ///
    /// # Errors
    /// If the values do not make whole rows, one is not finite, or the decomposition does not converge.
    ///
    /// # Example
    /// ```
    /// use highrank::analysis::Spectrum;
    ///
    /// let rows = [1.0, 2.0, 2.0, 4.0, 3.0, 6.0];
    /// assert_eq!(Spectrum::of(&rows, 2)?.rank(), 1);
    /// # Ok::<(), highrank::analysis::AnalysisError>(())
    /// ```
    pub fn of(values: &[f64], columns: usize) -> Result<Self, AnalysisError> {
        if columns == 0 || values.is_empty() || !values.len().is_multiple_of(columns) {
            return Err(AnalysisError::Shape { values: values.len(), columns });
        }
        if let Some(i) = values.iter().position(|value| !value.is_finite()) {
            let (row, column) = (i / columns, i % columns);
            return Err(AnalysisError::NotFinite { row, column, value: values[i] });
        }
        let rows = values.len() / columns;
        let matrix = Mat::from_fn(rows, columns, |row, column| values[row * columns + column]);
        let singular_values = matrix.singular_values().map_err(|_| AnalysisError::NoConvergence)?;
        Ok(Self { singular_values, rows, columns })
    }

    /// Number of singular values above the expected roundoff of f64.
    pub fn rank(&self) -> usize {
        self.rank_with(f64::EPSILON)
    }

    /// Number of singular values above `½ √(M + N + 1) σ_max ε` for a machine epsilon.
    ///
    /// Numerical Recipes' expected roundoff error, as the paper uses it (Yang et al., section 3.2). For
    /// values computed in f32 pass `f32::EPSILON`.
    pub fn rank_with(&self, epsilon: f64) -> usize {
        let threshold = self.threshold(epsilon);
        self.singular_values.iter().filter(|&&value| value > threshold).count()
    }

    /// The threshold of [`rank_with`](Self::rank_with).
    pub fn threshold(&self, epsilon: f64) -> f64 {
        let largest = self.singular_values.first().copied().unwrap_or(0.0);
        0.5 * ((self.rows + self.columns + 1) as f64).sqrt() * largest * epsilon
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_ranks_are_found() {
        // Sum of two outer products.
        let value =
            |i: usize, j: usize| (i as f64 + 1.0) * (j as f64).cos() + (i * i) as f64 * (j as f64 + 2.0).ln();
        let matrix: Vec<f64> = (0..12 * 9).map(|at| value(at / 9, at % 9)).collect();
        assert_eq!(Spectrum::of(&matrix, 9).unwrap().rank(), 2);
        let identity: Vec<f64> = (0..25).map(|at| if at % 6 == 0 { 1.0 } else { 0.0 }).collect();
        assert_eq!(Spectrum::of(&identity, 5).unwrap().rank(), 5);
        assert_eq!(Spectrum::of(&[0.0; 6], 3).unwrap().rank(), 0);
    }

    #[test]
    fn singular_values_descend() {
        let matrix: Vec<f64> = (0..40).map(|i| ((i * 7919) % 101) as f64).collect();
        let spectrum = Spectrum::of(&matrix, 8).unwrap();
        assert!(spectrum.singular_values.windows(2).all(|pair| pair[0] >= pair[1]));
        let squares: f64 = spectrum.singular_values.iter().map(|s| s * s).sum();
        let want: f64 = matrix.iter().map(|x| x * x).sum();
        assert!((squares - want).abs() < 1e-9 * want);
    }

    #[test]
    fn bad_matrices_are_refused() {
        assert_eq!(Spectrum::of(&[], 3).unwrap_err().to_string(), "0 values do not make rows of 3 columns");
        assert_eq!(
            Spectrum::of(&[1.0; 4], 3).unwrap_err().to_string(),
            "4 values do not make rows of 3 columns"
        );
        assert_eq!(
            Spectrum::of(&[0.0, 1.0, 2.0, f64::NEG_INFINITY], 2).unwrap_err().to_string(),
            "row 1, column 1 is -inf, but a log-probability must be finite"
        );
    }
}
