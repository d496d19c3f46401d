//! Native GPU kernels of the latent layer on Burn's CubeCL backend (WebGPU, CUDA), in f32: beside its products, one visit
//! in either direction. Inputs in half precision are multiplied as they are.
//!
//! A kernel's indices reach fewer than 2³¹ features. Where all tokens have more, the layer is computed in runs of tokens.

use burn::tensor::{DType, TensorData};
use cubecl::prelude::*;
use highrank_kernels::gpu::{
    CubeBackend, CubeTensor, contiguous, contiguous_ints, empty, expect, most_rows, one_unit_each, product,
};
use highrank_kernels::{Floats, Ints, launch};

use crate::likelihood::parts::{add_part, joined};
use crate::ops::latent as portable;
use crate::ops::{
    Activation, LatentArgs, LatentGradients, LatentInputs, LatentMask, LatentWanted, runs, wide,
};

/// [`Kernels::latent`](crate::ops::Kernels::latent) on a GPU.
///
/// # Panics
/// If a tensor's shape is not what the others' say, or a mask has no row for a token, or 2³¹ numbers.
pub(super) fn latent(args: LatentArgs<Floats<CubeBackend>>) -> Floats<CubeBackend> {
    if wide(args.weight.dtype()) != DType::F32 {
        return portable::latent(args);
    }
    let [_, features] = args.weight.dims();
    forward_in_runs(args, most_rows(features))
}

/// The layer's output, computed in runs of at most `most` tokens.
fn forward_in_runs(args: LatentArgs<Floats<CubeBackend>>, most: usize) -> Floats<CubeBackend> {
    let [tokens, _] = args.hidden.dims();
    if tokens <= most {
        return forward_of_run(args);
    }
    let parts = runs(tokens, most).map(|(start, end)| forward_of_run(args.slice(start, end)));
    Floats::cat(parts.collect(), 0)
}

/// The layer's output for tokens of which a kernel's indices reach all features.
fn forward_of_run(args: LatentArgs<Floats<CubeBackend>>) -> Floats<CubeBackend> {
    let ([tokens, _], [_, features]) = (args.hidden.dims(), args.weight.dims());
    let count = indexed("latent layer", tokens, features);
    // What a residual adds to each context; no wider than all contexts together.
    let past = (args.activation == Activation::Residual)
        .then(|| args.hidden.clone().narrow(1, 0..args.d).cast(DType::F32));
    let latent = contiguous(product(args.hidden, args.weight, args.precision));
    expect(&latent, "latent layer", [tokens, features], DType::F32);
    let bias = args.bias.map(|bias| {
        let bias = contiguous(bias.cast(DType::F32));
        expect(&bias, "bias of the latent layer", [features], DType::F32);
        bias
    });
    let has_bias = bias.is_some();
    if args.activation == Activation::Linear && !has_bias && args.mask.is_none() {
        return Floats::new(latent);
    }
    let bias = bias.unwrap_or_else(|| empty(&latent, [1], DType::F32));
    let masked = args.mask.is_some();
    let (mask, rows) = as_read(&latent, args.mask);
    let past = match past {
        Some(past) => contiguous(past),
        None => empty(&latent, [1], DType::F32),
    };
    // SAFETY: the product has no other owner; its sizes, and those of the bias and the mask, are the ones said.
    unsafe {
        launch!(
            latent, one_unit_each(&latent, tokens * features), forward;
            latent, bias, mask, rows, past;
            count, features as u32, args.d as u32, has_bias, masked, args.activation
        );
    }
    Floats::new(latent)
}

/// [`Kernels::latent_backward`](crate::ops::Kernels::latent_backward) on a GPU.
///
/// # Panics
/// As [`latent`].
pub(super) fn latent_backward(
    args: LatentArgs<Floats<CubeBackend>>,
    output: Floats<CubeBackend>,
    grad: Floats<CubeBackend>,
    wanted: LatentWanted,
) -> LatentGradients<Floats<CubeBackend>> {
    if wide(args.weight.dtype()) != DType::F32 {
        return portable::latent_backward(args, output, grad, wanted);
    }
    let [_, features] = args.weight.dims();
    backward_in_runs(args, output, grad, wanted, most_rows(features))
}

