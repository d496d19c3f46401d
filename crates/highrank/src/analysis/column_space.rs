//! The column space of a decoder, and what of a vector lies outside of it.

use faer::linalg::matmul::matmul;
use faer::{Accum, Mat, MatRef, get_global_parallelism};

use super::error::AnalysisError;
use super::rows::count;

/// Orthonormal basis `U [V, r]` of the column space of a matrix `W [V, d]`: the logits that contexts can move.
#[derive(Debug, Clone)]
pub(super) struct ColumnSpace {
    basis: Mat<f64>,
}

/// Squared lengths of a row: of the whole, and of what is outside of the space.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Squares {
    pub whole: f64,
    pub outside: f64,
}

impl std::ops::AddAssign for Squares {
    fn add_assign(&mut self, other: Self) {
        self.whole += other.whole;
        self.outside += other.outside;
    }
}

impl Squares {
    /// Share of the length that is outside; none of a row of zeros.
    pub(crate) fn share(self) -> Option<f64> {
        (self.whole > 0.0).then(|| (self.outside / self.whole).sqrt())
    }
}

/// Below this share of the square, what is outside is computed by itself: the difference of two squares would have lost its digits.
const CLOSE: f64 = 1e-4;

impl ColumnSpace {
    /// Of a matrix given row by row.
    ///
    /// Directions whose singular value is within the roundoff of the largest count as missing.
    pub(crate) fn of(matrix: &[f64], columns: usize) -> Result<Self, AnalysisError> {
        let what = "the decoder";
        let rows = check(what, matrix, columns, columns, 0)?;
        let matrix = MatRef::from_row_major_slice(matrix, rows, columns);
        let svd = matrix.thin_svd().map_err(|_| AnalysisError::NoConvergence)?;
        let values: Vec<f64> = svd.S().column_vector().iter().copied().collect();
        let largest = values.first().copied().unwrap_or(0.0);
        let least = 8.0 * (rows + columns) as f64 * f64::EPSILON * largest;
        let dimension = values.iter().take_while(|value| **value > least).count();
        Ok(Self { basis: svd.U().subcols(0, dimension).to_owned() })
    }

    /// `V`
    pub(crate) fn words(&self) -> usize {
        self.basis.nrows()
    }

    /// `r`, at most `d`.
    pub(crate) fn dimension(&self) -> usize {
        self.basis.ncols()
    }

    /// The squares of every row of `[rows, V]`, given one after the other.
    pub(crate) fn squares(&self, values: &[f64]) -> Vec<Squares> {
        let words = self.words();
        let rows = MatRef::from_row_major_slice(values, values.len() / words, words);
        let mut inside = Mat::zeros(rows.nrows(), self.dimension());
        let par = get_global_parallelism();
        matmul(inside.as_mut(), Accum::Replace, rows, self.basis.as_ref(), 1.0, par);
        let squares = values.chunks_exact(words).enumerate().map(|(row, values)| {
            let whole: f64 = values.iter().map(|value| value * value).sum();
            let coefficients = inside.row(row);
            let outside = whole - coefficients.iter().map(|value| value * value).sum::<f64>();
            match outside > CLOSE * whole {
                true => Squares { whole, outside },
                false => {
                    let projected = &self.basis * coefficients.transpose();
                    let rest = values.iter().zip(projected.iter()).map(|(value, inside)| value - inside);
                    Squares { whole, outside: rest.map(|value| value * value).sum() }
                }
            }
        });
        squares.collect()
    }
}

/// Number of rows in finite `values` that make whole rows of `columns` values, in lines of `line` for errors; `before` rows were
/// read already.
pub(super) fn check(
    what: &'static str,
    values: &[f64],
    columns: usize,
    line: usize,
    before: usize,
) -> Result<usize, AnalysisError> {
    let count = count(values, columns)?;
    match values.iter().position(|value| !value.is_finite()) {
        Some(at) => Err(AnalysisError::NotFinite {
            what,
            row: before + at / columns,
            column: at % line,
            value: values[at],
            expected: "must be finite",
        }),
        None => Ok(count),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(matrix: &[f64], columns: usize, rows: &[f64]) -> Vec<f64> {
        let space = ColumnSpace::of(matrix, columns).unwrap();
        space.squares(rows).into_iter().map(|squares| squares.share().unwrap()).collect()
    }

    #[test]
    fn what_is_inside_loses_nothing_and_what_is_orthogonal_everything() {
        // The plane of the first two axes, by columns that are neither orthogonal nor of equal length.
        let plane = [3.0, 3.0, 0.0, 1e-3, 0.0, 0.0, 0.0, 0.0];
        let rows = [2.0, -5.0, 0.0, 0.0, 0.0, 0.0, 7.0, -1.0, 3.0, 0.0, 0.0, 4.0];
        let found = shares(&plane, 2, &rows);
        assert!(
            found[0] < 1e-15 && (found[1] - 1.0).abs() < 1e-15 && (found[2] - 0.8).abs() < 1e-15,
            "{found:?}"
        );
    }

    #[test]
    fn a_square_matrix_spans_everything_and_small_shares_keep_their_digits() {
        let matrix = [2.0, 1.0, 0.0, -1.0, 3.0, 0.5, 0.0, 1.0, 1.0];
        assert!(shares(&matrix, 3, &[1.0, -2.0, 0.3]).iter().all(|share| *share < 1e-14));
        // 1e-9 of the length is outside: its square is below the roundoff of the whole.
        let line = [1.0, 1.0, 0.0];
        let found = shares(&line, 1, &[1.0, 1.0, 1e-9]);
        assert!((found[0] / (1e-9 / 2f64.sqrt()) - 1.0).abs() < 1e-6, "{found:?}");
    }

    #[test]
    fn columns_that_depend_on_others_add_no_dimension() {
        let rows: Vec<f64> = (0..40)
            .flat_map(|i| {
                let x = (i as f64).sin();
                let y = (i as f64).cos();
                [x, y, x + y, 2.0 * x]
            })
            .collect();
        let space = ColumnSpace::of(&rows, 4).unwrap();
        assert_eq!((space.words(), space.dimension()), (40, 2));
        assert_eq!(ColumnSpace::of(&[0.0; 6], 2).unwrap().dimension(), 0);
        // More columns than rows.
        assert_eq!(ColumnSpace::of(&[1.0, 2.0, 3.0, 4.0, 5.0, 7.0], 3).unwrap().dimension(), 2);
    }

    #[test]
    fn bad_matrices_are_refused() {
        let error = |values: &[f64], columns| ColumnSpace::of(values, columns).unwrap_err().to_string();
        assert_eq!(error(&[1.0; 5], 2), "5 values do not make rows of 2 columns");
        assert_eq!(error(&[], 2), "0 values do not make rows of 2 columns");
        assert_eq!(
            error(&[1.0, 2.0, 3.0, f64::NAN], 2),
            "row 1, column 1 of the decoder is NaN, but must be finite"
        );
    }
}
