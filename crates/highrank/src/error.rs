//! What can be wrong with a head's configuration or its inputs.

use std::ops::RangeBounds;

use burn::tensor::DType;
use thiserror::Error;

/// A head that cannot be built, or an input that does not fit the head.
///
/// Returned by `validate`, `sample`, `beam_search` and the `try_` functions; the methods that panic print the same line.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum HeadError {
    /// A number outside of its range: a size or number of a configuration, an option of a loss, of sampling or of a beam search, or one
    /// that the type of the head's sums cannot hold.
    #[error("{name} is {}, expected {expected}", in_digits(*value))]
    Range {
        /// Name of the number.
        name: &'static str,
        /// Its value.
        value: f64,
        /// The allowed range, in words and numbers.
        expected: String,
    },
    /// Cutoffs that make no clusters.
    #[error(
        "the cutoffs are {cutoffs:?}, but clusters need at least one, in ascending order, each at least 1 and below the \
         vocabulary's {vocab}"
    )]
    Cutoffs {
        /// The cutoffs given.
        cutoffs: Vec<usize>,
        /// Size of the vocabulary.
        vocab: usize,
    },
    /// Logits of all words, of a head with clusters: the head cluster and each tail has logits and a normaliser of its own.
    #[error(
        "{what} reads the logits of all words under one normaliser, but a head with clusters has one for each of its \
         softmaxes: use `forward` or `log_prob_blocks`, or a head without clusters"
    )]
    NoCommonLogits {
        /// What was asked for.
        what: &'static str,
    },
    /// A parameter of a size that no computer has memory for.
    #[error("{what} would have shape {shape:?}, more than any memory holds")]
    TooLarge {
        /// Which parameter.
        what: &'static str,
        /// Its shape.
        shape: Vec<usize>,
    },
    /// An option that the rest of the configuration has no use for.
    #[error("{option} is set, but {reason}")]
    Unused {
        /// Name of the option in the configuration.
        option: &'static str,
        /// Why it has no effect, and what to do.
        reason: &'static str,
    },
    /// No word is left unmasked.
    #[error("all {vocab} words are masked, but a distribution needs at least one")]
    NoWordLeft {
        /// Size of the vocabulary.
        vocab: usize,
    },
    /// One of a linear layer and the head that is made from it has a bias, the other has none.
    #[error("the linear layer and the head must both have a bias, or neither: set `with_bias({linear})`")]
    LinearBias {
        /// Whether the layer has a bias.
        linear: bool,
    },
    /// Two tensors whose shapes do not fit together.
    #[error("{what} has shape {got:?}, expected {expected}")]
    Shape {
        /// Which tensor.
        what: &'static str,
        /// Its shape.
        got: Vec<usize>,
        /// The shape that would fit, in words and numbers.
        expected: String,
    },
    /// A tensor of a float type that the head's sums would round.
    #[error(
        "{what} is in {got:?}, but this head sums in {sums:?}: cast it, or the head's parameters to {got:?}"
    )]
    FloatType {
        /// Which tensor.
        what: &'static str,
        /// Its type.
        got: DType,
        /// The type of the head's sums.
        sums: DType,
    },
    /// A tensor that is not where the head is.
    #[error("{what} is on {got}, but the head is on {expected}")]
    Device {
        /// Which tensor.
        what: &'static str,
        /// Its device.
        got: String,
        /// The head's.
        expected: String,
    },
    /// A head with tied weights was used without the embedding matrix.
    #[error("this head has no decoder matrix of its own: call `head.tied_to(embedding)` first")]
    MissingDecoder,
    /// An embedding matrix was given to a head that owns its decoder.
    #[error("this head owns its decoder matrix: configure it `with_tied(true)` to use another")]
    SecondDecoder,
    /// A target that is no word of the vocabulary.
    #[error("target {target} at token {token} is outside the vocabulary 0..{vocab}")]
    Target {
        /// The offending index.
        target: i64,
        /// Position of the token, counted over all leading dimensions.
        token: usize,
        /// Size of the vocabulary.
        vocab: usize,
    },
    /// A weight that is negative, infinite or not a number.
    #[error("weight {value} at position {token}, expected a finite number of at least 0")]
    Weight {
        /// The weight.
        value: f64,
        /// Position of the token, counted over all leading dimensions, or word of a class weight.
        token: usize,
    },
    /// A teacher's word that is no word, or listed twice for a token.
    #[error(
        "the teacher lists word {word} at token {token}, expected different words of the vocabulary 0..{vocab}"
    )]
    TeacherWord {
        /// The word.
        word: i64,
        /// Position of the token, counted over all leading dimensions.
        token: usize,
        /// Size of the vocabulary.
        vocab: usize,
    },
    /// A teacher's probabilities that no distribution has.
    #[error(
        "the teacher's probabilities at token {token} sum to {sum}, the least is {least}: expected numbers of at least 0 \
         that sum to 1 or less"
    )]
    TeacherRow {
        /// Position of the token, counted over all leading dimensions.
        token: usize,
        /// Their sum.
        sum: f64,
        /// The smallest of them.
        least: f64,
    },
    /// A word was to be chosen by log-probabilities that are no numbers.
    #[error("a log-probability of token {token} is NaN or +∞: no word can be chosen by it")]
    NotANumber {
        /// Position of the token, counted over all leading dimensions; in a beam search, the row of the step.
        token: usize,
    },
    /// A word was to be drawn where every word is masked.
    #[error("all words of token {token} have probability 0: leave at least one unmasked")]
    AllMasked {
        /// Position of the token, counted over all leading dimensions.
        token: usize,
    },
}

