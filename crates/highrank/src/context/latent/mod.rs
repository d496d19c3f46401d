//! The latent layer of a mixture as one operation:
//!
//! ```text
//! h = tanh(g·W + b) ∘ mask
//! ```
//!
//! Written in tensor operations its forward and backward pass visit the `[N, K·d]` matrix a dozen times, on most CPU
//! backends on one thread with the tanh of the standard library: a sixth of a Mixture of Softmaxes' time. As one
//! operation it is a product and one visit forward, one visit and two products backward.
//!
//! The default bodies in [`portable`] run on every backend; [`LikelihoodBackend`](crate::LikelihoodBackend) has the
//! methods to override, and the backward pass for `Autodiff` is written once.

mod autodiff;
#[cfg(feature = "flex")]
pub(crate) mod flex;
pub mod portable;

pub(crate) use autodiff::{inner, latent as on_autodiff};

use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor};

/// What the latent layer reads.
#[derive(Debug, Clone)]
pub struct LatentArgs<B: Backend> {
    /// `g`, shape `[N, H]`.
    pub hidden: Tensor<B, 2>,
    /// `W`, shape `[H, F]`, `F = K·d`.
    pub weight: Tensor<B, 2>,
    /// `b`, shape `[F]`; `None` means 0.
    pub bias: Option<Tensor<B, 1>>,
    /// Dropout; `None` means that all features are kept.
    pub mask: Option<LatentMask<B>>,
}

impl<B: Backend> LatentArgs<B> {
    /// The layer for tokens `start .. end`.
    pub(crate) fn slice(&self, start: usize, end: usize) -> Self {
        let mask = self.mask.as_ref().map(|LatentMask { values, keep }| {
            let period = values.dims()[0];
            let rows: Vec<i64> = (start..end).map(|token| (token % period) as i64).collect();
            let rows = Tensor::<B, 1, Int>::from_data(rows.as_slice(), &values.device());
            LatentMask { values: values.clone().select(0, rows), keep: *keep }
        });
        Self {
            hidden: self.hidden.clone().slice(start..end),
            weight: self.weight.clone(),
            bias: self.bias.clone(),
            mask,
        }
    }
}

/// A locked dropout mask. A constant: no gradient flows to it.
#[derive(Debug, Clone)]
pub struct LatentMask<B: Backend> {
    /// 0 or `1/keep`, shape `[M, F]`, where M divides N: token n has row `n mod M`.
    pub values: Tensor<B, 2>,
    /// Probability of keeping a feature.
    pub keep: f64,
}

/// Gradients of [`LatentArgs`], each of its tensor's shape; `None` where not wanted or without such an input.
#[derive(Debug, Clone)]
pub struct LatentGradients<B: Backend> {
    /// `[N, H]`
    pub hidden: Option<Tensor<B, 2>>,
    /// `[H, F]`
    pub weight: Option<Tensor<B, 2>>,
    /// `[F]`
    pub bias: Option<Tensor<B, 1>>,
}

/// Which gradients the backward pass must make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LatentWanted {
    /// Of the hidden state.
    pub hidden: bool,
    /// Of the weight.
    pub weight: bool,
    /// Of the bias.
    pub bias: bool,
}

#[cfg(all(test, feature = "flex"))]
mod tests;
