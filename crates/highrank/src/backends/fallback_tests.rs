//! What a backend without kernels takes: the portable bodies on the dispatched backend, differentiable by composition.

use burn::backend::Flex;
use burn::tensor::{DType, Device, Int, Tensor};
use highrank_kernels::Floats;

use super::testing::{Model, assert_each_close, spread, values};
use crate::likelihood::{self, portable};
use crate::ops::{LikelihoodInput, LogitMapConfig, Objective, PerInput, Scores, Targets};

const TOKENS: usize = Model::PLAIN.tokens;
const VOCAB: usize = 11;

fn constant<const D: usize>(shape: [usize; D], seed: usize, device: &Device) -> Tensor<D> {
    spread(shape, 31 * seed, device, DType::F64)
}

/// A mixture whose contexts a latent layer makes, every input tracked; chunks of two tokens. Word 5 is masked.
fn input(map: LogitMapConfig, device: &Device) -> LikelihoodInput {
    let tracked = |x: Floats<Flex>| match x.shape().num_dims() {
        1 => Floats::from(Tensor::<1>::from_data(x.into_data(), (device, DType::F64)).require_grad()),
        _ => Floats::from(Tensor::<2>::from_data(x.into_data(), (device, DType::F64)).require_grad()),
    };
    let model = Model { map, components: 3, vocab: VOCAB, d: 2, d_hidden: 4, ..Model::PLAIN };
    let is_masked = Tensor::<1, Int>::arange(0..VOCAB as i64, device).equal_elem(5);
    let bias = constant([VOCAB], 6, device).mask_fill(is_masked, f64::NEG_INFINITY);
    LikelihoodInput {
        bias: Some(bias.require_grad().into()),
        temperature: 1.25,
        ..model.input().map(tracked)
    }
}

/// A loss, its statistics, and the gradients of all inputs and of the token weights.
fn run(
    map: LogitMapConfig,
    objective: &Objective,
    is_sum: bool,
    form: fn(LikelihoodInput, Objective, Option<Tensor<1>>) -> Scores,
) -> Vec<Vec<f64>> {
    let device = Device::flex().autodiff();
    let input = input(map, &device);
    let weights = constant([TOKENS], 8, &device).require_grad();
    let of_sum = is_sum.then(|| weights.clone().add_scalar(1.5));
    let scores = form(input.clone(), objective.clone(), of_sum);
    let mut all = vec![values(&scores.loss)];
    all.extend(scores.statistics.as_ref().map(values));
    let loss = scores.loss.tensor::<1>();
    let store = match is_sum {
        false => (loss * weights.clone()).sum(),
        // Scaled, so that its own upstream gradient is not 1.
        true => loss * -2.5,
    }
    .backward();
    let vectors = |x: &Floats| match x.shape().num_dims() {
        1 => values(&Floats::from(x.clone().tensor::<1>().grad(&store).expect("a gradient"))),
        _ => values(&Floats::from(x.clone().tensor::<2>().grad(&store).expect("a gradient"))),
    };
    let inputs: PerInput<Option<&Floats>> = input.inputs();
    all.extend(inputs.into_array().into_iter().flatten().map(vectors));
    all.push(vectors(&weights.into()));
    all
}

fn words(device: &Device) -> Tensor<1, Int> {
    Tensor::from_data([0, 10, 3, 7, 3], device)
}

fn all_targets(device: &Device) -> [Targets; 3] {
    let ids = [[0, 5], [10, 2], [1, 3], [9, 8], [4, 6]];
    let probs = [[0.5, 0.0], [0.25, 0.75], [0.125, 0.5], [1.0, 0.0], [0.0, 0.25]];
    let rows = constant([TOKENS, VOCAB], 10, device).add_scalar(1.1);
    // The masked word has probability 0.
    let rows = rows.slice_fill([0..TOKENS, 5..6], 0.0);
    [
        Targets::Words(words(device).into()),
        Targets::Teacher {
            words: words(device).into(),
            ids: Tensor::<2, Int>::from_data(ids, device).into(),
            probs: Tensor::<2>::from_data(probs, (device, DType::F64)).into(),
        },
        Targets::Distributions { words: words(device).into(), rows: (rows.clone() / rows.sum_dim(1)).into() },
    ]
}

#[test]
fn the_fallback_agrees_with_the_native_operations() {
    let device = Device::flex().autodiff();
    for map in LogitMapConfig::examples() {
        for targets in all_targets(&device) {
            let plain = Objective::new(targets);
            let full = Objective {
                label_smoothing: 0.25,
                z_loss: 0.5,
                normaliser: Some(constant([TOKENS], 11, &device).into()),
                statistics: true,
                ..plain.clone()
            };
            for objective in [plain, full] {
                for is_sum in [true, false] {
                    let native = run(map, &objective, is_sum, likelihood::loss);
                    let fallback = run(map, &objective, is_sum, |input, objective, weights| {
                        portable::score(&input, &objective, None).0.weighted(weights.map(Floats::from))
                    });
                    assert_eq!(native.len(), fallback.len());
                    for (i, (native, fallback)) in native.iter().zip(&fallback).enumerate() {
                        let what = format!("part {i} of {map:?}, {objective:?}, sum {is_sum}");
                        assert_each_close(&what, fallback, native, 1e-12);
                    }
                }
            }
        }
    }
}
