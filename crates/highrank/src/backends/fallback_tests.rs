//! What a backend without kernels takes: the portable bodies on the dispatched backend, differentiable by composition.

use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use highrank_kernels::{Floats, Precision};

use crate::likelihood::{self, portable};
use crate::ops::{ContextSource, LatentArgs, LatentMask, Likelihood, MapFunction, PerInput, Targets};

const TOKENS: usize = 5;
const VOCAB: usize = 11;

fn leaf<const D: usize>(shape: [usize; D], seed: usize, device: &Device) -> Tensor<D> {
    constant(shape, seed, device).require_grad()
}

fn constant<const D: usize>(shape: [usize; D], seed: usize, device: &Device) -> Tensor<D> {
    let count = shape.iter().product();
    let values: Vec<f64> = (0..count).map(|i| ((i + 31 * seed) * 7919 % 1009) as f64 / 504.0 - 1.0).collect();
    Tensor::from_data(TensorData::new(values, shape), (device, DType::F64))
}

/// A mixture whose contexts a latent layer makes, every input tracked; chunks of two tokens.
fn input(map: MapFunction, device: &Device) -> Likelihood {
    let (d_hidden, components, d) = (4, 3, 2);
    let mask = constant([TOKENS, components * d], 9, device).greater_elem(0.0).float().cast(DType::F64);
    Likelihood {
        contexts: ContextSource::Latent(LatentArgs {
            hidden: leaf([TOKENS, d_hidden], 1, device).into(),
            weight: leaf([d_hidden, components * d], 2, device).into(),
            bias: Some(leaf([components * d], 3, device).into()),
            mask: Some(LatentMask { values: mask.mul_scalar(2.0).into(), first: 0, keep: 0.5 }),
            precision: Precision::Full,
        }),
        log_prior: Some(leaf([TOKENS, components], 4, device).into()),
        weight: leaf([VOCAB, d], 5, device).into(),
        bias: Some(leaf([VOCAB], 6, device).into()),
        map,
        map_params: (map.num_params() > 0).then(|| leaf([map.num_params()], 7, device).into()),
        chunk_bytes: 2 * components * VOCAB * size_of::<f64>(),
        precision: Precision::Full,
    }
}

fn values(x: Floats) -> Vec<f64> {
    x.into_data().iter::<f64>().collect()
}

/// A loss and the gradients of all inputs and of the token weights.
fn run(
    map: MapFunction,
    targets: fn(&Device) -> Targets,
    loss: fn(Likelihood, Targets, Tensor<1>) -> Tensor<1>,
) -> Vec<Vec<f64>> {
    let device = Device::flex().autodiff();
    let input = input(map, &device);
    let weights = leaf([TOKENS], 8, &device);
    let loss = loss(input.clone(), targets(&device), weights.clone());
    let mut all = vec![values(loss.clone().into())];
    let store = loss.backward();
    let vectors = |x: &Floats| match x.shape().num_dims() {
        1 => values(x.clone().tensor::<1>().grad(&store).expect("a gradient").into()),
        _ => values(x.clone().tensor::<2>().grad(&store).expect("a gradient").into()),
    };
    let inputs: PerInput<Option<&Floats>> = input.inputs();
    all.extend(inputs.into_array().into_iter().flatten().map(vectors));
    all.push(vectors(&weights.into()));
    all
}

fn words(device: &Device) -> Targets {
    Targets::Words(Tensor::<1, Int>::from_data([0, 10, 3, 7, 3], device).into())
}

fn distributions(device: &Device) -> Targets {
    let rows = constant([TOKENS, VOCAB], 10, device).add_scalar(1.1);
    Targets::Distributions((rows.clone() / rows.sum_dim(1)).into())
}

#[test]
fn the_fallback_agrees_with_the_native_operations() {
    let maps = [
        MapFunction::Identity,
        MapFunction::Sigsoftmax,
        MapFunction::Gss,
        MapFunction::SoftCap { cap: 1.5 },
        MapFunction::Plif { pieces: 6, bound: 1.5 },
        MapFunction::MonotonicNet { units: 3 },
    ];
    for map in maps {
        for targets in [words, distributions] {
            let native = run(map, targets, |input, targets, weights| {
                likelihood::mean_nll(input, targets, Some(weights.add_scalar(1.5)))
            });
            let fallback = run(map, targets, |input, targets, weights| {
                portable::mean_nll(input, targets, Some(weights.add_scalar(1.5).into())).tensor()
            });
            assert_eq!(native.len(), fallback.len());
            for (i, (native, fallback)) in native.iter().zip(&fallback).enumerate() {
                for (a, b) in native.iter().zip(fallback) {
                    assert!((a - b).abs() <= 1e-12 * a.abs().max(1.0), "{map:?}, {i}: {a} against {b}");
                }
            }
            let native = run(map, targets, |input, targets, weights| {
                (likelihood::nll(input, targets) * weights).sum()
            });
            let fallback = run(map, targets, |input, targets, weights| {
                (portable::nll(&input, &targets).tensor::<1>() * weights).sum()
            });
            for (a, b) in native.concat().iter().zip(&fallback.concat()) {
                assert!((a - b).abs() <= 1e-12 * a.abs().max(1.0), "{map:?}, nll: {a} against {b}");
            }
        }
    }
}
