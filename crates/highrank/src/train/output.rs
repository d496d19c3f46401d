//! What a training step hands to its metrics.

use burn::backend::ExecutionError;
use burn::tensor::{Int, Tensor};
use burn::train::metric::{Adaptor, ItemLazy, LossInput};

use crate::loss::Loss;

/// The loss of a batch with sums over its counted tokens: the output of a training or validation step.
///
/// Made from a loss with statistics. It adapts to Burn's `LossMetric` (whose value over an epoch is the mean of its
/// batches) and to this module's [`TokenMetric`](super::TokenMetric).
#[derive(Debug, Clone)]
pub struct HeadOutput {
    /// What is minimised, as the loss options say, `[1]`.
    pub loss: Tensor<1>,
    /// Sum of the counted tokens' negative log-likelihoods in nats, `[1]`: without smoothing, weights or other terms.
    pub nll: Tensor<1>,
    /// Number of counted tokens whose target is the most probable word, `[1]`.
    pub correct: Tensor<1, Int>,
    /// Number of counted tokens, `[1]`.
    pub tokens: Tensor<1, Int>,
}

impl HeadOutput {
    /// The output of a step with this loss.
    ///
    /// # Shapes
    /// - targets: `[..]`, those that the loss was computed from
    ///
    /// # Panics
    /// If the loss has no statistics, or the targets are of another shape.
    #[track_caller]
    pub fn new<const T: usize>(loss: Loss<T>, targets: Tensor<T, Int>) -> Self {
        let Loss { value, statistics, .. } = loss;
        let statistics =
            statistics.expect("HeadOutput::new: the loss needs `LossOptions::with_statistics(true)`");
        let (got, expected) = (targets.dims(), statistics.argmax.dims());
        assert!(
            got == expected,
            "HeadOutput::new: targets has shape {got:?}, expected {expected:?}, that of the loss's statistics"
        );
        // Constants: outside of autodiff, so that no metric keeps the graph alive.
        let counted = statistics.counted.without_autodiff();
        // 0 for tokens that do not count.
        let nll = statistics.nll.without_autodiff().sum();
        let argmax = statistics.argmax.without_autodiff();
        let targets = targets.without_autodiff().cast(argmax.dtype());
        let correct = argmax.equal(targets).bool_and(counted.clone()).int().sum();
        Self { loss: value, nll, correct, tokens: counted.int().sum() }
    }
}

impl ItemLazy for HeadOutput {
    /// Submits pending work without waiting for it. Nothing is read: each metric reads its two numbers.
    fn sync(self) -> Result<Self, ExecutionError> {
        self.loss.device().flush()?;
        Ok(Self { loss: self.loss.without_autodiff(), ..self })
    }
}

impl Adaptor<LossInput> for HeadOutput {
    fn adapt(&self) -> LossInput {
        LossInput::new(self.loss.clone())
    }
}

impl Adaptor<HeadOutput> for HeadOutput {
    fn adapt(&self) -> HeadOutput {
        self.clone()
    }
}
