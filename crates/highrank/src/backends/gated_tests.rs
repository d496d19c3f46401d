//! The likelihood of contexts with gates: Flex's kernel against the portable body.

use std::array::from_fn;

use burn::backend::Flex;
use burn::tensor::{DType, Device};
use highrank_kernels::{Floats, Ints, Precision};

use super::testing::{assert_close, integers, on_threads, primitive, spread, values};
use crate::likelihood::{LikelihoodKernels, portable};
use crate::ops::{
    ContextSource, GatedArgs, GatedInputs, Gradients, LikelihoodInput, LogitMapConfig, Objective, PerInput,
    Prediction, Scores, Targets, Wanted, wide,
};

/// N, S, V, d and G: single ones, rows that no vector fills, gates of all words, and chunks that do not divide the tokens.
const SIZES: [[usize; 5]; 6] = [
    [1, 1, 1, 1, 1],
    [3, 7, 9, 5, 2],
    [5, 33, 33, 4, 3],
    [41, 70, 81, 9, 8],
    [2, 1003, 1030, 33, 5],
    [7, 5, 100, 40, 4],
];

const SMALL: [usize; 5] = [5, 7, 9, 4, 3];

const NAMES: [&str; PerInput::<()>::COUNT] = PerInput::<()>::NAMES;

type Input = LikelihoodInput<Floats<Flex>>;
type Goal = Objective<Floats<Flex>, Ints<Flex>>;

fn tensor<const D: usize>(shape: [usize; D], seed: usize, scale: f64, dtype: DType) -> Floats<Flex> {
    primitive(spread(shape, 31 * seed, &Device::flex(), dtype)).mul_scalar(scale)
}

/// Chunks of at most three tokens.
fn input([tokens, words, vocab, d, gate]: [usize; 5], dtype: DType, precision: Precision) -> Input {
    let map = LogitMapConfig::SoftCap { cap: 8.0 };
    LikelihoodInput {
        contexts: ContextSource::Gated(GatedArgs {
            inputs: GatedInputs {
                prior: tensor([tokens, 4], 1, 0.5, dtype),
                latent: tensor([tokens, 4 * d], 2, 1.0, dtype),
                features: tensor([tokens, 3 * gate], 3, 1.0, dtype),
                base: tensor([tokens, 3], 4, 2.0, dtype),
                vectors: tensor([words, gate], 5, 3.0, dtype),
                bias: tensor([words, 3], 6, 1.0, dtype),
            },
            precision,
        }),
        log_prior: None,
        weight: tensor([vocab, d], 7, 1.0, dtype),
        bias: Some(tensor([vocab], 8, 1.0, dtype)),
        map,
        map_params: None,
        temperature: 0.75,
        chunk_bytes: 3 * vocab.max(3 * words) * wide(dtype).size(),
        precision,
    }
}

/// Words with gates and without.
fn goal(sizes: [usize; 5], smoothing: f64) -> Goal {
    let [tokens, words, vocab, ..] = sizes;
    let word = |n: usize| if n.is_multiple_of(2) { n * 5 % words } else { vocab - 1 - n * 3 % vocab };
    let targets = Targets::Words(integers((0..tokens).map(|n| word(n) as i64).collect(), [tokens]));
    Objective { label_smoothing: smoothing, ..Objective::new(targets) }
}

/// Of both signs.
fn upstream([tokens, ..]: [usize; 5], dtype: DType) -> Floats<Flex> {
    tensor([tokens], 9, 1.0, dtype)
}

/// Losses, log-probabilities and gradients, with their names.
fn all(
    (scores, gradients): (Scores<Floats<Flex>>, Gradients<Floats<Flex>>),
    log_probs: Option<Floats<Flex>>,
) -> Vec<(&'static str, Vec<f64>)> {
    let made = [("loss", Some(scores.loss)), ("log-probabilities", log_probs)];
    let named = made.into_iter().chain(NAMES.into_iter().zip(gradients.into_array()));
    named.filter_map(|(name, tensor)| Some((name, values(&tensor?)))).collect()
}

