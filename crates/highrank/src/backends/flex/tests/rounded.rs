//! Products of every precision and factors of every type, against the portable body of the same precision.

use std::sync::Arc;

use burn::backend::Dispatch;

use super::*;
use crate::ops::{Activation, LatentArgs, LatentMask};

/// Sizes that are no multiples of anything; a chunk has three tokens, or all.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    tokens: usize,
    components: usize,
    vocab: usize,
    d: usize,
    /// Of the hidden state that a latent layer makes the contexts of, or 0.
    d_hidden: usize,
    /// Of that layer.
    activation: Activation,
    /// All tokens are in one chunk.
    is_whole: bool,
}

const GIVEN: Sizes = Sizes {
    tokens: 7,
    components: 1,
    vocab: 301,
    d: 33,
    d_hidden: 0,
    activation: Activation::Tanh,
    is_whole: false,
};

const LATENT: Sizes = Sizes { tokens: 8, components: 3, vocab: 203, d: 37, d_hidden: 29, ..GIVEN };

const SIZES: [Sizes; 6] = [
    GIVEN,
    Sizes { components: 3, vocab: 131, d: 18, ..GIVEN },
    LATENT,
    Sizes {
        tokens: 2,
        components: 5,
        vocab: 75,
        d: 7,
        d_hidden: 11,
        activation: Activation::Residual,
        ..LATENT
    },
    Sizes { tokens: 1, vocab: 40, d: 3, ..GIVEN },
    Sizes { d: 10, activation: Activation::Linear, is_whole: true, ..LATENT },
];

/// Of contexts or hidden state, and of the decoder; the layer's weight is of the former.
const TYPES: [[DType; 2]; 6] = [
    [DType::F64, DType::F64],
    [DType::F32, DType::F32],
    [DType::BF16, DType::BF16],
    [DType::BF16, DType::F32],
    [DType::F32, DType::BF16],
    [DType::F16, DType::F16],
];

/// Of which the first leaves a row's gradient without a factor, and the other does not.
const FORMS: [MapFunction; 2] = [MapFunction::Identity, MapFunction::SoftCap { cap: 4.0 }];

fn input(
    sizes: Sizes,
    map: MapFunction,
    [hidden, decoder]: [DType; 2],
    precision: Precision,
) -> Likelihood<Floats<Flex>> {
    let Sizes { tokens, components, vocab, d, d_hidden, activation, is_whole } = sizes;
    let features = components * d;
    let contexts = match d_hidden {
        0 => ContextSource::Given(tensor([tokens * components, d], 1, 1.0, hidden)),
        _ => ContextSource::Latent(LatentArgs {
            activation,
            d,
            hidden: tensor([tokens, d_hidden], 1, 1.0, hidden),
            weight: tensor([d_hidden, features], 7, 0.5, hidden),
            bias: Some(tensor([features], 8, 1.0, hidden)),
            mask: Some(LatentMask {
                values: mask(features, hidden),
                rows: Arc::from([1, 0, 0, 1, 1, 0, 1, 0]),
                first: 0,
            }),
            precision,
        }),
    };
    let log_prior = tensor([tokens, components], 2, 1.0, decoder).sub_scalar(1.0);
    Likelihood {
        contexts,
        log_prior: (components > 1).then_some(log_prior),
        weight: tensor([vocab, d], 3, 0.5, decoder),
        bias: Some(tensor([vocab], 4, 1.0, decoder)),
        map,
        map_params: (map.num_params() > 0).then(|| tensor([map.num_params()], 5, 1.0, decoder)),
        temperature: 1.0,
        chunk_bytes: if is_whole { 1 << 20 } else { 3 * components * vocab * decoder.size() },
        precision,
    }
}

/// Two rows of 0 and 2.
fn mask(features: usize, dtype: DType) -> Floats<Flex> {
    let x = tensor([2, features], 9, 1.0, dtype);
    x.zeros_like().fill_where(x.at_least(-0.25), 2.0)
}

fn goal(sizes: Sizes, statistics: bool) -> Goal {
    let words = (0..sizes.tokens).map(|token| (token * 31 % sizes.vocab) as i64).collect();
    let targets = Targets::Words(integers(words, [sizes.tokens]));
    let label_smoothing = if statistics { 0.125 } else { 0.0 };
    Objective { label_smoothing, z_loss: label_smoothing, statistics, ..Objective::new(targets) }
}

