//! The logits in blocks, which training never stores; and whether a head has one normaliser, and logits that are products with
//! the decoder alone.

use burn::tensor::Tensor;

use super::output::OutputHead;
use crate::error::{HeadError, OrPanic};

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
        let inputs = self.has_common_logits("logit_blocks").and_then(|()| self.differentiable(hidden));
        inputs.or_panic("logit_blocks").into_chunks().map(|chunk| chunk.logits().tensor())
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
