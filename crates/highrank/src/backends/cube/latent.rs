//! Native GPU kernels of the latent layer on Burn's CubeCL backend (WebGPU, CUDA), in f32: beside its products, one visit
//! in either direction.

use burn::tensor::DType;
use cubecl::prelude::*;
use highrank_kernels::Floats;
use highrank_kernels::gpu::{CubeBackend, CubeTensor, contiguous, empty, one_unit_each, product};

use crate::context::latent as portable;
use crate::ops::{LatentArgs, LatentGradients, LatentMask, LatentWanted};

/// Units of a cube.
const UNITS: u32 = 256;

/// [`Kernels::latent`](crate::ops::Kernels::latent) on a GPU.
pub(super) fn latent(args: LatentArgs<Floats<CubeBackend>>) -> Floats<CubeBackend> {
    if args.hidden.dtype() != DType::F32 {
        return portable::latent(args);
    }
    let ([tokens, _], [_, features]) = (args.hidden.dims(), args.weight.dims());
    let latent = contiguous(product(args.hidden, args.weight, args.precision));
    let has_bias = args.bias.is_some();
    let bias = args.bias.map_or_else(|| empty(&latent, [1], DType::F32), contiguous);
    let mask = Mask::new(&latent, args.mask);
    let (cubes, units) = one_unit_each(tokens * features, UNITS);
    // SAFETY: the product has no other owner; its sizes, and those of the bias and the mask, are the ones said.
    unsafe {
        forward::launch_unchecked(
            &latent.client,
            cubes,
            units,
            latent.clone().into_buffer_arg(),
            bias.into_buffer_arg(),
            mask.values.into_buffer_arg(),
            (tokens * features) as u32,
            features as u32,
            mask.period,
            mask.first,
            has_bias,
            mask.is_there,
        );
    }
    Floats::new(latent)
}

/// [`Kernels::latent_backward`](crate::ops::Kernels::latent_backward) on a GPU.
pub(super) fn latent_backward(
    args: LatentArgs<Floats<CubeBackend>>,
    output: Floats<CubeBackend>,
    grad: Floats<CubeBackend>,
    wanted: LatentWanted,
) -> LatentGradients<Floats<CubeBackend>> {
    if args.hidden.dtype() != DType::F32 {
        return portable::latent_backward(args, output, grad, wanted);
    }
    let [tokens, features] = output.dims();
    let output = contiguous(output);
    let d_sum = empty(&output, [tokens, features], DType::F32);
    let keep = args.mask.as_ref().map_or(1.0, |mask| mask.keep);
    let mask = Mask::new(&output, args.mask);
    let (cubes, units) = one_unit_each(tokens * features, UNITS);
    // SAFETY: as above.
    unsafe {
        backward::launch_unchecked(
            &output.client,
            cubes,
            units,
            output.clone().into_buffer_arg(),
            contiguous(grad).into_buffer_arg(),
            mask.values.into_buffer_arg(),
            d_sum.clone().into_buffer_arg(),
            (tokens * features) as u32,
            features as u32,
            mask.period,
            mask.first,
            keep as f32,
            mask.is_there,
        );
    }
    let (hidden, weight, precision) = (args.hidden, args.weight, args.precision);
    portable::gradients(hidden, weight, args.bias.is_some(), Floats::new(d_sum), wanted, |lhs, rhs| {
        product(lhs, rhs, precision)
    })
}

/// A mask as the kernels take it.
struct Mask {
    values: CubeTensor,
    period: u32,
    first: u32,
    is_there: bool,
}

impl Mask {
    fn new(like: &CubeTensor, mask: Option<LatentMask<Floats<CubeBackend>>>) -> Self {
        match mask {
            None => Self { values: empty(like, [1], DType::F32), period: 1, first: 0, is_there: false },
            Some(LatentMask { values, first, .. }) => {
                let [period, _] = values.dims();
                let first = (first % period) as u32;
                Self { values: contiguous(values), period: period as u32, first, is_there: true }
            }
        }
    }
}

