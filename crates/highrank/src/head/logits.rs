//! The logits and their gradients in blocks, which training never stores; and whether a head has one normaliser, and logits
//! that are products with the decoder alone.

use burn::tensor::{Int, Tensor};
use highrank_kernels::Ints;

use super::output::OutputHead;
use crate::context::{ContextOps, Tokens};
use crate::error::{HeadError, OrPanic, expect_shape};
use crate::likelihood::portable;
use crate::loss::{leading, of_targets, validate_targets};
use crate::ops::runs;

impl OutputHead {
    /// The logits `z = h_k·Wᵀ + b`, before the logit map, in blocks of the head's memory budget, in order.
    ///
    /// # Shapes
    /// - hidden: `[.., H]`, of N tokens in all
    /// - blocks: `[rows·K, V]`, N·K rows in all; the [`components`](Self::components) of a token follow each other
    ///
    /// # Panics
    /// As [`forward`](Self::forward), and if the head has clusters, each of which has logits and a normaliser of its own.
    #[track_caller]
    pub fn logit_blocks<const D: usize>(
        &self,
        hidden: Tensor<D>,
    ) -> impl Iterator<Item = Tensor<2>> + use<D> {
        self.try_logit_blocks(hidden).or_panic("logit_blocks")
    }

    pub(crate) fn try_logit_blocks<const D: usize>(
        &self,
        hidden: Tensor<D>,
    ) -> Result<impl Iterator<Item = Tensor<2>> + use<D>, HeadError> {
        self.has_common_logits("logit_blocks")?;
        Ok(self.differentiable(hidden)?.into_chunks().map(|chunk| chunk.logits().tensor()))
    }

    /// The gradients of every token's nll by its logits before the logit map, `∂nll/∂z_k`, in blocks of the head's memory budget,
    /// in order.
    ///
    /// ```text
    /// ∂nll/∂z_kv = γ_k f'(z_kv)/τ (p_k(v) − [v = y])
    /// ```
    ///
    /// Exactly 0 for masked words. For what looks into training, such as
    /// [`GradientLoss`](https://docs.rs/highrank/latest/highrank/analysis/struct.GradientLoss.html): a loss makes them chunk by
    /// chunk and never stores them. Constants: nothing can be differentiated through them.
    ///
    /// # Shapes
    /// - hidden: `[.., H]`, D dimensions, of N tokens in all
    /// - targets: `[..]`, T = D − 1 dimensions
    /// - blocks: `[rows·K, V]`, N·K rows in all; the K components of a token follow each other. In the type of sums
    ///
    /// # Panics
    /// If the shapes do not fit (both are in the message), a target is outside `0..V`, or the head has clusters.
    #[track_caller]
    pub fn logit_gradient_blocks<const D: usize, const T: usize>(
        &self,
        hidden: Tensor<D>,
        targets: Tensor<T, Int>,
    ) -> impl Iterator<Item = Tensor<2>> + use<D, T> {
        self.try_logit_gradient_blocks(hidden, targets).or_panic("logit_gradient_blocks")
    }

    pub(crate) fn try_logit_gradient_blocks<const D: usize, const T: usize>(
        &self,
        hidden: Tensor<D>,
        targets: Tensor<T, Int>,
    ) -> Result<impl Iterator<Item = Tensor<2>> + use<D, T>, HeadError> {
        self.has_common_logits("logit_gradient_blocks")?;
        let shape = leading::<D, T>(&hidden.dims(), of_targets(&targets))?;
        let checks = self.check(&hidden)?;
        expect_shape("targets", &targets.dims(), &shape, "as the hidden state says")?;
        checks.device("targets", &targets.device())?;
        let (input, _) = self.likelihood(Tokens::all(hidden), ContextOps::Composed)?;
        let words = targets.reshape([input.tokens()]);
        validate_targets(&words, self.decoder.vocab)?;
        let words = Ints::from(words);
        let blocks = runs(input.tokens(), input.chunk_tokens());
        Ok(blocks.map(move |(start, end)| {
            let words = words.clone().rows(start..end);
            portable::logit_gradients(&input.slice(start, end), words).tensor()
        }))
    }

    /// Checks that the logits of all words have one normaliser.
    pub(super) fn has_common_logits(&self, what: &'static str) -> Result<(), HeadError> {
        match self.clusters {
            None => Ok(()),
            Some(_) => Err(HeadError::NoCommonLogits { what }),
        }
    }

    /// What the head is, if its logits are no `h_k·Wᵀ + b`.
    #[cfg(feature = "analysis")]
    pub(crate) fn not_linear(&self) -> Option<&'static str> {
        match self.clusters {
            Some(_) => Some("a head with clusters"),
            None => self.context.not_linear(),
        }
    }
}

#[cfg(all(test, feature = "flex"))]
#[path = "logits_tests.rs"]
mod tests;
