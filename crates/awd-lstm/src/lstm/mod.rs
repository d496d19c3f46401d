//! The LSTM layer as one operation over the whole sequence.
//!
//! For T steps, B sequences, I inputs and H units, with the rows of all weights in the order
//! input, forget, cell, output:
//!
//! ```text
//! U = w_hh ∘ hh_mask                                     (DropConnect: the same mask in all steps)
//! i, f, g, o = split(x_t w_ihᵀ + b_ih + h_{t-1} Uᵀ + b_hh)
//! c_t = sigmoid(f) ∘ c_{t-1} + sigmoid(i) ∘ tanh(g)
//! h_t = sigmoid(o) ∘ tanh(c_t)
//! ```
//!
//! A layer written in tensor operations records dozens of small nodes a step. Here the sequence is one
//! node: one product makes the input part of all steps, one recurrent product a step remains, and the
//! backward pass needs one recurrent product a step and one product per weight over all steps.
//!
//! [`LstmBackend`] extends Burn's `Backend`. Its default bodies ([`mod@portable`]) run on every backend, so a
//! backend opts in by an empty `impl`; the backward pass for `Autodiff` is written once, over any of them.
//! The equations and the mask on the recurrent weight are those of AWD-LSTM (arXiv 1708.02182, section 2).

mod autodiff;
#[cfg(feature = "gpu")]
mod cube;
#[cfg(feature = "flex")]
mod flex;
mod layer;
mod mask;
pub mod portable;
#[cfg(all(test, feature = "flex"))]
mod tests;

use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{DType, Tensor, TensorPrimitive};

use highrank::Precision;

pub use layer::{Lstm, LstmConfig, LstmState};

/// What the operation reads. All tensors share one float type and one device.
#[derive(Clone, Debug)]
pub struct LstmArgs<B: Backend> {
    /// Inputs `[T, B, I]`, T at least 1.
    pub x: FloatTensor<B>,
    /// Hidden state before the first step, `[B, H]`.
    pub h0: FloatTensor<B>,
    /// Cell state before the first step, `[B, H]`.
    pub c0: FloatTensor<B>,
    /// Input weights `[4H, I]`.
    pub w_ih: FloatTensor<B>,
    /// Recurrent weights `[4H, H]`, before the mask.
    pub w_hh: FloatTensor<B>,
    /// Input bias `[4H]`.
    pub b_ih: FloatTensor<B>,
    /// Recurrent bias `[4H]`. It has the same gradient as `b_ih`; PyTorch's layer has both.
    pub b_hh: FloatTensor<B>,
    /// DropConnect mask `[4H, H]` of zeros and `1/(1-p)`. A constant: no gradient flows to it.
    pub hh_mask: Option<FloatTensor<B>>,
    /// Of the products.
    pub precision: Precision,
}

/// What the forward pass keeps for the backward pass.
#[derive(Clone, Debug)]
pub struct LstmSaved<B: Backend> {
    /// Gates after their sigmoid or tanh, `[T, B, 4H]`.
    pub gates: FloatTensor<B>,
    /// Cell states after each step, `[T, B, H]`.
    pub cells: FloatTensor<B>,
    /// The recurrent weights that were used, `w_hh ∘ hh_mask`, `[4H, H]`.
    pub recurrent: FloatTensor<B>,
}

/// Which gradients the backward pass must make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LstmWanted {
    /// Of the inputs.
    pub x: bool,
    /// Of the first hidden state.
    pub h0: bool,
    /// Of the first cell state.
    pub c0: bool,
    /// Of the input weights.
    pub w_ih: bool,
    /// Of the raw recurrent weights.
    pub w_hh: bool,
    /// Of either bias: the two gradients are equal.
    pub bias: bool,
}

/// Gradients, each of its tensor's shape, and present if wanted.
#[derive(Clone, Debug)]
pub struct LstmGrads<B: Backend> {
    /// Of the inputs, `[T, B, I]`.
    pub x: Option<FloatTensor<B>>,
    /// Of the first hidden state, `[B, H]`.
    pub h0: Option<FloatTensor<B>>,
    /// Of the first cell state, `[B, H]`.
    pub c0: Option<FloatTensor<B>>,
    /// Of the input weights, `[4H, I]`.
    pub w_ih: Option<FloatTensor<B>>,
    /// Of the raw recurrent weights, `[4H, H]`: zero where the mask is.
    pub w_hh: Option<FloatTensor<B>>,
    /// Of either bias, `[4H]`.
    pub bias: Option<FloatTensor<B>>,
}

/// A backend that can run an LSTM over a whole sequence.
///
/// Results are *packed*, because a node of the autodiff graph has one output: `[T + 1, B, H]`, rows
/// 0 to T - 1 the hidden states h_1 … h_T, row T the final cell state c_T. [`lstm_sequence`] is the checked
/// function over tensors; these methods take shapes on trust.
///
/// Cost: `8 T B H (I + H)` floating-point operations forward, twice that backward.
/// The float type of the arguments is kept; nothing is computed in the backend's default type.
pub trait LstmBackend: Backend {
    /// The packed result. On an `Autodiff` backend it is differentiable.
    fn lstm(args: LstmArgs<Self>) -> FloatTensor<Self> {
        portable::forward(args)
    }