/// The layer's gradients, computed in runs of at most `most` tokens: those of the hidden state are joined, the others summed.
fn backward_in_runs(
    args: LatentArgs<Floats<CubeBackend>>,
    output: Floats<CubeBackend>,
    grad: Floats<CubeBackend>,
    wanted: LatentWanted,
    most: usize,
) -> LatentGradients<Floats<CubeBackend>> {
    let [tokens, _] = args.hidden.dims();
    if tokens <= most {
        return backward_of_run(args, output, grad, wanted);
    }
    let mut parts = LatentInputs::<Vec<_>>::default();
    for (start, end) in runs(tokens, most) {
        let [output, grad] = [&output, &grad].map(|x| x.clone().rows(start..end));
        let made = backward_of_run(args.slice(start, end), output, grad, wanted);
        parts.hidden.extend(made.hidden);
        made.weight.into_iter().for_each(|part| add_part(&mut parts.weight, part));
        made.bias.into_iter().for_each(|part| add_part(&mut parts.bias, part));
    }
    parts.map(joined)
}

/// The layer's gradients for tokens of which a kernel's indices reach all features.
fn backward_of_run(
    args: LatentArgs<Floats<CubeBackend>>,
    output: Floats<CubeBackend>,
    grad: Floats<CubeBackend>,
    wanted: LatentWanted,
) -> LatentGradients<Floats<CubeBackend>> {
    let d_sums = match args.activation {
        Activation::Tanh => masked(&args, Some((output, Tanh::Masked)), grad.clone()),
        Activation::Linear => masked(&args, None, grad.clone()),
        Activation::Residual => {
            let tanh =
                forward_of_run(LatentArgs { activation: Activation::Tanh, mask: None, ..args.clone() });
            masked(&args, Some((tanh, Tanh::Itself)), grad.clone())
        }
    };
    let is_past = args.activation == Activation::Residual && wanted.hidden;
    let past = is_past.then(|| masked(&args, None, grad));
    portable::gradients(args, d_sums, past, wanted, product)
}

/// `grad ∘ mask`, times the slope of a tanh, if there is one, shape `[N, F]`.
fn masked(
    args: &LatentArgs<Floats<CubeBackend>>,
    tanh: Option<(Floats<CubeBackend>, Tanh)>,
    grad: Floats<CubeBackend>,
) -> Floats<CubeBackend> {
    let ([tokens, _], [_, features]) = (args.hidden.dims(), args.weight.dims());
    let count = indexed("latent layer", tokens, features);
    let grad = contiguous(grad.cast(DType::F32));
    expect(&grad, "gradient of the latent layer", [tokens, features], DType::F32);
    if tanh.is_none() && args.mask.is_none() {
        return Floats::new(grad);
    }
    let (output, tanh) = match tanh {
        Some((output, tanh)) => {
            let output = contiguous(output.cast(DType::F32));
            expect(&output, "output of the latent layer", [tokens, features], DType::F32);
            (output, tanh)
        }
        None => (empty(&grad, [1], DType::F32), Tanh::None),
    };
    let d_sum = empty(&grad, [tokens, features], DType::F32);
    let (mask, rows) = as_read(&grad, args.mask.clone());
    // SAFETY: as above.
    unsafe {
        launch!(
            grad, one_unit_each(&grad, tokens * features), backward;
            output, grad, mask, rows, d_sum;
            count, features as u32, args.mask.is_some(), tanh
        );
    }
    Floats::new(d_sum)
}

/// Elements of a matrix `[rows, features]`, of which a kernel's indices reach all.
fn indexed(what: &str, rows: usize, features: usize) -> u32 {
    let most = most_rows(features);
    assert!(rows <= most, "{what}: {rows} rows of {features} features, but a kernel reaches {most}");
    (rows * features) as u32
}

/// What a kernel is given of the tanh whose slope it multiplies by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Tanh {
    /// There is none.
    None,
    /// The tanh.
    Itself,
    /// Its product with the mask.
    Masked,
}

/// A mask's values, and the row of each token of `like`; without a mask memory that no kernel touches.
fn as_read(like: &CubeTensor, mask: Option<LatentMask<Floats<CubeBackend>>>) -> (CubeTensor, CubeTensor) {
    let Some(LatentMask { values, rows }) = mask else {
        return (empty(like, [1], DType::F32), empty(like, [1], DType::U32));
    };
    let ([tokens, features], [count, _]) = (like.meta.shape().dims(), values.dims());
    indexed("mask of the latent layer", count, features);
    let values = contiguous(values.cast(DType::F32));
    expect(&values, "mask of the latent layer", [count, features], DType::F32);
    let last = rows.iter().max().map_or(0, |last| *last as usize);
    assert!(last < count, "mask of the latent layer: row {last} of a mask of {count} rows");
    let rows = contiguous_ints(Ints::from_data(TensorData::new(rows.to_vec(), [tokens]), &like.device));
    expect(&rows, "rows of the mask", [tokens], DType::U32);
    (values, rows)
}

