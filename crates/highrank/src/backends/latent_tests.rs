//! The latent layer's kernel and its backward pass against the composed formula.

use std::sync::Arc;

use burn::backend::Dispatch;
use burn::tensor::{DType, Device, Tensor};
use highrank_kernels::{Floats, Precision};

use super::testing::{assert_each_close, spread, values};
use crate::likelihood::OutputOps;
use crate::ops::{Activation, LatentArgs, LatentMask, latent};

/// 1.2539 where a value exceeds −0.5, 0 elsewhere: not quite the inverse of a probability, as a mask in half precision.
fn mask(shape: [usize; 2], device: &Device, dtype: DType) -> Tensor<2> {
    spread::<2>(shape, 4, device, dtype).greater_elem(-0.5).float().cast(dtype).mul_scalar(1.2539)
}

fn native(args: LatentArgs) -> Floats {
    Floats::new(<Dispatch as OutputOps>::latent(args))
}

/// Value and gradients by the given form, with a non-uniform upstream gradient.
fn run(
    form: fn(LatentArgs) -> Floats,
    activation: Activation,
    bias: bool,
    is_masked: bool,
    dtype: DType,
) -> Vec<f64> {
    let device = Device::flex().autodiff();
    let (tokens, d_hidden, d, features) = (6, 5, 4, 36);
    let hidden = spread([tokens, d_hidden], 1, &device, dtype).require_grad();
    let weight = spread([d_hidden, features], 2, &device, dtype).require_grad();
    let bias = bias.then(|| spread([features], 3, &device, dtype).require_grad());
    let args = LatentArgs {
        activation,
        d,
        hidden: hidden.clone().into(),
        weight: weight.clone().into(),
        bias: bias.clone().map(Floats::from),
        mask: is_masked.then(|| LatentMask {
            values: mask([3, features], &device, dtype).into(),
            rows: Arc::from([2, 2, 0, 1, 0, 2]),
        }),
        precision: Precision::Full,
    };
    let output = form(args).tensor::<2>();
    let mut all = values(&Floats::from(output.clone()));
    let store = (output * spread([tokens, features], 5, &device, dtype)).sum().backward();
    all.extend(values(&Floats::from(hidden.grad(&store).unwrap())));
    all.extend(values(&Floats::from(weight.grad(&store).unwrap())));
    all.extend(bias.into_iter().flat_map(|bias| values(&Floats::from(bias.grad(&store).unwrap()))));
    all
}

#[test]
fn the_operation_agrees_with_the_composed_formula() {
    let cases = [(false, false), (false, true), (true, false), (true, true)];
    for (activation, (bias, mask)) in Activation::ALL.iter().flat_map(|a| cases.map(|case| (*a, case))) {
        for (dtype, tolerance) in [(DType::F32, 2e-6), (DType::F64, 4e-15)] {
            let want = run(latent::latent, activation, bias, mask, dtype);
            let got = run(native, activation, bias, mask, dtype);
            let what = format!("{activation}, bias {bias}, mask {mask}, {dtype:?}");
            assert_each_close(&what, &got, &want, tolerance);
        }
    }
}