/// The portable body, its products and its latent layer too composed of Burn's own operations.
fn composed_of_burns(input: &Likelihood<Floats<Flex>>, goal: &Goal) -> Made {
    let device = burn::tensor::Device::flex();
    let there = |x: Floats<Flex>| Floats::<Dispatch>::from_data(x.into_data(), device.as_dispatch());
    let back = |x: Floats<Dispatch>| Floats::<Flex>::from_data(x.into_data(), &Default::default());
    let words = |x: Ints<Flex>| Ints::<Dispatch>::from_data(x.into_data(), device.as_dispatch());
    let (scores, gradients) = portable::score::<Dispatch>(
        &input.clone().map(there),
        &goal.clone().map(there, words),
        Some((there(upstream(input)), Wanted::ALL)),
    );
    let scores = Scores { loss: back(scores.loss), statistics: scores.statistics.map(back), listed: None };
    (scores, gradients.map(|gradient| gradient.map(back)))
}

/// What two correct programs may differ by: sums of f32 in another order round a number the other way, now and then; of the
/// numbers behind a loss only contexts that a layer has made.
fn tolerance(sizes: Sizes, types: [DType; 2], precision: Precision, is_loss: bool) -> f64 {
    match (precision, is_loss) {
        _ if types[1] == DType::F64 => 1e-13,
        (Precision::Full, _) => 3e-6,
        (_, true) if sizes.d_hidden == 0 => 1e-6,
        (Precision::Tf32, true) => 1e-4,
        (Precision::Tf32, false) => 2e-4,
        (Precision::Bf16, true) => 8e-4,
        (Precision::Bf16, false) => 2e-3,
    }
}

#[test]
fn every_precision_and_type_agrees_with_the_portable_body() {
    let cases = SIZES.into_iter().flat_map(|sizes| FORMS.map(|map| (sizes, map)));
    for ((sizes, map), types) in cases.flat_map(|case| TYPES.map(|types| (case, types))) {
        for precision in [Precision::Full, Precision::Tf32, Precision::Bf16] {
            for statistics in [false, true] {
                let what = format!("{sizes:?}, {map:?}, {types:?}, {precision}, statistics {statistics}");
                let (input, goal) = (input(sizes, map, types, precision), goal(sizes, statistics));
                let (got, _) = parts(&native(&input, &goal));
                let (want, _) = parts(&composed_of_burns(&input, &goal));
                assert_eq!(got.len(), want.len(), "{what}");
                for (i, (got, want)) in got.iter().zip(&want).enumerate() {
                    let error = error(got, want);
                    let tolerance = tolerance(sizes, types, precision, i <= usize::from(statistics));
                    assert!(error <= tolerance, "{what}: part {i} is off by {error:e}");
                }
                let (alone, _) = parts(&Flex::score(input, goal, None));
                assert!(error(&alone[0], &got[0]) <= 1e-6, "{what}: loss without gradients");
            }
        }
    }
}

/// The root of the mean square of the differences, relative to that of the numbers.
fn mean_error(got: &[f64], want: &[f64]) -> f64 {
    let differences: f64 = got.iter().zip(want).map(|(got, want)| (got - want).powi(2)).sum();
    (differences / want.iter().map(|x| x * x).sum::<f64>().max(f64::MIN_POSITIVE)).sqrt()
}

/// Against the gradients that the rounded inputs have in f64.
#[test]
fn rounded_gradients_are_no_worse_than_those_of_the_portable_body() {
    for (sizes, map) in SIZES.into_iter().flat_map(|sizes| FORMS.map(|map| (sizes, map))) {
        let given = Sizes { d_hidden: 0, ..sizes };
        let (goal, precision) = (goal(given, false), Precision::Bf16);
        let rough = input(given, map, [DType::F32; 2], precision);
        let made = native(&rough, &goal);
        let composed = composed_of_burns(&rough, &goal);
        let mut exact = input(given, map, [DType::F64; 2], Precision::Full);
        exact.weight = precision.rounded(exact.weight);
        exact.contexts = exact.contexts.map(|contexts| precision.rounded(contexts));
        let truth = composed_of_burns(&exact, &goal);
        let [made, composed, truth] = [made, composed, truth].map(|made| parts(&made).0);
        for (i, truth) in truth.iter().enumerate() {
            let (got, theirs) = (mean_error(&made[i], truth), mean_error(&composed[i], truth));
            // What is rounded there is rounded here; which way single numbers go is chance.
            let allowed = 0.5 * theirs - 1e-6..=1.25 * theirs + 2e-6;
            assert!(
                allowed.contains(&got),
                "{given:?}, {map:?}: part {i} is off by {got:e}, the portable by {theirs:e}"
            );
        }
    }
}

#[test]
fn any_number_of_threads_makes_the_same() {
    for sizes in SIZES {
        // Sums of another order may round a number the other way.
        for (precision, tolerance) in [(Precision::Full, 2e-6), (Precision::Bf16, 2e-4)] {
            for map in [MapFunction::Identity, MapFunction::Gss] {
                let input = input(sizes, map, [DType::F32; 2], precision);
                let goal = goal(sizes, map == MapFunction::Identity);
                check_threads(&input, &goal, tolerance, &format!("{sizes:?}, {map:?}, {precision}"));
            }
        }
    }
}
