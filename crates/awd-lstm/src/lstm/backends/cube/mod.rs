//! Native GPU kernels of the LSTM operation on Burn's CubeCL backend (WebGPU, CUDA), in f32: one launch in either direction
//! for layers of a few hundred units, a product and a launch a step for wider ones, in memory that the whole sequence shares.
//! Other float types, and sequences beyond the kernels' 32-bit indices, take the portable path.

mod fusion;
mod stepwise;
#[cfg(all(test, any(feature = "wgpu", feature = "cuda")))]
mod tests;
mod unit;
mod whole;

use burn::backend::tensor::FloatTensor;
use burn::tensor::DType;
use cubecl::prelude::CubeDim;
use highrank_kernels::gpu::rounding::cut;
use highrank_kernels::gpu::{
    CubeBackend, CubeTensor, contiguous, empty, expect, most_rows, one_cube_each, one_unit_each, product,
    rounded,
};
use highrank_kernels::{Floats, Precision};

use crate::lstm::ops::{LstmArgs, LstmCall, LstmGrads, LstmKernels, LstmOps, LstmSaved, LstmWanted};
use crate::lstm::portable;

impl LstmOps for CubeBackend {
    fn lstm(LstmCall(args): LstmCall<Self>) -> FloatTensor<Self> {
        let packed = match has_kernels(&args) {
            true => forward(args).0,
            false => portable::forward(args),
        };
        packed.into_primitive()
    }
}

impl LstmKernels for CubeBackend {
    fn lstm_with_saved(args: LstmArgs<Floats<Self>>) -> (Floats<Self>, LstmSaved<Floats<Self>>) {
        match has_kernels(&args) {
            true => forward(args),
            false => portable::forward_with_saved(args),
        }
    }

    fn lstm_backward(
        args: LstmArgs<Floats<Self>>,
        packed: Floats<Self>,
        saved: LstmSaved<Floats<Self>>,
        grad: Floats<Self>,
        wanted: LstmWanted,
    ) -> LstmGrads<Floats<Self>> {
        match has_kernels(&args) {
            true => backward(args, packed, saved, grad, wanted),
            false => portable::backward(args, packed, saved, grad, wanted),
        }
    }
}

