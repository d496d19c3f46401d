//! What can be wrong with a head's configuration or its inputs.

use thiserror::Error;

/// A head that cannot be built, or an input that does not fit the head.
///
/// Returned by the `validate` and `try_` functions; the methods that panic print the same message.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum HeadError {
    /// A size that must be at least 1 is 0.
    #[error("{name} is 0, but a head needs at least 1")]
    ZeroSize {
        /// Name of the size in the configuration.
        name: &'static str,
    },
    /// A direct context uses the hidden state itself, so both sizes must agree.
    #[error(
        "d_hidden {d_hidden} and d_embedding {d_embedding} differ, but a head without mixture multiplies \
         the hidden state by the decoder directly: make them equal or use a mixture"
    )]
    DirectSizes {
        /// Width of the hidden state.
        d_hidden: usize,
        /// Width of a decoder row.
        d_embedding: usize,
    },
    /// PLIF with more knots than are supported.
    #[error("{knots} knots, but PLIF takes 1 to {max}")]
    TooManyKnots {
        /// Number of knots asked for.
        knots: usize,
        /// Largest number supported.
        max: usize,
    },
    /// A bound or cap that is not a positive finite number.
    #[error("{name} is {value}, but it must be positive and finite")]
    NotPositive {
        /// Name of the field.
        name: &'static str,
        /// Its value.
        value: f64,
    },
    /// A dropout probability outside [0, 1).
    #[error("latent dropout is {value}, but a dropout probability lies in [0, 1)")]
    Dropout {
        /// The probability given.
        value: f64,
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
    /// Sampling options outside their range.
    #[error("{name} is {value}, expected {expected}")]
    Sampling {
        /// Name of the option.
        name: &'static str,
        /// Its value.
        value: f64,
        /// The allowed range.
        expected: &'static str,
    },
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