#[test]
fn the_kernel_agrees_with_the_portable_body_on_any_number_of_threads() {
    for sizes in SIZES {
        for (dtype, tolerance) in [(DType::F32, 4e-6), (DType::F64, 1e-14)] {
            for (precision, smoothing) in
                [(Precision::Full, 0.0), (Precision::Full, 0.25), (Precision::Bf16, 0.0)]
            {
                let (input, goal, upstream) =
                    (input(sizes, dtype, precision), goal(sizes, smoothing), upstream(sizes, dtype));
                let want = all(
                    portable::score(&input, &goal, Some((upstream.clone(), Wanted::ALL))),
                    Some(portable::log_probs(&input)),
                );
                assert_eq!(want.len(), 2 + 8, "the decoder, its bias, and six of the gates");
                // A rounded gradient may fall on the other side.
                let tolerance = match precision {
                    Precision::Full => tolerance * (sizes[3] as f64).sqrt(),
                    _ => 8e-3,
                };
                for threads in 1..=3 {
                    let got = on_threads(threads, || {
                        let [input, other] = [input.clone(), input.clone()];
                        all(
                            Flex::score(input, goal.clone(), Some((upstream.clone(), Wanted::ALL))),
                            Flex::predict(other, Prediction::LogProbs),
                        )
                    });
                    for ((name, got), (_, want)) in got.iter().zip(&want) {
                        let what = format!(
                            "{name} of {sizes:?} in {dtype:?}, {precision}, smoothing {smoothing}, {threads} threads"
                        );
                        assert_close(&what, got, want, tolerance);
                    }
                    assert_eq!(got.len(), want.len());
                }
            }
        }
    }
}

/// As many digits of what closes a gate that is nearly open as of what opens one that is nearly closed.
#[test]
fn saturated_gates_keep_the_digits_of_their_gradients() {
    // One word has gates, so that no sum hides a small gradient.
    let sizes = [150, 1, 9, 4, 3];
    for scale in [30.0, 300.0] {
        let mut input = input(sizes, DType::F32, Precision::Full);
        let ContextSource::Gated(args) = &mut input.contexts else { unreachable!() };
        for of_logits in [&mut args.inputs.base, &mut args.inputs.vectors, &mut args.inputs.bias] {
            *of_logits = of_logits.clone().mul_scalar(scale);
        }
        let (goal, upstream) = (goal(sizes, 0.0), upstream(sizes, DType::F32));
        // The same numbers, with more digits.
        let exact = input.clone().map(|x| x.cast(DType::F64));
        let exact_upstream = upstream.clone().cast(DType::F64);
        let want = all(portable::score(&exact, &goal, Some((exact_upstream, Wanted::ALL))), None);
        let got = all(Flex::score(input, goal, Some((upstream, Wanted::ALL))), None);
        for name in ["gate logits", "gate features"] {
            let of = |all: &[(&'static str, Vec<f64>)]| {
                all.iter().find(|(part, _)| *part == name).expect("a gradient").1.clone()
            };
            let mut saturated = 0;
            for (i, (got, want)) in of(&got).into_iter().zip(of(&want)).enumerate() {
                // Exponentials of f32 end at 1e-38.
                if want.abs() > 1e-30 {
                    let error = (got - want).abs() / want.abs();
                    assert!(error < 1e-3, "{name} times {scale}, element {i}: {got:e} against {want:e}");
                    saturated += usize::from(want.abs() < 1e-8);
                }
            }
            assert!(saturated > 20, "{name} times {scale}: {saturated} gates are saturated");
        }
    }
}

#[test]
fn only_what_is_wanted_is_made() {
    let (goal, dtype) = (goal(SMALL, 0.0), DType::F64);
    let input = || input(SMALL, dtype, Precision::Full);
    for alone in 0..NAMES.len() {
        let wanted = Wanted::from_array(from_fn(|i| i == alone));
        let (_, native) = Flex::score(input(), goal.clone(), Some((upstream(SMALL, dtype), wanted)));
        let (_, portable) = portable::score(&input(), &goal, Some((upstream(SMALL, dtype), wanted)));
        let is_there = input().inputs().into_array()[alone].is_some();
        for (i, (native, portable)) in native.into_array().into_iter().zip(portable.into_array()).enumerate()
        {
            let expected = is_there && i == alone;
            assert_eq!((native.is_some(), portable.is_some()), (expected, expected), "{}", NAMES[i]);
            if let (Some(native), Some(portable)) = (native, portable) {
                assert_close(NAMES[i], &values(&native), &values(&portable), 1e-13);
            }
        }
    }
}

/// Eight words have gates, but the decoder has seven.
fn too_many_gates() -> (Input, Goal) {
    let sizes = [2, 8, 8, 3, 2];
    let input = input(sizes, DType::F32, Precision::Full);
    let (weight, bias) = (input.weight.clone().rows(0..7), input.bias.clone().map(|bias| bias.rows(0..7)));
    (LikelihoodInput { weight, bias, ..input }, goal([2, 7, 7, 3, 2], 0.0))
}

#[test]
#[should_panic(expected = "gates of 8 words, but there are 7")]
fn the_kernel_refuses_gates_of_more_words_than_there_are() {
    let (input, goal) = too_many_gates();
    Flex::score(input, goal, None);
}

#[test]
#[should_panic(expected = "gates of 8 words, but there are 7")]
fn the_portable_body_refuses_gates_of_more_words_than_there_are() {
    let (input, goal) = too_many_gates();
    portable::score(&input, &goal, None);
}
