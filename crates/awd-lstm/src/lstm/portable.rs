//! The LSTM operation in Burn's own tensor operations: the default of every backend, and the reference that
//! native kernels are tested against. Shapes and the packed layout are those of [`LstmBackend`](super::LstmBackend).

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;

use highrank::precision::{Precision, product};

use super::{LstmArgs, LstmGrads, LstmSaved, LstmWanted, from_primitive, primitive};

/// The packed result `[T + 1, B, H]`, with nothing kept for a backward pass.
pub fn forward<B: Backend>(args: LstmArgs<B>) -> FloatTensor<B> {
    run(args, None).0
}

/// The packed result `[T + 1, B, H]` and what [`backward`] needs.
pub fn forward_with_saved<B: Backend>(args: LstmArgs<B>) -> (FloatTensor<B>, LstmSaved<B>) {
    let mut steps = Steps { gates: Vec::new(), cells: Vec::new() };
    let (packed, recurrent) = run(args, Some(&mut steps));
    let gates = primitive(Tensor::cat(steps.gates, 0));
    let cells = primitive(Tensor::cat(steps.cells, 0));
    (packed, LstmSaved { gates, cells, recurrent })
}

/// Activations of each step, `[1, B, 4H]` and `[1, B, H]`.
struct Steps<B: Backend> {
    gates: Vec<Tensor<B, 3>>,
    cells: Vec<Tensor<B, 3>>,
}

/// A product of two matrices.
pub(super) type Multiply<B> = fn(Tensor<B, 2>, Tensor<B, 2>, Precision) -> Tensor<B, 2>;

/// The products that do not wait for a step.
pub(super) struct Products<B: Backend> {
    /// `w_hh ∘ hh_mask`, `[4H, H]`.
    pub(super) recurrent: Tensor<B, 2>,
    /// `x w_ihᵀ + b_ih + b_hh` of all steps, `[T·B, 4H]`.
    pub(super) inputs: Tensor<B, 2>,
}

pub(super) fn products<B: Backend>(args: &LstmArgs<B>, multiply: Multiply<B>) -> Products<B> {
    let x: Tensor<B, 3> = from_primitive(args.x.clone());
    let w_ih: Tensor<B, 2> = from_primitive(args.w_ih.clone());
    let w_hh: Tensor<B, 2> = from_primitive(args.w_hh.clone());
    let b_ih: Tensor<B, 1> = from_primitive(args.b_ih.clone());
    let b_hh: Tensor<B, 1> = from_primitive(args.b_hh.clone());
    let [steps, batch, d_input] = x.dims();
    let recurrent = match &args.hh_mask {
        Some(mask) => w_hh * from_primitive(mask.clone()),
        None => w_hh,
    };
    let product = multiply(x.reshape([steps * batch, d_input]), w_ih.transpose(), args.precision);
    let inputs = product + (b_ih + b_hh).unsqueeze();
    Products { recurrent, inputs }
}

/// The packed result and the recurrent weights that were used.
fn run<B: Backend>(args: LstmArgs<B>, mut keep: Option<&mut Steps<B>>) -> (FloatTensor<B>, FloatTensor<B>) {
    let precision = args.precision;
    let Products { recurrent, inputs } = products(&args, product);
    let mut hidden: Tensor<B, 2> = from_primitive(args.h0);
    let mut cell: Tensor<B, 2> = from_primitive(args.c0);
    let [batch, h] = hidden.dims();
    let [rows, _] = recurrent.dims();
    let steps = inputs.dims()[0] / batch;
    let recurrent_t = precision.round(recurrent.clone().transpose());

    let mut packed = Vec::with_capacity(steps + 1);
    for t in 0..steps {
        // The product first: it owns its memory, so a CPU backend can add into it.
        let z =
            precision.round(hidden).matmul(recurrent_t.clone()) + inputs.clone().narrow(0, t * batch, batch);
        let input_forget = sigmoid(z.clone().narrow(1, 0, 2 * h));
        let candidate = z.clone().narrow(1, 2 * h, h).tanh();
        let output = sigmoid(z.narrow(1, 3 * h, h));
        let input = input_forget.clone().narrow(1, 0, h);
        let forget = input_forget.clone().narrow(1, h, h);

        cell = cell * forget + input * candidate.clone();
        hidden = cell.clone().tanh() * output.clone();
        if let Some(kept) = &mut keep {
            let gates = Tensor::cat(vec![input_forget, candidate, output], 1);
            kept.gates.push(gates.reshape([1, batch, rows]));
            kept.cells.push(cell.clone().reshape([1, batch, h]));
        }
        packed.push(hidden.clone().reshape([1, batch, h]));
    }
    packed.push(cell.reshape([1, batch, h]));
    (primitive(Tensor::cat(packed, 0)), primitive(recurrent))
}

