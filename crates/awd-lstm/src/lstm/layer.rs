//! The LSTM layer with DropConnect as a Burn module.

use burn::config::Config;
use burn::module::{Initializer, Module, Param};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use highrank::Precision;

use super::{LstmBackend, LstmWeights, lstm_sequence};
use crate::dropout::weight_mask;

/// Configuration of an [`Lstm`].
#[derive(Config, Debug)]
pub struct LstmConfig {
    /// I, the width of the input.
    pub d_input: usize,
    /// H, the number of units.
    pub d_hidden: usize,
    /// What the inputs of matrix products are rounded to.
    #[config(default = "Precision::Full")]
    pub precision: Precision,
}

/// An LSTM layer whose recurrent weights can be dropped (DropConnect; arXiv 1708.02182, section 2).
///
/// Should be created with [`LstmConfig`]. The equations are those of [`crate::lstm`]. Shapes, row order and the
/// two biases are PyTorch's, so that weights can be exchanged.
#[derive(Module, Debug)]
pub struct Lstm<B: Backend> {
    /// Input weights `[4H, I]`, rows in the order input, forget, cell, output. Uniform(±1/√H).
    pub w_ih: Param<Tensor<B, 2>>,
    /// Recurrent weights `[4H, H]`. Uniform(±1/√H).
    pub w_hh: Param<Tensor<B, 2>>,
    /// Input bias `[4H]`. Uniform(±1/√H).
    pub b_ih: Param<Tensor<B, 1>>,
    /// Recurrent bias `[4H]`. Uniform(±1/√H).
    pub b_hh: Param<Tensor<B, 1>>,
    /// What the inputs of matrix products are rounded to.
    #[module(skip)]
    pub precision: Precision,
}

/// State of one LSTM layer between two chunks of a sequence.
#[derive(Clone, Debug)]
pub struct LstmState<B: Backend> {
    /// Hidden state h, `[B, H]`.
    pub hidden: Tensor<B, 2>,
    /// Cell state c, `[B, H]`.
    pub cell: Tensor<B, 2>,
}

impl LstmConfig {
    /// Makes the layer with random weights.
    ///
    /// # Panics
    ///
    /// If a size is 0.
    pub fn init<B: Backend>(&self, device: &B::Device) -> Lstm<B> {
        assert!(self.d_input > 0, "LstmConfig: d_input is 0, but must be at least 1");
        assert!(self.d_hidden > 0, "LstmConfig: d_hidden is 0, but must be at least 1");
        let bound = 1.0 / (self.d_hidden as f64).sqrt();
        let uniform = Initializer::Uniform { min: -bound, max: bound };
        let rows = 4 * self.d_hidden;
        Lstm {
            w_ih: uniform.init([rows, self.d_input], device),
            w_hh: uniform.init([rows, self.d_hidden], device),
            b_ih: uniform.init([rows], device),
            b_hh: uniform.init([rows], device),
            precision: self.precision,
        }
    }
}

impl<B: Backend> LstmState<B> {
    /// The state before any input: zeros `[batch, d_hidden]`, of the device's default float type.
    pub fn zeros(batch: usize, d_hidden: usize, device: &B::Device) -> Self {
        let zeros = Tensor::zeros([batch, d_hidden], device);
        Self { hidden: zeros.clone(), cell: zeros }
    }

    /// The same values without their history: no gradient flows into earlier chunks.
    pub fn detach(self) -> Self {
        Self { hidden: self.hidden.detach(), cell: self.cell.detach() }
    }
}

impl<B: Backend> Lstm<B> {
    /// I, the width of the input.
    pub fn d_input(&self) -> usize {
        self.w_ih.lazy_shape()[1]
    }

    /// H, the number of units.
    pub fn d_hidden(&self) -> usize {
        self.w_hh.lazy_shape()[1]
    }

    /// The state before any input: zeros `[batch, H]` on the weights' device and of their float type.
    pub fn zero_state(&self, batch: usize) -> LstmState<B> {
        let weights = self.w_hh.val();
        let zeros = Tensor::zeros([batch, self.d_hidden()], (&weights.device(), weights.dtype()));
        LstmState { hidden: zeros.clone(), cell: zeros }
    }
}

impl<B: LstmBackend> Lstm<B> {
    /// Runs the layer over a sequence.
    ///
    /// In training (on an autodiff backend) each recurrent weight is dropped with probability `weight_dropout`,
    /// the same ones in all steps, and the rest is scaled by `1/(1-p)`. The gradient is that of the raw weights.
    ///
    /// # Shapes
    ///
    /// - `x`: `[T, B, I]`, T at least 1
    /// - returns the hidden states `[T, B, H]` and the state after step T
    ///
    /// # Panics
    ///
    /// If a shape does not fit, or `weight_dropout` is not in [0, 1).
    pub fn forward(
        &self,
        x: Tensor<B, 3>,
        state: LstmState<B>,
        weight_dropout: f64,
    ) -> (Tensor<B, 3>, LstmState<B>) {
        let mask = weight_mask(&self.w_hh.val(), weight_dropout);
        self.forward_masked(x, state, mask)
    }

    /// Runs the layer with the given mask `[4H, H]` on the recurrent weights, in training or not.
    ///
    /// # Shapes
    ///
    /// As [`Lstm::forward`].
    ///
    /// # Panics
    ///
    /// If a shape does not fit.
    pub fn forward_masked(
        &self,
        x: Tensor<B, 3>,
        state: LstmState<B>,
        hh_mask: Option<Tensor<B, 2>>,
    ) -> (Tensor<B, 3>, LstmState<B>) {
        let weights = LstmWeights {
            w_ih: self.w_ih.val(),
            w_hh: self.w_hh.val(),
            b_ih: self.b_ih.val(),
            b_hh: self.b_hh.val(),
            hh_mask,
            precision: self.precision,
        };
        lstm_sequence(x, state, weights)
    }
}
