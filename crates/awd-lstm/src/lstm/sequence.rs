//! The LSTM operation on users' tensors, with checked shapes.

use burn::backend::Dispatch;
use burn::tensor::Tensor;
use highrank_kernels::{Floats, Precision};

use super::backends::has_kernels;
use super::ops::{LstmArgs, LstmCall, LstmOps};
use super::portable;

/// State of one LSTM layer between two chunks of a sequence.
#[derive(Clone, Debug)]
pub struct LstmState {
    /// Hidden state h, `[B, H]`.
    pub hidden: Tensor<2>,
    /// Cell state c, `[B, H]`.
    pub cell: Tensor<2>,
}

impl LstmState {
    /// The same values without their history: no gradient flows into earlier chunks.
    pub fn detach(self) -> Self {
        Self { hidden: self.hidden.detach(), cell: self.cell.detach() }
    }
}

/// The weights of one layer, as [`lstm_sequence`] takes them.
#[derive(Clone, Debug)]
pub struct LstmWeights {
    /// Input weights `[4H, I]`.
    pub w_ih: Tensor<2>,
    /// Recurrent weights `[4H, H]`, before the mask.
    pub w_hh: Tensor<2>,
    /// Input bias `[4H]`.
    pub b_ih: Tensor<1>,
    /// Recurrent bias `[4H]`.
    pub b_hh: Tensor<1>,
    /// DropConnect mask `[4H, H]`, a constant.
    pub hh_mask: Option<Tensor<2>>,
    /// Precision of the products with the weights.
    pub precision: Precision,
}

/// Runs an LSTM layer over a sequence; the equations are at the top of this [module](super).
///
/// Any of the tensors may require gradients, and the others may have no association with autodiff at all.
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
pub fn lstm_sequence(x: Tensor<3>, state: LstmState, weights: LstmWeights) -> (Tensor<3>, LstmState) {
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

    let device = x.device();
    let args = arguments(x, state, weights);
    let packed = match has_kernels(device.as_dispatch()) {
        true => Floats::new(<Dispatch as LstmOps>::lstm(LstmCall(args))),
        false => portable::forward(args),
    };
    unpacked(packed)
}

pub(super) fn arguments(x: Tensor<3>, state: LstmState, weights: LstmWeights) -> LstmArgs<Floats> {
    LstmArgs {
        x: x.into(),
        h0: state.hidden.into(),
        c0: state.cell.into(),
        w_ih: weights.w_ih.into(),
        w_hh: weights.w_hh.into(),
        b_ih: weights.b_ih.into(),
        b_hh: weights.b_hh.into(),
        hh_mask: weights.hh_mask.map(Floats::from),
        precision: weights.precision,
    }
}

/// The hidden states and the last state of a [packed](super::LstmKernels) result.
pub(super) fn unpacked(packed: Floats) -> (Tensor<3>, LstmState) {
    let packed: Tensor<3> = packed.tensor();
    let [rows, batch, d_hidden] = packed.dims();
    let row = |n| packed.clone().narrow(0, n, 1).reshape([batch, d_hidden]);
    let (cell, hidden) = (row(rows - 1), row(rows - 2));
    (packed.narrow(0, 0, rows - 1), LstmState { hidden, cell })
}