/// Gradients from the gradient `grad` of the packed result, `[T + 1, B, H]`.
///
/// With z the gates before their nonlinearity, `dh`, `dc` the gradients of h_t and c_t, and
/// sigmoid' = s(1 - s), tanh' = 1 - tanh²:
///
/// ```text
/// dh  = grad_t + dz_{t+1} U             dc  = dc_{t+1} ∘ f_{t+1} + dh ∘ o ∘ (1 - tanh² c_t)
/// dz  = (dc∘g∘i(1-i),  dc∘c_{t-1}∘f(1-f),  dc∘i∘(1-g²),  dh∘tanh(c_t)∘o(1-o))
/// dx  = dz w_ih     dw_ih = Σ_t dzᵀ x_t     dw_hh = (Σ_t dzᵀ h_{t-1}) ∘ mask     db = Σ_t Σ_batch dz
/// ```
pub fn backward<B: Backend>(
    args: LstmArgs<B>,
    packed: FloatTensor<B>,
    saved: LstmSaved<B>,
    grad: FloatTensor<B>,
    wanted: LstmWanted,
) -> LstmGrads<B> {
    let c0: Tensor<B, 2> = from_primitive(args.c0.clone());
    let gates: Tensor<B, 3> = from_primitive(saved.gates);
    let cells: Tensor<B, 3> = from_primitive(saved.cells);
    let precision = args.precision;
    let recurrent: Tensor<B, 2> = precision.round(from_primitive(saved.recurrent));
    let grad: Tensor<B, 3> = from_primitive(grad);
    let [steps, batch, rows] = gates.dims();
    let h = rows / 4;

    // All that does not depend on the recurrence, for all steps at once: dz = (dc, dc, dc, dh) ∘ local.
    let input = gates.clone().narrow(2, 0, h);
    let forget = gates.clone().narrow(2, h, h);
    let candidate = gates.clone().narrow(2, 2 * h, h);
    let output = gates.narrow(2, 3 * h, h);
    let tanh_cells = cells.clone().tanh();
    let cells_before = shifted(c0, cells, steps);
    let local = Tensor::cat(
        vec![
            slope_of_sigmoid(input.clone()) * candidate.clone(),
            slope_of_sigmoid(forget.clone()) * cells_before,
            slope_of_tanh(candidate) * input,
            slope_of_sigmoid(output.clone()) * tanh_cells.clone(),
        ],
        2,
    );
    let hidden_to_cell = slope_of_tanh(tanh_cells) * output;

    let at = |tensor: &Tensor<B, 3>, t: usize, width: usize| {
        tensor.clone().narrow(0, t, 1).reshape([batch, width])
    };
    let mut d_cell = at(&grad, steps, h);
    let mut from_next: Option<Tensor<B, 2>> = None;
    let mut d_gates = Vec::with_capacity(steps);
    for t in (0..steps).rev() {
        let d_hidden = match from_next.take() {
            Some(next) => next + at(&grad, t, h),
            None => at(&grad, t, h),
        };
        d_cell = d_cell + at(&hidden_to_cell, t, h) * d_hidden.clone();
        let upstream = Tensor::cat(vec![d_cell.clone(), d_cell.clone(), d_cell.clone(), d_hidden], 1);
        let dz = upstream * at(&local, t, rows);
        if t > 0 || wanted.h0 {
            from_next = Some(precision.round(dz.clone()).matmul(recurrent.clone()));
        }
        d_gates.push(dz);
        d_cell = d_cell * at(&forget, t, h);
    }
    d_gates.reverse();
    let made = Recurrence { d_gates: Tensor::cat(d_gates, 0), d_hidden: from_next, d_cell };
    gradients(args, packed, made, wanted, product)
}

