//! Native GPU kernels of the LSTM operation on Burn's CubeCL backend (WebGPU, CUDA), in f32: a product and one launch a
//! step in either direction, in memory that the whole sequence shares. Other float types take the portable path.

mod fusion;
mod kernels;
#[cfg(all(test, feature = "wgpu"))]
mod tests;

use burn::backend::tensor::FloatTensor;
use burn::tensor::DType;
use highrank_kernels::Floats;
use highrank_kernels::gpu::{CubeBackend, contiguous, empty, one_unit_each, product, rounded};

use crate::lstm::ops::{LstmArgs, LstmCall, LstmGrads, LstmKernels, LstmOps, LstmSaved, LstmWanted};
use crate::lstm::portable;

impl LstmOps for CubeBackend {
    fn lstm(LstmCall(args): LstmCall<Self>) -> FloatTensor<Self> {
        let packed = match args.x.dtype() {
            DType::F32 => forward(args).0,
            _ => portable::forward(args),
        };
        packed.into_primitive()
    }
}

impl LstmKernels for CubeBackend {
    fn lstm_with_saved(args: LstmArgs<Floats<Self>>) -> (Floats<Self>, LstmSaved<Floats<Self>>) {
        match args.x.dtype() {
            DType::F32 => forward(args),
            _ => portable::forward_with_saved(args),
        }
    }

    fn lstm_backward(
        args: LstmArgs<Floats<Self>>,
        packed: Floats<Self>,
        saved: LstmSaved<Floats<Self>>,
        grad: Floats<Self>,
        wanted: LstmWanted,
    ) -> LstmGrads<Floats<Self>> {
        match args.x.dtype() {
            DType::F32 => backward(args, packed, saved, grad, wanted),
            _ => portable::backward(args, packed, saved, grad, wanted),
        }
    }
}

fn forward(args: LstmArgs<Floats<CubeBackend>>) -> (Floats<CubeBackend>, LstmSaved<Floats<CubeBackend>>) {
    let [steps, batch, _] = args.x.dims();
    let [rows, units] = args.w_hh.dims();
    let portable::Products { recurrent, inputs } = portable::products(&args, product);
    let recurrent_t = rounded(recurrent.clone().transpose(), args.precision);

    let gates = contiguous(inputs);
    let c0 = contiguous(args.c0);
    let cells = empty(&gates, [steps, batch, units], DType::F32);
    let packed = empty(&gates, [steps + 1, batch, units], DType::F32);
    let next = empty(&gates, [batch, units], DType::F32);
    let mut hidden = args.h0;
    let (cubes, cube_size) = one_unit_each(batch * units, kernels::UNITS);
    for step in 0..steps {
        let product = product(hidden, recurrent_t.clone(), args.precision);
        // SAFETY: every array has the shape that its name has at the top of the LSTM module, `[steps, batch, …]`. The
        // state that the product has read is written over after it, in the order of the launches.
        unsafe {
            kernels::forward::launch_unchecked(
                &gates.client,
                cubes.clone(),
                cube_size,
                contiguous(product).into_buffer_arg(),
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
    let [steps, batch, rows] = saved.gates.dims();
    let units = rows / 4;
    // A copy, because the kernel writes over it.
    let last = grad.clone().rows(steps..steps + 1).reshape([batch, units]);
    let d_cell = contiguous(last.mul_scalar(1.0));
    let grad = contiguous(grad);
    let gates = contiguous(saved.gates);
    let cells = contiguous(saved.cells);
    let recurrent = rounded(saved.recurrent, args.precision);
    let c0 = contiguous(args.c0.clone());
    let d_gates = empty(&grad, [steps, batch, rows], DType::F32);
    let dz = empty(&grad, [batch, rows], DType::F32);
    let absent = empty(&grad, [1], DType::F32);
    let mut from_next: Option<Floats<CubeBackend>> = None;
    let (cubes, cube_size) = one_unit_each(batch * units, kernels::UNITS);
    for step in (0..steps).rev() {
        let has_next = from_next.is_some();
        let next = from_next.take().map_or_else(|| absent.clone(), contiguous);
        // SAFETY: as in the forward pass.
        unsafe {
            kernels::backward::launch_unchecked(
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
    let made = portable::Recurrence {
        d_gates: Floats::new(d_gates).reshape([steps * batch, rows]),
        d_hidden: from_next,
        d_cell: Floats::new(d_cell),
    };
    portable::gradients(args, packed, made, wanted, product)
}
