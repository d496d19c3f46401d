//! The LSTM layer with DropConnect as a Burn module.

use burn::config::Config;
use burn::module::{Initializer, Module, Param};
use burn::tensor::{Device, Tensor};
use highrank_kernels::Precision;

use super::mask::weight_mask;
use super::sequence::{LstmState, LstmWeights, lstm_sequence};

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
pub struct Lstm {
    /// Input weights `[4H, I]`, rows in the order input, forget, cell, output. Uniform(±1/√H).
    pub w_ih: Param<Tensor<2>>,
    /// Recurrent weights `[4H, H]`. Uniform(±1/√H).
    pub w_hh: Param<Tensor<2>>,
    /// Input bias `[4H]`. Uniform(±1/√H).
    pub b_ih: Param<Tensor<1>>,
    /// Recurrent bias `[4H]`. Uniform(±1/√H).
    pub b_hh: Param<Tensor<1>>,
    /// What the inputs of matrix products are rounded to.
    #[module(skip)]
    pub precision: Precision,
}

impl LstmConfig {
    /// Makes the layer with random weights.
    ///
    /// # Panics
    ///
    /// If a size is 0.
    pub fn init(&self, device: &Device) -> Lstm {
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

impl Lstm {
    /// H, the number of units.
    pub fn d_hidden(&self) -> usize {
        self.w_hh.lazy_shape()[1]
    }

    /// The state before any input: zeros `[batch, H]` on the weights' device and of their float type.
    pub fn zero_state(&self, batch: usize) -> LstmState {
        let weights = self.w_hh.val();
        let zeros = Tensor::zeros([batch, self.d_hidden()], (&weights.device(), weights.dtype()));
        LstmState { hidden: zeros.clone(), cell: zeros }
    }

    /// Runs the layer over a sequence.
    ///
    /// In training (on an autodiff device) each recurrent weight is dropped with probability `weight_dropout`,
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
    pub fn forward(&self, x: Tensor<3>, state: LstmState, weight_dropout: f64) -> (Tensor<3>, LstmState) {
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
        x: Tensor<3>,
        state: LstmState,
        hh_mask: Option<Tensor<2>>,
    ) -> (Tensor<3>, LstmState) {
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
