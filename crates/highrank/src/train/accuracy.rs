//! Accuracy from counts.

use burn::tensor::{Int, Tensor, TensorReadError};

use super::metric::{TokenMetric, TokenSums};

/// The share of counted tokens whose target is the most probable word, in percent.
///
/// Over all counted tokens of an epoch. For an output type other than [`HeadOutput`](super::HeadOutput), implement
/// `Adaptor<AccuracyInput>`.
pub type AccuracyMetric = TokenMetric<AccuracyInput>;

/// Input of the [accuracy metric](AccuracyMetric).
#[derive(Debug, Clone)]
pub struct AccuracyInput {
    correct: Tensor<1, Int>,
    tokens: Tensor<1, Int>,
}

impl AccuracyInput {
    /// The number of counted tokens whose target is the most probable word, `[1]`, and that of all counted ones, `[1]`.
    pub fn new(correct: Tensor<1, Int>, tokens: Tensor<1, Int>) -> Self {
        Self { correct, tokens }
    }
}

impl TokenSums for AccuracyInput {
    const NAME: &'static str = "Accuracy";
    const UNIT: Option<&'static str> = Some("%");
    const HIGHER_IS_BETTER: bool = true;

    fn value(mean: f64) -> f64 {
        100.0 * mean
    }

    fn read(&self) -> Result<(f64, usize), TensorReadError> {
        let tokens = self.tokens.clone().try_into_scalar::<i64>()?;
        Ok((self.correct.clone().try_into_scalar::<i64>()? as f64, tokens as usize))
    }
}
