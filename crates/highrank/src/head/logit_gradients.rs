//! The gradients of the logits in blocks, which training never stores.

use burn::tensor::{Int, Tensor};
use highrank_kernels::Ints;

use super::output::OutputHead;
use crate::context::{ContextPath, Tokens};
use crate::error::{HeadError, expect_shape};
use crate::likelihood::portable;
use crate::loss::{leading, of_targets, validate_targets};
use crate::ops::runs;

impl OutputHead {
    /// The gradients of every token's nll by its logits before the logit map, `∂nll/∂z_k`, in blocks of the head's memory budget,
    /// in order. Constants: nothing can be differentiated through them. Exactly 0 for masked words.
    ///
    /// ```text
    /// ∂nll/∂z_kv = γ_k f'(z_kv)/τ (p_k(v) − [v = y])
    /// ```
    ///
    /// # Shapes
    /// - hidden: `[.., H]`, D dimensions, of N tokens in all
    /// - targets: `[..]`, T = D − 1 dimensions
    /// - blocks: `[rows·K, V]`, N·K rows in all; the K components of a token follow each other. In the type of sums
    pub(crate) fn logit_gradient_blocks<const D: usize, const T: usize>(
        &self,
        hidden: Tensor<D>,
        targets: Tensor<T, Int>,
    ) -> Result<impl Iterator<Item = Tensor<2>> + use<D, T>, HeadError> {
        self.has_common_logits("GradientLoss")?;
        let shape = leading::<D, T>(&hidden.dims(), of_targets(&targets))?;
        let checks = self.check(&hidden)?;
        expect_shape("targets", &targets.dims(), &shape, "as the hidden state says")?;
        checks.device("targets", &targets.device())?;
        let (input, _) = self.likelihood_input(Tokens::all(hidden), ContextPath::Composed)?;
        let words = targets.reshape([input.tokens()]);
        validate_targets(&words, self.decoder.vocab)?;
        let words = Ints::from(words);
        let blocks = runs(input.tokens(), input.chunk_tokens());
        Ok(blocks.map(move |(start, end)| {
            let words = words.clone().rows(start..end);
            portable::logit_gradients(&input.slice(start, end), words).tensor()
        }))
    }
}

#[cfg(all(test, feature = "flex"))]
#[path = "logit_gradients_tests.rs"]
mod tests;