/// Checks that a number is in its range, which `expected` says in words.
pub(crate) fn in_range(
    name: &'static str,
    value: f64,
    expected: impl Into<String>,
    range: impl RangeBounds<f64>,
) -> Result<(), HeadError> {
    match range.contains(&value) {
        true => Ok(()),
        false => Err(HeadError::Range { name, value, expected: expected.into() }),
    }
}

/// Checks a size that must be at least 1.
pub(crate) fn at_least_one(name: &'static str, size: usize) -> Result<(), HeadError> {
    in_range(name, size as f64, "at least 1", 1.0..)
}

/// Checks that a parameter of such a shape and its gradient have sizes that a computer can address.
pub(crate) fn fits_memory(what: &'static str, shape: [usize; 2]) -> Result<(), HeadError> {
    let bytes = shape.iter().try_fold(size_of::<f64>(), |bytes, size| bytes.checked_mul(*size));
    match bytes.is_some_and(|bytes| isize::try_from(bytes).is_ok()) {
        true => Ok(()),
        false => Err(HeadError::TooLarge { what, shape: shape.to_vec() }),
    }
}

/// Checks a shape; in words, where the expected one comes from.
pub(crate) fn expect_shape(
    what: &'static str,
    got: &[usize],
    expected: &[usize],
    because: &str,
) -> Result<(), HeadError> {
    match got == expected {
        true => Ok(()),
        false => {
            let expected = format!("{expected:?}, {because}");
            Err(HeadError::Shape { what, got: got.to_vec(), expected })
        }
    }
}

/// Checks that a number is finite and at least 0.
pub(crate) fn not_negative(name: &'static str, value: f64) -> Result<(), HeadError> {
    in_range(name, value, "a finite number of at least 0", 0.0..=f64::MAX)
}

/// A number as it is written, but for one of so many digits that nobody would count them.
pub(crate) fn in_digits(value: f64) -> String {
    let is_long = value.is_finite() && value != 0.0 && !(1e-16..1e16).contains(&value.abs());
    if is_long { format!("{value:e}") } else { value.to_string() }
}

/// Panics with the error's own line, the documented behaviour of the checked methods.
pub(crate) trait OrPanic<T> {
    /// The value, or a panic that reads `context: error`.
    fn or_panic(self, context: &str) -> T;
}

impl<T> OrPanic<T> for Result<T, HeadError> {
    #[track_caller]
    fn or_panic(self, context: &str) -> T {
        match self {
            Ok(value) => value,
            Err(error) => panic!("{context}: {error}"),
        }
    }
}
