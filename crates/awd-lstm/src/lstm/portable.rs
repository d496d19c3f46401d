//! The LSTM operation composed of the backend's own tensor operations: the reference that native kernels are tested against,
//! and what runs where there are none.
//!
//! At the dispatched backend, the default of [`Floats`], it runs on every device and is differentiable by composition. Shapes
//! and the packed layout are those of [`LstmKernels`](super::LstmKernels).

use burn::backend::Backend;
use highrank_kernels::precision::{Precision, product};
use highrank_kernels::{Floats, Rounding};

use super::ops::{LstmArgs, LstmGrads, LstmSaved, LstmWanted};

/// The packed result `[T + 1, B, H]`, with nothing kept for a backward pass.
pub fn forward<B: Rounding>(args: LstmArgs<Floats<B>>) -> Floats<B> {
    run(args, None).0
}

/// The packed result `[T + 1, B, H]` and what [`backward`] needs.
pub fn forward_with_saved<B: Rounding>(args: LstmArgs<Floats<B>>) -> (Floats<B>, LstmSaved<Floats<B>>) {
    let mut steps = Steps { gates: Vec::new(), cells: Vec::new() };
    let (packed, recurrent) = run(args, Some(&mut steps));
    let (gates, cells) = (Floats::cat(steps.gates, 0), Floats::cat(steps.cells, 0));
    (packed, LstmSaved { gates, cells, recurrent })
}

/// Activations of each step, `[1, B, 4H]` and `[1, B, H]`.
struct Steps<B: Backend> {
    gates: Vec<Floats<B>>,
    cells: Vec<Floats<B>>,
}

/// A product of two matrices.
pub(super) type Multiply<B> = fn(Floats<B>, Floats<B>, Precision) -> Floats<B>;

/// The products that do not wait for a step.
pub(super) struct Products<B: Backend> {
    /// `w_hh ∘ hh_mask`, `[4H, H]`.
    pub(super) recurrent: Floats<B>,
    /// `x w_ihᵀ + b_ih + b_hh` of all steps, `[T·B, 4H]`.
    pub(super) inputs: Floats<B>,
}

pub(super) fn products<B: Backend>(args: &LstmArgs<Floats<B>>, multiply: Multiply<B>) -> Products<B> {
    let LstmArgs { x, w_ih, w_hh, b_ih, b_hh, hh_mask, precision, .. } = args.clone();
    let [steps, batch, d_input] = x.dims();
    let [rows] = b_ih.dims();
    let recurrent = match hh_mask {
        Some(mask) => w_hh * mask,
        None => w_hh,
    };
    // The product of two half-precision matrices is in f32.
    let dtype = x.dtype();
    let product = multiply(x.reshape([steps * batch, d_input]), w_ih.transpose(), precision);
    let inputs = product.cast(dtype) + (b_ih + b_hh).reshape([1, rows]);
    Products { recurrent, inputs }
}

