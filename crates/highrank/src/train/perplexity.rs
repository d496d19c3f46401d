//! Perplexity from sums.

use burn::tensor::{Int, Tensor, TensorReadError};

use super::metric::{TokenMetric, TokenSums};

/// The perplexity of the counted tokens.
///
/// ```text
/// ppl = exp( Σ_n nll_n / N )
/// ```
///
/// over all N counted tokens of an epoch, not the mean of the batches' perplexities, which is larger. For an output type other
/// than [`HeadOutput`](super::HeadOutput), implement `Adaptor<PerplexityInput>`.
pub type PerplexityMetric = TokenMetric<PerplexityInput>;

/// Input of the [perplexity metric](PerplexityMetric).
#[derive(Debug, Clone)]
pub struct PerplexityInput {
    nll: Tensor<1>,
    tokens: Tensor<1, Int>,
}

impl PerplexityInput {
    /// The sum of the counted tokens' negative log-likelihoods in nats, `[1]`, and their number, `[1]`.
    pub fn new(nll: Tensor<1>, tokens: Tensor<1, Int>) -> Self {
        Self { nll, tokens }
    }
}

impl TokenSums for PerplexityInput {
    const NAME: &'static str = "Perplexity";
    const UNIT: Option<&'static str> = None;
    const HIGHER_IS_BETTER: bool = false;

    fn value(mean: f64) -> f64 {
        mean.exp()
    }

    fn read(&self) -> Result<(f64, usize), TensorReadError> {
        let tokens = self.tokens.clone().try_into_scalar::<i64>()?;
        Ok((self.nll.clone().try_into_scalar::<f64>()?, tokens as usize))
    }
}
