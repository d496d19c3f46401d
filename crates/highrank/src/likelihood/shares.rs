//! What each token's loss is multiplied with to make a mean.

use burn::tensor::{Bool, DType, Device, Tensor};

/// The weights `w_n / Σ_n c_n` of a mean, differentiable with respect to both.
///
/// A mean over nothing, `Σ_n c_n = 0`, is NaN as in PyTorch, but every gradient of it is 0: what is added to it in a batch of
/// several parts still trains.
pub(crate) struct Shares {
    /// `[N]`
    pub(crate) of_tokens: Tensor<1>,
    /// True if nothing counts, `[1]`; `None` if something does.
    nothing: Option<Tensor<1, Bool>>,
}

impl Shares {
    /// Of tokens that count alike.
    pub(crate) fn even(tokens: usize, on: (&Device, DType)) -> Self {
        Self { of_tokens: Tensor::full([tokens], 1.0 / tokens as f64, on), nothing: None }
    }

    /// Of tokens with the weights `w`, for counts `c`, both `[N]` and at least 0.
    ///
    /// Both are divided by the largest count first, so their sum cannot overflow.
    pub(crate) fn weighted(weights: Tensor<1>, counts: Tensor<1>) -> Self {
        let largest = counts.clone().detach().max();
        let nothing = largest.clone().equal_elem(0.0);
        let unit = largest.mask_fill(nothing.clone(), 1.0);
        let total = (counts / unit.clone()).sum().mask_fill(nothing.clone(), 1.0);
        Self { of_tokens: weights / unit / total, nothing: Some(nothing) }
    }

    /// The mean itself, for the weighted sum of the losses, `[1]`.
    pub(crate) fn mean(&self, sum: Tensor<1>) -> Tensor<1> {
        match &self.nothing {
            Some(nothing) => sum.mask_fill(nothing.clone(), f64::NAN),
            None => sum,
        }
    }
}
