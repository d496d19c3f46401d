//! Native GPU kernels of the LSTM operation on Burn's CubeCL backend (WebGPU, CUDA), in f32: one launch a step in either
//! direction, in memory that the whole sequence shares. What does not wait for a step is one product over all of them.
//! Other float types, sequences beyond the kernels' 32-bit indices, and devices of few units take the portable path.

mod fusion;
mod step;
#[cfg(all(test, any(feature = "wgpu", feature = "cuda")))]
mod tests;
mod unit;

use burn::backend::tensor::FloatTensor;
use burn::tensor::DType;
use highrank_kernels::gpu::rounding::cut;
use highrank_kernels::gpu::{CubeBackend, CubeTensor, contiguous, empty, expect, most_rows, product};
use highrank_kernels::{Floats, launch};

use crate::lstm::kernels::LstmKernels;
use crate::lstm::ops::{LstmArgs, LstmCall, LstmGrads, LstmOps, LstmSaved, LstmWanted};
use crate::lstm::portable;
use step::{Direction, Sizes};

impl LstmOps for CubeBackend {
    fn lstm(LstmCall(args): LstmCall<Self>) -> FloatTensor<Self> {
        let packed = match sizes(&args, Direction::Forward) {
            Some(sizes) => forward(args, sizes).0,
            None => portable::forward(args),
        };
        packed.into_primitive()
    }
}

impl LstmKernels for CubeBackend {
    fn lstm_with_saved(args: LstmArgs<Floats<Self>>) -> (Floats<Self>, LstmSaved<Floats<Self>>) {
        match sizes(&args, Direction::Forward) {
            Some(sizes) => forward(args, sizes),
            None => portable::forward_with_saved(args),
        }
    }

    fn lstm_backward(
        args: LstmArgs<Floats<Self>>,
        packed: Floats<Self>,
        saved: LstmSaved<Floats<Self>>,
        grad: Floats<Self>,
        wanted: LstmWanted,
    ) -> LstmGrads<Floats<Self>> {
        match sizes(&args, Direction::Backward) {
            Some(sizes) => backward(args, packed, saved, grad, wanted, sizes),
            None => portable::backward(args, packed, saved, grad, wanted),
        }
    }
}

/// How a step is launched, if the kernels compute in this float type, their indices reach the gates of all steps and the
/// recurrent weights, and the device has units enough.
fn sizes(args: &LstmArgs<Floats<CubeBackend>>, direction: Direction) -> Option<Sizes> {
    let ([steps, batch, _], [rows, units]) = (args.x.dims(), args.w_hh.dims());
    let reached = rows <= most_rows(1) && steps * batch <= most_rows(rows) && units <= most_rows(rows);
    let sizes = Sizes::new(args.x.primitive(), direction, batch, units, cut(args.precision));
    sizes.filter(|_| args.x.dtype() == DType::F32 && reached)
}

/// The memory of a tensor that a kernel reads, of the shape said.
///
/// # Panics
/// If it has another shape or float type.
fn checked<const D: usize>(tensor: Floats<CubeBackend>, what: &str, shape: [usize; D]) -> CubeTensor {
    let tensor = contiguous(tensor);
    expect(&tensor, what, shape, DType::F32);
    tensor
}

fn forward(
    args: LstmArgs<Floats<CubeBackend>>,
    sizes: Sizes,
) -> (Floats<CubeBackend>, LstmSaved<Floats<CubeBackend>>) {
    let [steps, batch, _] = args.x.dims();
    let [rows, units] = args.w_hh.dims();
    let portable::Products { recurrent, inputs } = portable::products(&args, product);
    let gates = checked(inputs, "lstm: gates", [steps * batch, rows]);
    let h0 = checked(args.h0, "lstm: h0", [batch, units]);
    let c0 = checked(args.c0, "lstm: c0", [batch, units]);
    let read = checked(args.precision.rounded(recurrent.clone()), "lstm: recurrent weights", [rows, units]);
    let cells = empty(&gates, [steps, batch, units], DType::F32);
    let packed = empty(&gates, [steps + 1, batch, units], DType::F32);
    for step in 0..steps {
        // SAFETY: every array has the shape that its name has at the top of the LSTM module, `[steps, batch, …]`: it was made or
        // checked so. A launch writes rows of its own step and reads those of the step before it, which an earlier launch wrote.
        unsafe {
            launch!(
                gates, sizes.grid(batch, units), step::forward;
                read, h0, c0, gates, cells, packed;
                step as u32, steps as u32, batch as u32, units as u32, step == 0, sizes
            );
        }
    }
    let gates = Floats::new(gates).reshape([steps, batch, rows]);
    (Floats::new(packed), LstmSaved { gates, cells: Floats::new(cells), recurrent })
}

fn backward(
    args: LstmArgs<Floats<CubeBackend>>,
    packed: Floats<CubeBackend>,
    saved: LstmSaved<Floats<CubeBackend>>,
    grad: Floats<CubeBackend>,
    wanted: LstmWanted,
    sizes: Sizes,
) -> LstmGrads<Floats<CubeBackend>> {
    let [steps, batch, _] = args.x.dims();
    let [rows, units] = args.w_hh.dims();
    let grad = checked(grad, "lstm: upstream gradient", [steps + 1, batch, units]);
    let gates = checked(saved.gates, "lstm: gates", [steps, batch, rows]);
    let cells = checked(saved.cells, "lstm: cells", [steps, batch, units]);
    let c0 = checked(args.c0.clone(), "lstm: c0", [batch, units]);
    let transposed = args.precision.rounded(saved.recurrent.clone()).transpose();
    let transposed = checked(transposed, "lstm: recurrent weights", [units, rows]);
    let d_cell = empty(&grad, [batch, units], DType::F32);
    let d_gates = empty(&grad, [steps, batch, rows], DType::F32);
    for step in (0..steps).rev() {
        // SAFETY: as in the forward pass, with the step after for the one before.
        unsafe {
            launch!(
                grad, sizes.grid(batch, units), step::backward;
                transposed, grad, c0, gates, cells, d_cell, d_gates;
                step as u32, batch as u32, units as u32, step == steps - 1, sizes
            );
        }
    }
    let d_gates = Floats::new(d_gates).reshape([steps * batch, rows]);
    let d_hidden =
        wanted.h0.then(|| product(d_gates.clone().rows(0..batch), saved.recurrent, args.precision));
    let made = portable::Recurrence { d_gates, d_hidden, d_cell: Floats::new(d_cell) };
    portable::gradients(args, packed, made, wanted, product)
}