/// `a(x + b) ∘ mask` in the place of the product `x`; `past` are the first features of the hidden states, `[tokens, d]`, which a
/// residual adds.
#[cube(launch_unchecked)]
#[allow(clippy::too_many_arguments)]
fn forward(
    latent: &mut [f32],
    bias: &[f32],
    mask: &[f32],
    rows: &[u32],
    past: &[f32],
    count: u32,
    features: u32,
    d: u32,
    #[comptime] has_bias: bool,
    #[comptime] masked: bool,
    #[comptime] activation: Activation,
) {
    let mut at = ABSOLUTE_POS as u32;
    while at < count {
        let feature = at % features;
        let mut x = latent[at as usize];
        if comptime!(has_bias) {
            x += bias[feature as usize];
        }
        if comptime!(activation != Activation::Linear) {
            x = x.tanh();
        }
        if comptime!(activation == Activation::Residual) {
            x += past[(at / features * d + feature % d) as usize];
        }
        if comptime!(masked) {
            let row = rows[(at / features) as usize];
            x *= mask[(row * features + feature) as usize];
        }
        latent[at as usize] = x;
        at += CUBE_COUNT_X * CUBE_DIM_X;
    }
}

/// The gradient of `x + b`, `grad ∘ mask ∘ (1 − t²)` with `t` the output over the mask, or without the slope `grad ∘ mask`.
#[cube(launch_unchecked)]
#[allow(clippy::too_many_arguments)]
fn backward(
    output: &[f32],
    grad: &[f32],
    mask: &[f32],
    rows: &[u32],
    d_sum: &mut [f32],
    count: u32,
    features: u32,
    #[comptime] masked: bool,
    #[comptime] tanh: Tanh,
) {
    let mut at = ABSOLUTE_POS as u32;
    while at < count {
        let mut kept = 1.0_f32;
        if comptime!(masked) {
            let row = rows[(at / features) as usize];
            kept = mask[(row * features + at % features) as usize];
        }
        let mut slope = 1.0_f32;
        if comptime!(tanh != Tanh::None) {
            let mut t = output[at as usize];
            if comptime!(tanh == Tanh::Masked && masked) {
                // Dropped, both are 0.
                if kept > 0.0 {
                    t /= kept;
                }
            }
            slope -= t * t;
        }
        d_sum[at as usize] = grad[at as usize] * (kept * slope);
        at += CUBE_COUNT_X * CUBE_DIM_X;
    }
}

#[cfg(all(test, any(feature = "wgpu", feature = "cuda")))]
mod tests {
    use highrank_kernels::Precision;
    use highrank_kernels::gpu::CubeDevice;
    use highrank_kernels::gpu::testing::{Fused, Plain, integers, spread, values};

    use super::*;
    use crate::ops::Kernels;

    const TOKENS: usize = 6;
    const FEATURES: usize = 50;