/// Whether the kernels compute in this float type and their indices reach the gates of all steps.
fn has_kernels(args: &LstmArgs<Floats<CubeBackend>>) -> bool {
    let ([steps, batch, _], [rows]) = (args.x.dims(), args.b_ih.dims());
    args.x.dtype() == DType::F32 && rows <= most_rows(1) && steps * batch <= most_rows(rows)
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

/// How the whole sequence goes into one launch, if the layer is narrow enough for it.
fn sizes(like: &CubeTensor, units: usize, precision: Precision) -> Option<whole::Sizes> {
    (units <= whole::MOST_UNITS).then(|| whole::Sizes {
        units: units as u32,
        cube_units: whole::CUBE_UNITS.min(like.client.properties().hardware.max_units_per_cube),
        cut: cut(precision),
    })
}

fn forward(args: LstmArgs<Floats<CubeBackend>>) -> (Floats<CubeBackend>, LstmSaved<Floats<CubeBackend>>) {
    let [steps, batch, _] = args.x.dims();
    let [rows, units] = args.w_hh.dims();
    let portable::Products { recurrent, inputs } = portable::products(&args, product);
    let gates = checked(inputs, "lstm: gates", [steps * batch, 4 * units]);
    let c0 = checked(args.c0, "lstm: c0", [batch, units]);
    let cells = empty(&gates, [steps, batch, units], DType::F32);
    let packed = empty(&gates, [steps + 1, batch, units], DType::F32);
    if let Some(sizes) = sizes(&gates, units, args.precision) {
        let recurrent_t = args.precision.rounded(recurrent.clone()).transpose();
        let recurrent_t = checked(recurrent_t, "lstm: recurrent weights", [units, 4 * units]);
        let h0 = checked(args.h0, "lstm: h0", [batch, units]);
        // SAFETY: every array has the shape that its name has at the top of the LSTM module, `[steps, batch, …]`: it was
        // made or checked so. A cube touches its own sequences alone, and a unit of it what it wrote itself, but for the
        // memory that the cube shares, with a barrier between writing and reading.
        unsafe {
            whole::forward::launch_unchecked(
                &gates.client,
                one_cube_each(&gates, batch).0,
                CubeDim::new_1d(sizes.cube_units),
                recurrent_t.into_buffer_arg(),
                h0.into_buffer_arg(),
                c0.into_buffer_arg(),
                gates.clone().into_buffer_arg(),
                cells.clone().into_buffer_arg(),
                packed.clone().into_buffer_arg(),
                steps as u32,
                batch as u32,
                sizes,
            );
        }
    } else {
        let recurrent_t = rounded(recurrent.clone().transpose(), args.precision);
        let next = empty(&gates, [batch, units], DType::F32);
        let mut hidden = args.h0;
        let (cubes, cube_size) = one_unit_each(&gates, batch * units);
        for step in 0..steps {
            let product = product(hidden, recurrent_t.clone(), args.precision);
            let product = checked(product, "lstm: recurrent product", [batch, 4 * units]);
            // SAFETY: the shapes are as above. The state that the product has read is written over after it, in the order of
            // the launches.
            unsafe {
                stepwise::forward::launch_unchecked(
                    &gates.client,
                    cubes.clone(),
                    cube_size,
                    product.into_buffer_arg(),
                    c0.clone().into_buffer_arg(),
                    gates.clone().into_buffer_arg(),
                    cells.clone().into_buffer_arg(),
                    packed.clone().into_buffer_arg(),
                    next.clone().into_buffer_arg(),
                    step as u32,
                    steps as u32,
                    batch as u32,
                    units as u32,
                );
            }
            hidden = Floats::new(next.clone());
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
) -> LstmGrads<Floats<CubeBackend>> {
    let [steps, batch, _] = args.x.dims();
    let [rows, units] = args.w_hh.dims();
    // A copy, because the kernel writes over it.
    let last = grad.clone().rows(steps..steps + 1).reshape([batch, units]);
    let d_cell = checked(last.mul_scalar(1.0), "lstm: gradient of the cell", [batch, units]);
    let grad = checked(grad, "lstm: upstream gradient", [steps + 1, batch, units]);
    let gates = checked(saved.gates, "lstm: gates", [steps, batch, 4 * units]);
    let cells = checked(saved.cells, "lstm: cells", [steps, batch, units]);
    let c0 = checked(args.c0.clone(), "lstm: c0", [batch, units]);
    let d_gates = empty(&grad, [steps, batch, rows], DType::F32);
    let mut from_next: Option<Floats<CubeBackend>> = None;
    if let Some(sizes) = sizes(&grad, units, args.precision) {
        let recurrent = args.precision.rounded(saved.recurrent);
        let recurrent = checked(recurrent, "lstm: recurrent weights", [4 * units, units]);
        let d_hidden = empty(&grad, [batch, units], DType::F32);
        // SAFETY: as in the forward pass.
        unsafe {
            whole::backward::launch_unchecked(
                &grad.client,
                one_cube_each(&grad, batch).0,
                CubeDim::new_1d(sizes.cube_units),
                recurrent.into_buffer_arg(),
                grad.clone().into_buffer_arg(),
                c0.into_buffer_arg(),
                gates.into_buffer_arg(),
                cells.into_buffer_arg(),
                d_cell.clone().into_buffer_arg(),
                d_gates.clone().into_buffer_arg(),
                d_hidden.clone().into_buffer_arg(),
                steps as u32,
                batch as u32,
                sizes,
            );
        }
        from_next = Some(Floats::new(d_hidden));
    } else {
        let recurrent = rounded(saved.recurrent, args.precision);
        let dz = empty(&grad, [batch, rows], DType::F32);
        let absent = empty(&grad, [1], DType::F32);
        let (cubes, cube_size) = one_unit_each(&grad, batch * units);
        for step in (0..steps).rev() {
            let has_next = from_next.is_some();
            let next = from_next.take().map_or_else(
                || absent.clone(),
                |next| checked(next, "lstm: gradient of the hidden state", [batch, units]),
            );
            // SAFETY: as in the forward pass.
            unsafe {
                stepwise::backward::launch_unchecked(
                    &grad.client,
                    cubes.clone(),
                    cube_size,
                    grad.clone().into_buffer_arg(),
                    next.into_buffer_arg(),
                    c0.clone().into_buffer_arg(),
                    gates.clone().into_buffer_arg(),
                    cells.clone().into_buffer_arg(),
                    d_cell.clone().into_buffer_arg(),
                    d_gates.clone().into_buffer_arg(),
                    dz.clone().into_buffer_arg(),
                    step as u32,
                    batch as u32,
                    units as u32,
                    has_next,
                );
            }
            if step > 0 || wanted.h0 {
                from_next = Some(product(Floats::new(dz.clone()), recurrent.clone(), args.precision));
            }
        }
    }
    let made = portable::Recurrence {
        d_gates: Floats::new(d_gates).reshape([steps * batch, rows]),
        d_hidden: from_next,
        d_cell: Floats::new(d_cell),
    };
    portable::gradients(args, packed, made, wanted, product)
}
