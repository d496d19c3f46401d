//! Products of every precision and factors of every type, against the portable body of the same precision.

use burn::backend::Dispatch;

use super::*;
use crate::ops::Activation;

/// Sizes that are no multiples of anything; a chunk has three tokens, or all.
const GIVEN: Model = Model { tokens: 7, vocab: 301, d: 33, scale: 0.5, chunk: 3, ..Model::PLAIN };

const LATENT: Model = Model { tokens: 8, components: 3, vocab: 203, d: 37, d_hidden: 29, ..GIVEN };

const SIZES: [Model; 6] = [
    GIVEN,
    Model { components: 3, vocab: 131, d: 18, ..GIVEN },
    LATENT,
    Model {
        tokens: 2,
        components: 5,
        vocab: 75,
        d: 7,
        d_hidden: 11,
        activation: Activation::Residual,
        ..LATENT
    },
    Model { tokens: 1, vocab: 40, d: 3, ..GIVEN },
    Model { d: 10, activation: Activation::Linear, chunk: 1000, ..LATENT },
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
const FORMS: [LogitMapConfig; 2] = [LogitMapConfig::Identity, LogitMapConfig::SoftCap { cap: 4.0 }];

fn goal(model: &Model, statistics: bool) -> Goal {
    let words = (0..model.tokens).map(|token| (token * 31 % model.vocab) as i64).collect();
    let targets = Targets::Words(integers(words, [model.tokens]));
    let label_smoothing = if statistics { 0.125 } else { 0.0 };
    Objective { label_smoothing, z_loss: label_smoothing, statistics, ..Objective::new(targets) }
}

/// The portable body, its products and its latent layer too composed of Burn's own operations.
fn composed_of_burns(input: &LikelihoodInput<Floats<Flex>>, goal: &Goal) -> Made {
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
fn tolerance(model: &Model, is_loss: bool) -> f64 {
    match (model.precision, is_loss) {
        _ if model.types[1] == DType::F64 => 1e-13,
        (Precision::Full, _) => 3e-6,
        (_, true) if model.d_hidden == 0 => 1e-6,
        (Precision::Tf32, true) => 1e-4,
        (Precision::Tf32, false) => 2e-4,
        (Precision::Bf16, true) => 8e-4,
        (Precision::Bf16, false) => 2e-3,
    }
}

#[test]
fn every_precision_and_type_agrees_with_the_portable_body() {
    let cases = SIZES.into_iter().flat_map(|sizes| FORMS.map(|map| Model { map, ..sizes }));
    for model in cases.flat_map(|case| TYPES.map(|types| Model { types, ..case })) {
        for precision in [Precision::Full, Precision::Tf32, Precision::Bf16] {
            for statistics in [false, true] {
                let model = Model { precision, ..model };
                let what = format!("{model:?}, statistics {statistics}");
                let (input, goal) = (model.input(), goal(&model, statistics));
                let (got, _) = parts(&native(&input, &goal));
                let (want, _) = parts(&composed_of_burns(&input, &goal));
                assert_eq!(got.len(), want.len(), "{what}");
                for (i, (got, want)) in got.iter().zip(&want).enumerate() {
                    let tolerance = tolerance(&model, i <= usize::from(statistics));
                    assert_close(&format!("part {i} of {what}"), got, want, tolerance);
                }
                let (alone, _) = parts(&Flex::score(input, goal, None));
                assert_close(&format!("{what}: loss without gradients"), &alone[0], &got[0], 1e-6);
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
        let precision = Precision::Bf16;
        let given = Model { map, d_hidden: 0, ..sizes };
        let goal = goal(&given, false);
        let rough = Model { types: [DType::F32; 2], precision, ..given }.input();
        let made = native(&rough, &goal);
        let composed = composed_of_burns(&rough, &goal);
        let mut exact = given.input();
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
                "{given:?}: part {i} is off by {got:e}, the portable by {theirs:e}"
            );
        }
    }
}

#[test]
fn any_number_of_threads_makes_the_same() {
    for sizes in SIZES {
        // Sums of another order may round a number the other way.
        for (precision, tolerance) in [(Precision::Full, 2e-6), (Precision::Bf16, 2e-4)] {
            for map in [LogitMapConfig::Identity, LogitMapConfig::Gss] {
                let model = of_type(Model { map, precision, ..sizes }, DType::F32);
                let goal = goal(&model, map == LogitMapConfig::Identity);
                check_threads(&model.input(), &goal, tolerance, &format!("{model:?}"));
            }
        }
    }
}
