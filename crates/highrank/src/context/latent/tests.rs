use burn::backend::{Autodiff, Flex};
use burn::tensor::{DType, Tensor, TensorData};

use super::*;
use crate::likelihood::LikelihoodBackend;

type Ad = Autodiff<Flex>;

fn spread<B: Backend, const D: usize>(shape: [usize; D], seed: usize, dtype: DType) -> Tensor<B, D> {
    let count = shape.iter().product();
    let values: Vec<f64> = (0..count).map(|i| ((i + seed) * 7919 % 1009) as f64 / 504.0 - 1.0).collect();
    Tensor::from_data(TensorData::new(values, shape).convert_dtype(dtype), (&Default::default(), dtype))
}

fn values<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> Vec<f64> {
    tensor.into_data().iter::<f64>().collect()
}

/// Value and gradients by the given form, with a non-uniform upstream gradient.
fn run(form: fn(LatentArgs<Ad>) -> Tensor<Ad, 2>, bias: bool, mask: bool, dtype: DType) -> Vec<f64> {
    let (tokens, d_hidden, features) = (6, 5, 35);
    let hidden = spread::<Ad, 2>([tokens, d_hidden], 1, dtype).require_grad();
    let weight = spread::<Ad, 2>([d_hidden, features], 2, dtype).require_grad();
    let bias = bias.then(|| spread::<Ad, 1>([features], 3, dtype).require_grad());
    let mask = mask.then(|| LatentMask {
        values: spread::<Ad, 2>([2, features], 4, dtype)
            .greater_elem(-0.5)
            .float()
            .cast(dtype)
            .div_scalar(0.8),
        first: 0,
        keep: 0.8,
    });
    let args = LatentArgs {
        hidden: hidden.clone(),
        weight: weight.clone(),
        bias: bias.clone(),
        mask,
        precision: Precision::Full,
    };
    let output = form(args);
    let mut all = values(output.clone());
    let store = (output * spread([tokens, features], 5, dtype)).sum().backward();
    all.extend(values(hidden.grad(&store).unwrap()));
    all.extend(values(weight.grad(&store).unwrap()));
    all.extend(bias.into_iter().flat_map(|bias| values(bias.grad(&store).unwrap())));
    all
}

#[test]
fn the_operation_agrees_with_the_composed_formula() {
    for (bias, mask) in [(false, false), (false, true), (true, false), (true, true)] {
        for (dtype, tolerance) in [(DType::F32, 2e-6), (DType::F64, 4e-15)] {
            let want = run(portable::latent, bias, mask, dtype);
            let got = run(Ad::latent, bias, mask, dtype);
            assert_eq!(got.len(), want.len());
            for (i, (got, want)) in got.iter().zip(&want).enumerate() {
                let near = (got - want).abs() <= tolerance * want.abs().max(1.0);
                assert!(near, "bias {bias}, mask {mask}, {dtype:?}, element {i}: {got} against {want}");
            }
        }
    }
}

#[test]
fn the_portable_backward_pass_agrees_with_the_native_one() {
    let dtype = DType::F64;
    let args = LatentArgs::<Flex> {
        hidden: spread([6, 5], 1, dtype),
        weight: spread([5, 9], 2, dtype),
        bias: Some(spread([9], 3, dtype)),
        mask: Some(LatentMask {
            values: spread::<Flex, 2>([3, 9], 4, dtype).greater_elem(0.0).float().cast(dtype).div_scalar(0.5),
            first: 0,
            keep: 0.5,
        }),
        precision: Precision::Full,
    };
    let output = Flex::latent(args.clone());
    let grad = spread([6, 9], 5, dtype);
    let wanted = LatentWanted { hidden: true, weight: true, bias: true };
    let native = Flex::latent_backward(args.clone(), output.clone(), grad.clone(), wanted);
    let composed = portable::latent_backward(args, output, grad, wanted);
    let all = |made: LatentGradients<Flex>| {
        [made.hidden.unwrap(), made.weight.unwrap(), made.bias.unwrap().unsqueeze()].map(values).concat()
    };
    for (got, want) in all(native).iter().zip(all(composed)) {
        assert!((got - want).abs() < 1e-14, "{got} against {want}");
    }
}
