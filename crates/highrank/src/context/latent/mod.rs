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
#[cfg(feature = "gpu")]
pub(crate) mod cube;
#[cfg(feature = "flex")]
pub(crate) mod flex;
pub mod portable;

pub(crate) use autodiff::{inner, latent as on_autodiff};

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use crate::precision::Precision;

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
    /// Of the products.
    pub precision: Precision,
}

impl<B: Backend> LatentArgs<B> {
    /// The layer for tokens `start .. end`.
    pub(crate) fn slice(&self, start: usize, end: usize) -> Self {
        let mask = self.mask.clone().map(|mask| LatentMask { first: mask.first + start, ..mask });
        Self { hidden: self.hidden.clone().slice(start..end), mask, ..self.clone() }
    }
}

/// A locked dropout mask. A constant: no gradient flows to it.
#[derive(Debug, Clone)]
pub struct LatentMask<B: Backend> {
    /// 0 or `1/keep`, shape `[M, F]`: token n has row `(first + n) mod M`.
    pub values: Tensor<B, 2>,
    /// Where the first token stands.
    pub first: usize,
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
