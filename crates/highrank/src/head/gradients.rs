//! Gradients of the logits, which training never stores.

use burn::tensor::{Int, Tensor};
use highrank_kernels::Ints;

use super::bound::{BoundHead, leading, same_shape};
use crate::error::{HeadError, OrPanic};
use crate::likelihood::portable;
use crate::loss::validate_targets;
use crate::ops::{MASKING_BIAS, runs};

impl BoundHead<'_> {
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

    /// [`logit_gradient_blocks`](Self::logit_gradient_blocks) with an error in place of a panic.
    ///
    /// # Errors
    /// [`HeadError::Shape`] or [`HeadError::Target`]; [`HeadError::NoCommonLogits`] of a head with clusters.
    pub fn try_logit_gradient_blocks<const D: usize, const T: usize>(
        &self,
        hidden: Tensor<D>,
        targets: Tensor<T, Int>,
    ) -> Result<impl Iterator<Item = Tensor<2>> + use<D, T>, HeadError> {
        if self.clustered().is_some() {
            return Err(HeadError::NoCommonLogits { what: "logit_gradient_blocks" });
        }
        let input = self.composed(hidden.clone())?;
        same_shape("targets", targets.dims(), leading::<D, T>(&hidden.dims())?)?;
        let words = targets.reshape([input.tokens()]);
        validate_targets(&words, self.head.decoder.vocab)?;
        let words = Ints::from(words);
        let blocks = runs(input.tokens(), input.chunk_tokens());
        Ok(blocks.map(move |(start, end)| {
            let words = words.clone().rows(start..end);
            portable::logit_gradients(&input.slice(start, end), words).tensor()
        }))
    }

    /// `W` in use, `[V, d]`; with a padded vocabulary [`rows`](crate::decoder::Decoder::rows) in place of `V`.
    pub fn decoder_weight(&self) -> Tensor<2> {
        self.weight.clone().detach()
    }

    /// The rows of `W` whose words have probability 0, in ascending order: masked words, by the head's mask or a bias of −∞,
    /// and the padding. Reads the bias back from the device.
    pub fn masked_rows(&self) -> Vec<usize> {
        let Some(bias) = self.bias() else { return vec![] };
        let bias = bias.detach().into_data();
        let rows = bias.iter::<f64>().enumerate();
        rows.filter(|(_, bias)| *bias <= MASKING_BIAS).map(|(row, _)| row).collect()
    }

    /// What the head is, if its logits are no `h_k·Wᵀ + b`.
    #[cfg(feature = "analysis")]
    pub(crate) fn not_linear(&self) -> Option<&'static str> {
        match &self.head.context {
            _ if self.clustered().is_some() => Some("a head with clusters"),
            crate::context::Context::Mixtape(_) => Some("a Mixtape"),
            _ => None,
        }
    }

    /// `K`, the rows of logits of each token: 1 for all but a mixture of softmaxes, whose contexts come from one layer or several.
    pub fn components(&self) -> usize {
        use crate::context::Context::*;
        match &self.head.context {
            Direct(_) | MixtureOfContexts(_) | Mixtape(_) => 1,
            MixtureOfSoftmaxes(mixture) => mixture.components,
            DirectOutputConnection(connection) => connection.components(),
        }
    }
}

#[cfg(all(test, feature = "flex"))]
#[path = "gradients_tests.rs"]
mod tests;
