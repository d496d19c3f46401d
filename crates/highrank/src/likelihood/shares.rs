//! What each token's loss is multiplied with in a mean or a sum.

use burn::tensor::{Bool, DType, Device, Tensor};

/// The weights `w_n / Σ_n c_n` of a mean, differentiable with respect to both, or `w_n` of a sum.
///
/// A mean over nothing, `Σ_n c_n = 0`, is NaN as in PyTorch, but every gradient of it is 0: what is added to it in a batch of
/// several parts still trains.
pub(crate) struct Shares {
    /// `[N]`
    pub(crate) of_tokens: Tensor<1>,
    /// What the weights have been divided by, each `[1]`.
    divisors: Vec<Tensor<1>>,
    /// True if nothing counts, `[1]`; `None` if something does.
    nothing: Option<Tensor<1, Bool>>,
}

impl Shares {
    /// Of tokens that count alike.
    pub(crate) fn even(tokens: usize, on: (&Device, DType)) -> Self {
        let divisors = vec![Tensor::full([1], tokens as f64, on)];
        Self { of_tokens: Tensor::full([tokens], 1.0 / tokens as f64, on), divisors, nothing: None }
    }

    /// Of tokens with the weights `w`, for counts `c`, both `[N]` and at least 0.
    ///
    /// Both are divided by the largest count first, so their sum cannot overflow.
    pub(crate) fn weighted(weights: Tensor<1>, counts: Tensor<1>) -> Self {
        let largest = counts.clone().detach().max();
        let nothing = largest.clone().equal_elem(0.0);
        let unit = largest.mask_fill(nothing.clone(), 1.0);
        let total = (counts / unit.clone()).sum().mask_fill(nothing.clone(), 1.0);
        let divisors = vec![unit, total];
        let of_tokens = divisors.iter().fold(weights, |weights, divisor| weights / divisor.clone());
        Self { of_tokens, divisors, nothing: Some(nothing) }
    }

    /// The weights `w` of a sum, `[N]`.
    pub(crate) fn sum(weights: Tensor<1>) -> Self {
        Self { of_tokens: weights, divisors: vec![], nothing: None }
    }

    /// The weights `w` of a sum over a number, `[N]`.
    pub(crate) fn over(weights: Tensor<1>, number: f64) -> Self {
        let divisor = Tensor::full([1], number, (&weights.device(), weights.dtype()));
        Self { of_tokens: weights / divisor.clone(), divisors: vec![divisor], nothing: None }
    }

    /// The losses multiplied by their weights `w`, for those multiplied by their shares, `[N]`.
    pub(crate) fn undone(&self, losses: Tensor<1>) -> Tensor<1> {
        let dtype = losses.dtype();
        self.divisors.iter().fold(losses, |losses, divisor| losses * divisor.clone().cast(dtype))
    }

    /// The mean or sum itself, for the weighted sum of the losses, `[1]`.
    pub(crate) fn finish(&self, sum: Tensor<1>) -> Tensor<1> {
        match &self.nothing {
            Some(nothing) => sum.mask_fill(nothing.clone(), f64::NAN),
            None => sum,
        }
    }
}