/// The packed result, and the recurrent weights in use.
fn run<B: Rounding>(args: LstmArgs<Floats<B>>, mut keep: Option<&mut Steps<B>>) -> (Floats<B>, Floats<B>) {
    let precision = args.precision;
    let Products { recurrent, inputs } = products(&args, product);
    let (mut hidden, mut cell) = (args.h0, args.c0);
    let [batch, h] = hidden.dims();
    let [rows, _] = recurrent.dims();
    let [all, _] = inputs.dims();
    let steps = all / batch;
    let recurrent_t = precision.rounded(recurrent.clone().transpose());

    let mut packed = Vec::with_capacity(steps + 1);
    for t in 0..steps {
        // The product first: it owns its memory, so a CPU backend can add into it.
        let product = precision.rounded(hidden).matmul(recurrent_t.clone());
        let z = product + inputs.clone().rows(t * batch..(t + 1) * batch);
        let input_forget = sigmoid(z.clone().narrow(1, 0..2 * h));
        let candidate = z.clone().narrow(1, 2 * h..3 * h).tanh();
        let output = sigmoid(z.narrow(1, 3 * h..4 * h));
        let input = input_forget.clone().narrow(1, 0..h);
        let forget = input_forget.clone().narrow(1, h..2 * h);

        cell = cell * forget + input * candidate.clone();
        hidden = cell.clone().tanh() * output.clone();
        if let Some(kept) = &mut keep {
            let gates = Floats::cat(vec![input_forget, candidate, output], 1);
            kept.gates.push(gates.reshape([1, batch, rows]));
            kept.cells.push(cell.clone().reshape([1, batch, h]));
        }
        packed.push(hidden.clone().reshape([1, batch, h]));
    }
    packed.push(cell.reshape([1, batch, h]));
    (Floats::cat(packed, 0), recurrent)
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
pub fn backward<B: Rounding>(
    args: LstmArgs<Floats<B>>,
    packed: Floats<B>,
    saved: LstmSaved<Floats<B>>,
    grad: Floats<B>,
    wanted: LstmWanted,
) -> LstmGrads<Floats<B>> {
    let LstmSaved { gates, cells, recurrent } = saved;
    let precision = args.precision;
    let recurrent = precision.rounded(recurrent);
    let [steps, batch, rows] = gates.dims();
    let h = rows / 4;

    // All that does not depend on the recurrence, for all steps at once: dz = (dc, dc, dc, dh) ∘ local.
    let gate = |n: usize| gates.clone().narrow(2, n * h..(n + 1) * h);
    let (input, forget, candidate, output) = (gate(0), gate(1), gate(2), gate(3));
    let tanh_cells = cells.clone().tanh();
    let cells_before = shifted(args.c0.clone(), cells, steps);
    let local = Floats::cat(
        vec![
            slope_of_sigmoid(input.clone()) * candidate.clone(),
            slope_of_sigmoid(forget.clone()) * cells_before,
            slope_of_tanh(candidate) * input,
            slope_of_sigmoid(output.clone()) * tanh_cells.clone(),
        ],
        2,
    );
    let hidden_to_cell = slope_of_tanh(tanh_cells) * output;

    let at =
        |tensor: &Floats<B>, t: usize, width: usize| tensor.clone().rows(t..t + 1).reshape([batch, width]);
    let mut d_cell = at(&grad, steps, h);
    let mut from_next: Option<Floats<B>> = None;
    let mut d_gates = Vec::with_capacity(steps);
    for t in (0..steps).rev() {
        let d_hidden = match from_next.take() {
            Some(next) => next + at(&grad, t, h),
            None => at(&grad, t, h),
        };
        d_cell = d_cell + at(&hidden_to_cell, t, h) * d_hidden.clone();
        let upstream = Floats::cat(vec![d_cell.clone(), d_cell.clone(), d_cell.clone(), d_hidden], 1);
        let dz = upstream * at(&local, t, rows);
        if t > 0 || wanted.h0 {
            from_next = Some(precision.rounded(dz.clone()).matmul(recurrent.clone()));
        }
        d_gates.push(dz);
        d_cell = d_cell * at(&forget, t, h);
    }
    d_gates.reverse();
    let made = Recurrence { d_gates: Floats::cat(d_gates, 0), d_hidden: from_next, d_cell };
    gradients(args, packed, made, wanted, product)
}

/// The result of the backward pass through the steps.
pub(super) struct Recurrence<B: Backend> {
    /// `dz` of all steps, `[T·B, 4H]`.
    pub(super) d_gates: Floats<B>,
    /// Gradient of the first hidden state, if wanted.
    pub(super) d_hidden: Option<Floats<B>>,
    /// Gradient of the first cell state.
    pub(super) d_cell: Floats<B>,
}

/// The gradients of inputs and weights: one product each over all steps.
pub(super) fn gradients<B: Backend>(
    args: LstmArgs<Floats<B>>,
    packed: Floats<B>,
    made: Recurrence<B>,
    wanted: LstmWanted,
    multiply: Multiply<B>,
) -> LstmGrads<Floats<B>> {
    let Recurrence { d_gates, d_hidden, d_cell } = made;
    let LstmArgs { x, h0, w_ih, hh_mask, precision, .. } = args;
    let [steps, batch, d_input] = x.dims();
    let [_, rows] = d_gates.dims();
    let h = rows / 4;
    let d_bias = wanted.bias.then(|| d_gates.clone().sum_dim(0).reshape([rows]));
    let dtype = x.dtype();
    let multiply = |lhs, rhs| multiply(lhs, rhs, precision).cast(dtype);
    let d_x = wanted.x.then(|| multiply(d_gates.clone(), w_ih).reshape([steps, batch, d_input]));
    let d_gates_t = d_gates.transpose();
    let d_w_ih = wanted.w_ih.then(|| multiply(d_gates_t.clone(), x.reshape([steps * batch, d_input])));
    let d_w_hh = wanted.w_hh.then(|| {
        let hidden_before = shifted(h0, packed, steps).reshape([steps * batch, h]);
        let product = multiply(d_gates_t, hidden_before);
        match hh_mask {
            Some(mask) => product * mask,
            None => product,
        }
    });
    LstmGrads {
        x: d_x,
        h0: d_hidden.filter(|_| wanted.h0),
        c0: wanted.c0.then_some(d_cell),
        w_ih: d_w_ih,
        w_hh: d_w_hh,
        bias: d_bias,
    }
}

/// `sigmoid(x) = (1 + tanh(x/2)) / 2`. Burn's own computes in f32 for f64 tensors of some backends.
fn sigmoid<B: Backend>(x: Floats<B>) -> Floats<B> {
    x.mul_scalar(0.5).tanh().add_scalar(1.0).mul_scalar(0.5)
}

/// `s(1 - s)`, the slope of a sigmoid whose value is s.
fn slope_of_sigmoid<B: Backend>(s: Floats<B>) -> Floats<B> {
    (-s.clone()).add_scalar(1.0) * s
}

/// `1 - y²`, the slope of a tanh whose value is y.
fn slope_of_tanh<B: Backend>(y: Floats<B>) -> Floats<B> {
    (-y.square()).add_scalar(1.0)
}

/// The states before each of `steps` steps, from the first one and those after each step.
fn shifted<B: Backend>(first: Floats<B>, after: Floats<B>, steps: usize) -> Floats<B> {
    let [batch, h] = first.dims();
    let first = first.reshape([1, batch, h]);
    if steps == 1 { first } else { Floats::cat(vec![first, after.rows(0..steps - 1)], 0) }
}
