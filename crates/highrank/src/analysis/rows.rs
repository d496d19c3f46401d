//! Blocks of rows: how an analysis reads a matrix that is never held as a whole.

use burn::tensor::Tensor;

use super::error::AnalysisError;

/// An analysis that reads a matrix of log-probabilities, contexts by words, one block of rows after the other.
///
/// A block has one row or more; −∞ stands for a [masked word](crate::analysis#masked-words). After an error the
/// analysis is as it was before the call.
pub trait RowAnalysis {
    /// Number of columns of the matrix: `V`, the size of the vocabulary.
    fn columns(&self) -> usize;

    /// Takes in rows given one after the other, in nats.
    ///
    /// # Errors
    /// If the values do not make whole rows, one is NaN or +∞, or a row is −∞ throughout.
    fn add_rows(&mut self, rows: &[f64]) -> Result<(), AnalysisError>;

    /// Takes in a tensor of log-probabilities in nats.
    ///
    /// # Shapes
    /// - block: `[.., V]`
    ///
    /// # Errors
    /// As there, and if the last dimension is not `V`.
    fn add<const D: usize>(&mut self, block: Tensor<D>) -> Result<(), AnalysisError> {
        expect_size(MATRIX, "columns", block.dims()[D - 1], self.columns())?;
        self.add_rows(&block.into_data().iter::<f64>().collect::<Vec<_>>())
    }
}

/// What the errors of an analysis call its rows, where there are no others.
pub(super) const MATRIX: &str = "the matrix";

/// The log-probability of a masked word.
pub(super) const MASKED: f64 = f64::NEG_INFINITY;

/// Checks how many columns, rows or components there are.
pub(super) fn expect_size(
    what: &'static str,
    parts: &'static str,
    got: usize,
    expected: usize,
) -> Result<(), AnalysisError> {
    match got == expected {
        true => Ok(()),
        false => Err(AnalysisError::Size { what, got, parts, expected }),
    }
}

/// The number of contexts read, if there are enough for a quantity to exist.
pub(super) fn at_least(what: &'static str, rows: usize, needed: usize) -> Result<f64, AnalysisError> {
    match rows >= needed {
        true => Ok(rows as f64),
        false => Err(AnalysisError::TooFewRows { what, rows, needed }),
    }
}

/// Number of rows that values make.
pub(super) fn count(values: &[f64], columns: usize) -> Result<usize, AnalysisError> {
    match columns == 0 || values.is_empty() || !values.len().is_multiple_of(columns) {
        true => Err(AnalysisError::Shape { values: values.len(), columns }),
        false => Ok(values.len() / columns),
    }
}

/// Number of rows in `values`, each of finite numbers and masked words; `before` rows were read already.
pub(super) fn check(
    what: &'static str,
    values: &[f64],
    columns: usize,
    before: usize,
) -> Result<usize, AnalysisError> {
    let count = count(values, columns)?;
    for (row, values) in (before..).zip(values.chunks_exact(columns)) {
        let wrong = |value: &f64| value.is_nan() || *value == f64::INFINITY;
        if let Some(column) = values.iter().position(wrong) {
            let expected = "a log-probability must be finite, or -inf for a masked word";
            return Err(AnalysisError::NotFinite { what, row, column, value: values[column], expected });
        }
        if values.iter().all(|value| *value == MASKED) {
            return Err(AnalysisError::NoWord { what, row });
        }
    }
    Ok(count)
}
