//! What the latent layer of a mixture reads and which gradients it has.

use std::sync::Arc;

use burn::backend::Backend;
use highrank_kernels::precision::wide;
use highrank_kernels::{Floats, Precision};

use super::inputs::per_input;

/// Inputs of the latent layer `h = tanh(g·W + b) ∘ mask`.
#[derive(Debug, Clone)]
pub struct LatentArgs<F = Floats> {
    /// `g`, shape `[N, H]`.
    pub hidden: F,
    /// `W`, shape `[H, F]`, `F = K·d`.
    pub weight: F,
    /// `b`, shape `[F]`; `None` means 0.
    pub bias: Option<F>,
    /// Dropout; `None` means that all features are kept.
    pub mask: Option<LatentMask<F>>,
    /// Of the products.
    pub precision: Precision,
}

/// A locked dropout mask. A constant: no gradient flows to it.
#[derive(Debug, Clone)]
pub struct LatentMask<F = Floats> {
    /// 0 or `1/keep`, shape `[M, F]`.
    pub values: F,
    /// The row of each token: token n has row `rows[first + n]`; without a list, row `(first + n) mod M`.
    pub rows: Option<Arc<[u32]>>,
    /// Where the first token stands.
    pub first: usize,
    /// Probability of keeping a feature.
    pub keep: f64,
}

impl<F> LatentArgs<F> {
    /// The same layer with each tensor changed by `f`.
    pub fn map<G>(self, mut f: impl FnMut(F) -> G) -> LatentArgs<G> {
        LatentArgs {
            hidden: f(self.hidden),
            weight: f(self.weight),
            bias: self.bias.map(&mut f),
            mask: self.mask.map(|mask| LatentMask {
                values: f(mask.values),
                rows: mask.rows,
                first: mask.first,
                keep: mask.keep,
            }),
            precision: self.precision,
        }
    }

    /// The inputs that may be differentiated.
    pub fn inputs(&self) -> LatentInputs<Option<&F>> {
        LatentInputs { hidden: Some(&self.hidden), weight: Some(&self.weight), bias: self.bias.as_ref() }
    }
}

impl<F> LatentMask<F> {
    /// The row of token `n`, of `period` rows.
    pub fn row(&self, n: usize, period: usize) -> usize {
        match &self.rows {
            Some(rows) => rows[self.first + n] as usize,
            None => (self.first + n) % period,
        }
    }
}

impl<B: Backend> LatentArgs<Floats<B>> {
    /// The same layer with all tensors in the type of sums.
    pub fn widened(self) -> Self {
        let dtype = wide(self.weight.dtype());
        self.map(|tensor| tensor.cast(dtype))
    }

    /// The layer for tokens `start .. end`.
    pub fn slice(&self, start: usize, end: usize) -> Self {
        let mask = self.mask.clone().map(|mask| LatentMask { first: mask.first + start, ..mask });
        Self { hidden: self.hidden.clone().rows(start..end), mask, ..self.clone() }
    }
}

per_input! {
    /// A value for each input of the latent layer that may be differentiated.
    pub struct LatentInputs {
        /// Of the hidden state, `[N, H]`.
        hidden,
        /// Of the weight, `[H, F]`.
        weight,
        /// Of the bias, `[F]`.
        bias,
    }
    /// Gradients of the latent layer, each of its tensor's shape; `None` where not wanted or without such an input.
    pub type LatentGradients;
    /// Which gradients of the latent layer are asked for.
    pub type LatentWanted;
}