/// What the backward pass through the steps comes to.
pub(super) struct Recurrence<B: Backend> {
    /// `dz` of all steps, `[T·B, 4H]`.
    pub(super) d_gates: Tensor<B, 2>,
    /// Gradient of the first hidden state, if wanted.
    pub(super) d_hidden: Option<Tensor<B, 2>>,
    /// Gradient of the first cell state.
    pub(super) d_cell: Tensor<B, 2>,
}

/// The gradients of inputs and weights: one product each over all steps.
pub(super) fn gradients<B: Backend>(
    args: LstmArgs<B>,
    packed: FloatTensor<B>,
    made: Recurrence<B>,
    wanted: LstmWanted,
    multiply: Multiply<B>,
) -> LstmGrads<B> {
    let Recurrence { d_gates, d_hidden, d_cell } = made;
    let precision = args.precision;
    let x: Tensor<B, 3> = from_primitive(args.x);
    let h0: Tensor<B, 2> = from_primitive(args.h0);
    let packed: Tensor<B, 3> = from_primitive(packed);
    let [steps, batch, d_input] = x.dims();
    let [_, rows] = d_gates.dims();
    let h = rows / 4;
    let d_bias = wanted.bias.then(|| primitive(d_gates.clone().sum_dim(0).reshape([rows])));
    let d_x = wanted.x.then(|| {
        let dx = multiply(d_gates.clone(), from_primitive(args.w_ih), precision);
        primitive(dx.reshape([steps, batch, d_input]))
    });
    let d_gates_t = d_gates.transpose();
    let d_w_ih = wanted
        .w_ih
        .then(|| primitive(multiply(d_gates_t.clone(), x.reshape([steps * batch, d_input]), precision)));
    let d_w_hh = wanted.w_hh.then(|| {
        let hidden_before = shifted(h0, packed, steps).reshape([steps * batch, h]);
        let product = multiply(d_gates_t, hidden_before, precision);
        primitive(match args.hh_mask {
            Some(mask) => product * from_primitive(mask),
            None => product,
        })
    });
    LstmGrads {
        x: d_x,
        h0: d_hidden.filter(|_| wanted.h0).map(primitive),
        c0: wanted.c0.then(|| primitive(d_cell)),
        w_ih: d_w_ih,
        w_hh: d_w_hh,
        bias: d_bias,
    }
}

/// `sigmoid(x) = (1 + tanh(x/2)) / 2`. Burn's own computes in f32 for f64 tensors of some backends.
fn sigmoid<B: Backend, const D: usize>(x: Tensor<B, D>) -> Tensor<B, D> {
    x.mul_scalar(0.5).tanh().add_scalar(1.0).mul_scalar(0.5)
}

/// `s(1 - s)`, the slope of a sigmoid whose value is s.
fn slope_of_sigmoid<B: Backend, const D: usize>(s: Tensor<B, D>) -> Tensor<B, D> {
    s.clone().neg().add_scalar(1) * s
}

/// `1 - y²`, the slope of a tanh whose value is y.
fn slope_of_tanh<B: Backend, const D: usize>(y: Tensor<B, D>) -> Tensor<B, D> {
    (y.clone() * y).neg().add_scalar(1)
}

/// The states before each of `steps` steps, from the first one and those after each step.
fn shifted<B: Backend>(first: Tensor<B, 2>, after: Tensor<B, 3>, steps: usize) -> Tensor<B, 3> {
    let first = first.unsqueeze();
    if steps == 1 { first } else { Tensor::cat(vec![first, after.narrow(0, 0, steps - 1)], 0) }
}