    /// The packed result and what [`LstmBackend::lstm_backward`] needs besides.
    fn lstm_with_saved(args: LstmArgs<Self>) -> (FloatTensor<Self>, LstmSaved<Self>) {
        portable::forward_with_saved(args)
    }

    /// Gradients of a loss whose gradient with respect to the packed result `packed` is `grad`.
    ///
    /// `args`, `packed` and `saved` are those of [`LstmBackend::lstm_with_saved`].
    fn lstm_backward(
        args: LstmArgs<Self>,
        packed: FloatTensor<Self>,
        saved: LstmSaved<Self>,
        grad: FloatTensor<Self>,
        wanted: LstmWanted,
    ) -> LstmGrads<Self> {
        portable::backward(args, packed, saved, grad, wanted)
    }

    /// A DropConnect mask: 0 with probability `p`, otherwise `1/(1 − p)`, by the backend's seed.
    fn drop_connect_mask(
        shape: [usize; 2],
        p: f64,
        device: &Self::Device,
        dtype: DType,
    ) -> FloatTensor<Self> {
        mask::portable::<Self>(shape, p, device, dtype)
    }
}

/// The weights of one layer, as [`lstm_sequence`] takes them.
#[derive(Clone, Debug)]
pub struct LstmWeights<B: Backend> {
    /// Input weights `[4H, I]`.
    pub w_ih: Tensor<B, 2>,
    /// Recurrent weights `[4H, H]`, before the mask.
    pub w_hh: Tensor<B, 2>,
    /// Input bias `[4H]`.
    pub b_ih: Tensor<B, 1>,
    /// Recurrent bias `[4H]`.
    pub b_hh: Tensor<B, 1>,
    /// DropConnect mask `[4H, H]`, a constant.
    pub hh_mask: Option<Tensor<B, 2>>,
    /// Of the products with the weights.
    pub precision: Precision,
}

/// Runs an LSTM layer over a sequence; the equations are at the top of this [module](self).
///
/// # Shapes
///
/// - `x`: `[T, B, I]`, T at least 1
/// - `state`: two times `[B, H]`
/// - returns the hidden states `[T, B, H]` and the state after step T
///
/// # Panics
///
/// If a shape does not fit the others, with both sizes in the message.
pub fn lstm_sequence<B: LstmBackend>(
    x: Tensor<B, 3>,
    state: LstmState<B>,
    weights: LstmWeights<B>,
) -> (Tensor<B, 3>, LstmState<B>) {
    let [steps, batch, d_input] = x.dims();
    let [rows, d_hidden] = weights.w_hh.dims();
    assert!(steps > 0, "lstm: the sequence has no steps, but needs at least 1");
    let expect = |name: &str, got: &[usize], want: &[usize]| {
        assert!(got == want, "lstm: {name} has the shape {got:?}, but must have {want:?}");
    };
    expect("w_hh", &[rows, d_hidden], &[4 * d_hidden, d_hidden]);
    expect("w_ih", &weights.w_ih.dims(), &[rows, d_input]);
    expect("b_ih", &weights.b_ih.dims(), &[rows]);
    expect("b_hh", &weights.b_hh.dims(), &[rows]);
    if let Some(mask) = &weights.hh_mask {
        expect("hh_mask", &mask.dims(), &[rows, d_hidden]);
    }
    expect("the hidden state", &state.hidden.dims(), &[batch, d_hidden]);
    expect("the cell state", &state.cell.dims(), &[batch, d_hidden]);

    let packed: Tensor<B, 3> = from_primitive(B::lstm(LstmArgs {
        x: primitive(x),
        h0: primitive(state.hidden),
        c0: primitive(state.cell),
        w_ih: primitive(weights.w_ih),
        w_hh: primitive(weights.w_hh),
        b_ih: primitive(weights.b_ih),
        b_hh: primitive(weights.b_hh),
        hh_mask: weights.hh_mask.map(primitive),
        precision: weights.precision,
    }));
    let cell = packed.clone().narrow(0, steps, 1).reshape([batch, d_hidden]);
    let hidden = packed.clone().narrow(0, steps - 1, 1).reshape([batch, d_hidden]);
    (packed.narrow(0, 0, steps), LstmState { hidden, cell })
}

/// A tensor's primitive.
fn primitive<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> FloatTensor<B> {
    tensor.into_primitive().tensor()
}

/// The tensor of a primitive.
fn from_primitive<B: Backend, const D: usize>(primitive: FloatTensor<B>) -> Tensor<B, D> {
    Tensor::from_primitive(TensorPrimitive::Float(primitive))
}
