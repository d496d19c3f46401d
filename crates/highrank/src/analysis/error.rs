//! What can be wrong with the input of an analysis.

use thiserror::Error;

/// Rows that cannot be analysed.
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
    /// Rows of another vocabulary or number than the analysis or the other block has, or a head of other components.
    #[error("{parts} of {what}: {got}, expected {expected}")]
    Size {
        /// Whose size.
        what: &'static str,
        /// Its size.
        got: usize,
        /// Of what: `columns`, `rows` or `components`.
        parts: &'static str,
        /// The size that would fit.
        expected: usize,
    },
    /// Not enough rows for the quantity to exist.
    #[error("too few contexts for {what}: {rows}, expected at least {needed}")]
    TooFewRows {
        /// The quantity.
        what: &'static str,
        /// Rows given.
        rows: usize,
        /// The least number of rows.
        needed: usize,
    },
    /// NaN or +∞ among the values, or −∞ where words cannot be masked.
    #[error("row {row}, column {column} of {what} is {value}, but {expected}")]
    NotFinite {
        /// Which values.
        what: &'static str,
        /// Row of the first such value: the context, counted from 0 over all blocks, or the decoder's row.
        row: usize,
        /// Its column.
        column: usize,
        /// The value.
        value: f64,
        /// The allowed values.
        expected: &'static str,
    },
    /// All words of a row are masked.
    #[error(
        "row {row} of {what} is -inf throughout, but a distribution needs at least one word that is not masked"
    )]
    NoWord {
        /// Whose rows.
        what: &'static str,
        /// The row, counted from 0 over all blocks.
        row: usize,
    },
    /// A row masks other words than the first does, which leaves the matrix without a rank.
    #[error(
        "row {row}, column {column} is {value}, but row 0 {} the word: all rows of a matrix must mask the same words",
        first_row(*value)
    )]
    MaskedWords {
        /// The first row that differs, counted from 0 over all blocks.
        row: usize,
        /// The first word that differs.
        column: usize,
        /// Its log-probability in that row.
        value: f64,
    },
    /// A target that is no word of the vocabulary.
    #[error("the target of context {row} is {target}, outside the vocabulary 0..{vocab}")]
    Target {
        /// The context, counted from 0 over all blocks.
        row: usize,
        /// The target.
        target: usize,
        /// Size of the vocabulary.
        vocab: usize,
    },
    /// A head whose logits are no products with one decoder.
    #[error(
        "the logits of {head} are no products of contexts and one decoder: no column space says what of their gradient is lost"
    )]
    NoColumnSpace {
        /// What it is.
        head: &'static str,
    },
    /// The decomposition did not converge.
    #[error("the singular value decomposition did not converge")]
    NoConvergence,
}

/// What the first row does where another has `value`.
fn first_row(value: f64) -> &'static str {
    if value == f64::NEG_INFINITY { "does not mask" } else { "masks" }
}