    /// Where there is a mask, its rows come round and round, from its middle on.
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
            activation: Activation::Tanh,
            d: 5,
            hidden: spread([TOKENS, 7], 1),
            weight: spread([7, FEATURES], 2),
            bias: bias.then(|| spread([FEATURES], 3)),
            mask: (period > 0).then(|| LatentMask {
                values: mask(period),
                rows: (4..4 + TOKENS).map(|token| (token % period) as u32).collect(),
            }),
            precision,
        }
    }

    fn listed<B: Kernels>(output: Floats<B>, gradients: LatentGradients<Floats<B>>) -> Vec<Vec<f32>> {
        std::iter::once(output).chain(gradients.into_array().into_iter().flatten()).map(values).collect()
    }

    fn native<B: Kernels<Device = CubeDevice>>(args: LatentArgs<Floats<B>>) -> Vec<Vec<f32>> {
        let output = B::latent(args.clone());
        let grad = spread([TOKENS, FEATURES], 5);
        listed(output.clone(), B::latent_backward(args, output, grad, LatentWanted::ALL))
    }

    /// But for the order of sums: a product may be made by another kernel while it is tuned.
    #[track_caller]
    fn assert_close(got: &[Vec<f32>], want: &[Vec<f32>], tolerance: f32, what: &str) {
        let lengths = |all: &[Vec<f32>]| all.iter().map(Vec::len).collect::<Vec<_>>();
        assert_eq!(lengths(got), lengths(want), "{what}");
        for (got, want) in got.iter().flatten().zip(want.iter().flatten()) {
            assert!((got - want).abs() <= tolerance, "{what}: {got}, expected {want}");
        }
    }

    #[test]
    fn kernels_agree_with_the_portable_path_with_and_without_fusion() {
        let masks = [(false, 0), (true, 0), (false, 5), (true, 3), (true, 1)];
        for (activation, (bias, period)) in Activation::ALL.iter().flat_map(|a| masks.map(|mask| (*a, mask)))
        {
            for precision in [Precision::Full, Precision::Bf16] {
                let args = || LatentArgs { activation, ..args::<Plain>(bias, period, precision) };
                let output = portable::latent(args());
                let grad = spread([TOKENS, FEATURES], 5);
                let made = portable::latent_backward(args(), output.clone(), grad, LatentWanted::ALL);
                let want = listed(output, made);
                let fused = self::args::<Fused>(bias, period, precision);
                let fused = native(LatentArgs { activation, ..fused });
                for (what, got) in [("plain", native(args())), ("fused", fused)] {
                    // A number that rounding cuts may lie on either side of a half.
                    let tolerance = match precision {
                        // The portable path's products are Burn's, which may read TF32 there.
                        Precision::Full if cfg!(not(feature = "wgpu")) => 2e-3,
                        Precision::Full => 1e-5,
                        _ => 1e-2,
                    };
                    let what = format!("{what}, {activation}, bias {bias}, period {period}, {precision}");
                    assert_close(&got, &want, tolerance, &what);
                }
            }
        }
    }

    /// The tokens' rows of a mask.
    const ROWS: [u32; TOKENS] = [2, 0, 1, 1, 2, 0];

    /// With a mask of three rows.
    fn masked_args<B: Kernels<Device = CubeDevice>>(rows: &[u32]) -> LatentArgs<Floats<B>> {
        let args = args::<B>(true, 3, Precision::Full);
        let mask = args.mask.map(|mask| LatentMask { rows: rows.into(), ..mask });
        LatentArgs { mask, ..args }
    }

    /// The rows of a mask that a list names are those of a mask which has a row for each token.
    #[test]
    fn a_token_has_the_row_that_is_listed_for_it() {
        let args = masked_args::<Plain>(&ROWS);
        let chosen = ROWS.map(|row| row as i32);
        let mask = args.mask.map(|mask| {
            let values = mask.values.select(0, integers(&chosen));
            LatentMask { values, rows: (0..TOKENS as u32).collect() }
        });
        let want = native(LatentArgs { mask, ..args });
        assert!(want[0].contains(&0.0), "the mask drops something");
        assert_close(&native(masked_args::<Plain>(&ROWS)), &want, 1e-5, "plain");
        assert_close(&native(masked_args::<Fused>(&ROWS)), &want, 1e-5, "fused");
    }

    /// Even runs, and a last one that is shorter.
    #[test]
    fn runs_of_tokens_make_what_the_whole_makes() {
        let cases = [
            args(false, 0, Precision::Full),
            args(true, 5, Precision::Full),
            masked_args(&ROWS),
            LatentArgs { activation: Activation::Residual, ..masked_args(&ROWS) },
        ];
        for (case, args) in cases.into_iter().enumerate() {
            let made = |most| {
                let output = forward_in_runs(args.clone(), most);
                let grad = spread([TOKENS, FEATURES], 5);
                listed(output.clone(), backward_in_runs(args.clone(), output, grad, LatentWanted::ALL, most))
            };
            let want = made(TOKENS);
            for most in [2, 4] {
                assert_close(&made(most), &want, 1e-5, &format!("case {case}, runs of {most}"));
            }
        }
    }

    #[test]
    #[should_panic(expected = "mask of the latent layer: row 3 of a mask of 3 rows")]
    fn a_row_that_the_mask_has_not_is_refused() {
        Plain::latent(masked_args(&[0, 1, 2, 3, 0, 0]));
    }

    #[test]
    #[should_panic(
        expected = "bias of the latent layer: the kernel needs [50] in F32, but the tensor has [1] in F32"
    )]
    fn a_bias_of_other_features_is_refused() {
        Plain::latent(LatentArgs { bias: Some(spread([1], 3)), ..args::<Plain>(false, 0, Precision::Full) });
    }
}
