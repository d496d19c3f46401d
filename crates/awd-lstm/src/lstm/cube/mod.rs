//! Native GPU kernels of the LSTM operation on Burn's CubeCL backends (WebGPU, CUDA), in f32: a product and one launch a
//! step in either direction, in memory that the whole sequence shares. Other float types take the portable path.

mod fusion;
mod kernels;
#[cfg(all(test, feature = "wgpu"))]
mod tests;

use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{DType, Tensor, TensorMetadata};
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use burn_cubecl::{BoolElement, CubeBackend, CubeRuntime, FloatElement, IntElement};
use highrank::gpu::{empty, one_unit_each, product, rounded};

use super::{LstmArgs, LstmBackend, LstmGrads, LstmSaved, LstmWanted, from_primitive, portable, primitive};

impl<R, F, I, BT> LstmBackend for CubeBackend<R, F, I, BT>
where
    R: CubeRuntime,
    F: FloatElement,
    I: IntElement,
    BT: BoolElement,
{
    fn lstm(args: LstmArgs<Self>) -> FloatTensor<Self> {
        Self::lstm_with_saved(args).0
    }

    fn lstm_with_saved(args: LstmArgs<Self>) -> (FloatTensor<Self>, LstmSaved<Self>) {
        match args.x.dtype() {
            DType::F32 => forward(args),
            _ => portable::forward_with_saved(args),
        }
    }

    fn lstm_backward(
        args: LstmArgs<Self>,
        packed: FloatTensor<Self>,
        saved: LstmSaved<Self>,
        grad: FloatTensor<Self>,
        wanted: LstmWanted,
    ) -> LstmGrads<Self> {
        match args.x.dtype() {
            DType::F32 => backward(args, packed, saved, grad, wanted),
            _ => portable::backward(args, packed, saved, grad, wanted),
        }
    }
}

fn forward<R, B>(args: LstmArgs<B>) -> (CubeTensor<R>, LstmSaved<B>)
where
    R: CubeRuntime,
    B: Backend<FloatTensorPrimitive = CubeTensor<R>>,
{
    let [steps, batch, _] = args.x.shape().dims();
    let [rows, units] = args.w_hh.shape().dims();
    let portable::Products { recurrent, inputs } = portable::products(&args, product);
    let recurrent_t = rounded(recurrent.clone().transpose(), args.precision);

    let gates = into_contiguous(primitive(inputs));
    let c0 = into_contiguous(args.c0);
    let cells = empty(&gates, [steps, batch, units], DType::F32);
    let packed = empty(&gates, [steps + 1, batch, units], DType::F32);
    let next = empty(&gates, [batch, units], DType::F32);
    let mut hidden = args.h0;
    let (cubes, cube_size) = one_unit_each(batch * units, kernels::UNITS);
    for step in 0..steps {
        let product = product(from_primitive::<B, 2>(hidden), recurrent_t.clone(), args.precision);
        // SAFETY: every array has the shape that its name has at the top of the LSTM module, `[steps, batch, …]`. The
        // state that the product has read is written over after it, in the order of the launches.
        unsafe {
            kernels::forward::launch_unchecked::<R>(
                &gates.client,
                cubes.clone(),
                cube_size,
                into_contiguous(primitive(product)).into_array_arg(),
                c0.clone().into_array_arg(),
                gates.clone().into_array_arg(),
                cells.clone().into_array_arg(),
                packed.clone().into_array_arg(),
                next.clone().into_array_arg(),
                step as u32,
                steps as u32,
                batch as u32,
                units as u32,
            );
        }
        hidden = next.clone();
    }
    let gates = primitive(from_primitive::<B, 2>(gates).reshape([steps, batch, rows]));
    (packed, LstmSaved { gates, cells, recurrent: primitive(recurrent) })
}

fn backward<R, B>(
    args: LstmArgs<B>,
    packed: CubeTensor<R>,
    saved: LstmSaved<B>,
    grad: CubeTensor<R>,
    wanted: LstmWanted,
) -> LstmGrads<B>
where
    R: CubeRuntime,
    B: Backend<FloatTensorPrimitive = CubeTensor<R>>,
{
    let [steps, batch, rows] = saved.gates.shape().dims();
    let units = rows / 4;
    let grad = into_contiguous(grad);
    let gates = into_contiguous(saved.gates);
    let cells = into_contiguous(saved.cells);
    let recurrent = rounded(from_primitive::<B, 2>(saved.recurrent), args.precision);
    let c0 = into_contiguous(args.c0.clone());
    // A copy, because the kernel writes over it.
    let last = from_primitive::<B, 3>(grad.clone()).narrow(0, steps, 1).reshape([batch, units]);
    let d_cell = into_contiguous(primitive(last.mul_scalar(1.0)));
    let d_gates = empty(&grad, [steps, batch, rows], DType::F32);
    let dz = empty(&grad, [batch, rows], DType::F32);
    let absent = empty(&grad, [1], DType::F32);
    let mut from_next: Option<Tensor<B, 2>> = None;
    let (cubes, cube_size) = one_unit_each(batch * units, kernels::UNITS);
    for step in (0..steps).rev() {
        let has_next = from_next.is_some();
        let next = from_next.take().map_or_else(|| absent.clone(), |next| into_contiguous(primitive(next)));
        // SAFETY: as in the forward pass.
        unsafe {
            kernels::backward::launch_unchecked::<R>(
                &grad.client,
                cubes.clone(),
                cube_size,
                grad.clone().into_array_arg(),
                next.into_array_arg(),
                c0.clone().into_array_arg(),
                gates.clone().into_array_arg(),
                cells.clone().into_array_arg(),
                d_cell.clone().into_array_arg(),
                d_gates.clone().into_array_arg(),
                dz.clone().into_array_arg(),
                step as u32,
                batch as u32,
                units as u32,
                has_next,
            );
        }
        if step > 0 || wanted.h0 {
            let dz = from_primitive::<B, 2>(dz.clone());
            from_next = Some(product(dz, recurrent.clone(), args.precision));
        }
    }
    let made = portable::Recurrence {
        d_gates: from_primitive::<B, 3>(d_gates).reshape([steps * batch, rows]),
        d_hidden: from_next,
        d_cell: from_primitive(d_cell),
    };
    portable::gradients(args, packed, made, wanted, product)
}