/// `tanh(x + b) ∘ mask` in the place of the product `x`.
#[cube(launch_unchecked)]
#[allow(clippy::too_many_arguments)]
fn forward(
    latent: &mut [f32],
    bias: &[f32],
    mask: &[f32],
    count: u32,
    features: u32,
    period: u32,
    first: u32,
    #[comptime] has_bias: bool,
    #[comptime] has_mask: bool,
) {
    let mut at = ABSOLUTE_POS as u32;
    while at < count {
        let feature = at % features;
        let mut x = latent[at as usize];
        if comptime!(has_bias) {
            x += bias[feature as usize];
        }
        let mut y = x.tanh();
        if comptime!(has_mask) {
            let row = (at / features + first) % period;
            y *= mask[(row * features + feature) as usize];
        }
        latent[at as usize] = y;
        at += CUBE_COUNT_X * CUBE_DIM_X;
    }
}

/// The gradient of `x + b`, `grad ∘ mask ∘ (1 − t²)` with `t = output·keep`.
#[cube(launch_unchecked)]
#[allow(clippy::too_many_arguments)]
fn backward(
    output: &[f32],
    grad: &[f32],
    mask: &[f32],
    d_sum: &mut [f32],
    count: u32,
    features: u32,
    period: u32,
    first: u32,
    keep: f32,
    #[comptime] has_mask: bool,
) {
    let mut at = ABSOLUTE_POS as u32;
    while at < count {
        let t = output[at as usize] * keep;
        let mut slope = 1.0 - t * t;
        if comptime!(has_mask) {
            let row = (at / features + first) % period;
            slope *= mask[(row * features + at % features) as usize];
        }
        d_sum[at as usize] = grad[at as usize] * slope;
        at += CUBE_COUNT_X * CUBE_DIM_X;
    }
}

#[cfg(all(test, feature = "wgpu"))]
mod tests {
    use highrank_kernels::Precision;
    use highrank_kernels::gpu::CubeDevice;
    use highrank_kernels::gpu::testing::{Fused, Plain, spread, values};

    use super::*;
    use crate::ops::Kernels;

    const TOKENS: usize = 6;
    const FEATURES: usize = 50;

    /// The mask starts in its middle, where there is one.
    fn args<B>(bias: bool, period: usize, precision: Precision) -> LatentArgs<Floats<B>>
    where
        B: Kernels<Device = CubeDevice>,
    {
        let mask = |period| {
            let noise = spread::<B, 2>([period, FEATURES], 4);
            let dropped = noise.zeros_like();
            let kept = noise.at_least(0.0);
            dropped.fill_where(kept, 2.0)
        };
        LatentArgs {
            hidden: spread([TOKENS, 7], 1),
            weight: spread([7, FEATURES], 2),
            bias: bias.then(|| spread([FEATURES], 3)),
            mask: (period > 0).then(|| LatentMask { values: mask(period), first: 4, keep: 0.5 }),
            precision,
        }
    }

    const WANTED: LatentWanted = LatentWanted { hidden: true, weight: true, bias: true };

    fn listed<B>(output: Floats<B>, gradients: LatentGradients<Floats<B>>) -> Vec<Vec<f32>>
    where
        B: Kernels<Device = CubeDevice>,
    {
        std::iter::once(output).chain(gradients.into_array().into_iter().flatten()).map(values).collect()
    }

    fn native<B: Kernels<Device = CubeDevice>>(args: LatentArgs<Floats<B>>) -> Vec<Vec<f32>> {
        let output = B::latent(args.clone());
        let grad = spread([TOKENS, FEATURES], 5);
        listed(output.clone(), B::latent_backward(args, output, grad, WANTED))
    }

    #[test]
    fn kernels_agree_with_the_portable_path_with_and_without_fusion() {
        for (bias, period) in [(false, 0), (true, 0), (false, 5), (true, 3), (true, 1)] {
            for precision in [Precision::Full, Precision::Bf16] {
                let args = || args::<Plain>(bias, period, precision);
                let output = portable::latent(args());
                let grad = spread([TOKENS, FEATURES], 5);
                let made = portable::latent_backward(args(), output.clone(), grad, WANTED);
                let want = listed(output, made);
                let fused = native(self::args::<Fused>(bias, period, precision));
                for (what, got) in [("plain", native(args())), ("fused", fused)] {
                    assert_eq!(got.len(), want.len());
                    for (got, want) in got.iter().flatten().zip(want.iter().flatten()) {
                        // A number that rounding cuts may lie on either side of a half.
                        let tolerance = if precision == Precision::Full { 1e-5 } else { 1e-2 };
                        let what = format!("{what}, bias {bias}, period {period}, {precision}");
                        assert!((got - want).abs() <= tolerance, "{what}: {got}, expected {want}");
                    }
                }
            }
        }
    }
}
