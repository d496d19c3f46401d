//! What holds of every loss, and identities of each. Reference values of most are in the workspace's golden data.

use burn::tensor::{Bool, DType, Device, Tensor, TensorData};

use super::*;

const SEQUENCES: usize = 4;
const LENGTH: usize = 5;
/// Prompts, padding, a gap and a sequence without tokens.
const MASK: [[bool; LENGTH]; SEQUENCES] = [
    [false, true, true, true, true],
    [true, true, false, true, false],
    [false; LENGTH],
    [true, true, true, false, false],
];

fn tensor<const D: usize>(values: Vec<f64>, shape: [usize; D]) -> Tensor<D> {
    Tensor::from_data(TensorData::new(values, shape), (&device(), DType::F64))
}

fn device() -> Device {
    Device::flex().autodiff()
}

fn vector(values: &[f64]) -> Tensor<1> {
    tensor(values.to_vec(), [values.len()])
}

fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
    tensor.into_data().iter::<f64>().collect()
}

fn scalar(tensor: Tensor<1>) -> f64 {
    tensor.into_scalar()
}

fn all_count(shape: [usize; 2]) -> Tensor<2, Bool> {
    Tensor::full(shape, true, &device())
}

/// What the losses are given, and a number for every place that does not count.
struct Given {
    log_probs: Vec<f64>,
    elsewhere: f64,
}

impl Given {
    /// Log-probabilities between −2.1 and −0.1.
    fn new() -> Self {
        Self { log_probs: Self::spread(1).iter().map(|x| x - 1.1).collect(), elsewhere: 0.0 }
    }

    /// Numbers between −1 and 1.
    fn spread(seed: usize) -> Vec<f64> {
        (0..SEQUENCES * LENGTH).map(|i| ((i * 37 + seed * 101) % 97) as f64 / 48.0 - 1.0).collect()
    }

    fn mask() -> Tensor<2, Bool> {
        Tensor::from_data(MASK, &device())
    }

    /// With the number for places that do not count.
    fn masked(&self, values: Vec<f64>) -> Tensor<2> {
        let values = values.into_iter().zip(MASK.as_flattened());
        let values = values.map(|(value, counts)| if *counts { value } else { self.elsewhere });
        tensor(values.collect(), [SEQUENCES, LENGTH])
    }

    fn log_probs(&self) -> Tensor<2> {
        self.masked(self.log_probs.clone()).require_grad()
    }

    fn other_log_probs(&self, seed: usize) -> Tensor<2> {
        self.masked(Self::spread(seed).iter().map(|x| x - 1.2).collect())
    }

    fn advantages(&self) -> Tensor<2> {
        self.masked(Self::spread(9))
    }
}

type LossOf = fn(&Given, Tensor<2>) -> Tensor<1>;

/// Every loss by its name.
fn losses() -> Vec<(&'static str, LossOf)> {
    fn pairs() -> Pairs {
        let [chosen, rejected] = [[0, 3, 0], [1, 1, 2]].map(|numbers| Tensor::from_ints(numbers, &device()));
        Pairs { chosen, rejected }
    }
    fn grpo(given: &Given, log_probs: Tensor<2>, aggregation: Aggregation) -> Tensor<1> {
        // Some function of what is trained.
        let entropy = log_probs.clone() * -0.7;
        let options = GrpoOptions {
            kl_penalty: Some((0.3, given.other_log_probs(5))),
            entropy_bonus: Some((0.2, entropy)),
            aggregation,
            ..Default::default()
        };
        let old = given.other_log_probs(4);
        grpo_loss(log_probs, old, given.advantages(), Given::mask(), &options).value
    }
    vec![
        ("dpo", |given, log_probs| {
            let options = DpoOptions { beta: 0.5, label_smoothing: 0.2 };
            dpo_loss(log_probs, given.other_log_probs(3), Given::mask(), &pairs(), &options).value
        }),
        ("simpo", |_, log_probs| {
            simpo_loss(log_probs, Given::mask(), &pairs(), &SimpoOptions::default()).value
        }),
        ("orpo", |_, log_probs| orpo_loss(log_probs, Given::mask(), &pairs(), &OrpoOptions::default()).value),
        ("kto", |given, log_probs| {
            let desirable = Tensor::<1, Bool>::from_data([true, false, false, true], &device());
            let options = KtoOptions {
                beta: 0.5,
                undesirable_weight: 1.5,
                reference_point: Some(vector(&[0.25])),
                ..Default::default()
            };
            kto_loss(log_probs, given.other_log_probs(3), Given::mask(), desirable, &options).value
        }),
        ("grpo, token mean", |given, log_probs| grpo(given, log_probs, Aggregation::TokenMean)),
        ("grpo, sequence mean", |given, log_probs| grpo(given, log_probs, Aggregation::SequenceMean)),
        ("grpo, divisor", |given, log_probs| grpo(given, log_probs, Aggregation::Divisor(7.0))),
    ]
}

/// A loss and its gradient.
fn value_and_gradient(loss: LossOf, given: &Given) -> (f64, Vec<f64>) {
    let log_probs = given.log_probs();
    let value = loss(given, log_probs.clone());
    let gradient = log_probs.grad(&value.backward()).expect("a gradient");
    (scalar(value), values(gradient))
}

#[test]
fn gradients_are_the_slopes_of_the_losses() {
    for (name, loss) in losses() {
        let (_, gradient) = value_and_gradient(loss, &Given::new());
        assert!(gradient.iter().any(|slope| slope.abs() > 1e-3), "{name}: {gradient:?}");
        for (place, slope) in gradient.iter().enumerate() {
            let at = |step: f64| {
                let mut given = Given::new();
                given.log_probs[place] += step;
                value_and_gradient(loss, &given).0
            };
            let difference = (at(1e-5) - at(-1e-5)) / 2e-5;
            assert!((slope - difference).abs() < 1e-8, "{name}, place {place}: {slope} against {difference}");
        }
    }
}

#[test]
fn places_that_do_not_count_may_hold_anything() {
    for (name, loss) in losses() {
        let (value, gradient) = value_and_gradient(loss, &Given::new());
        for elsewhere in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e300] {
            let (other, other_gradient) = value_and_gradient(loss, &Given { elsewhere, ..Given::new() });
            assert_eq!(value, other, "{name} with {elsewhere}");
            assert_eq!(gradient, other_gradient, "{name} with {elsewhere}");
        }
        let places = gradient.iter().zip(MASK.as_flattened());
        assert!(
            places.filter(|(_, counts)| !**counts).all(|(slope, _)| *slope == 0.0),
            "{name}: {gradient:?}"
        );
    }
}

#[test]
fn equal_policies_have_no_preference() {
    let given = Given::new();
    let log_probs = given.log_probs();
    let pairs = Pairs::halves(SEQUENCES, &device());
    let reference = log_probs.clone().detach();
    let made = dpo_loss(log_probs.clone(), reference, Given::mask(), &pairs, &DpoOptions::default());
    assert!((scalar(made.value.clone()) - 2f64.ln()).abs() < 1e-15);
    assert_eq!(values(made.rewards), [0.0; SEQUENCES]);
    // Each of two pairs pulls with β/2, up for the first sequences and down for the last.
    let gradient = values(log_probs.grad(&made.value.backward()).unwrap());
    for (i, (slope, counts)) in gradient.iter().zip(MASK.as_flattened()).enumerate() {
        let sign = if i < SEQUENCES / 2 * LENGTH { -1.0 } else { 1.0 };
        let want = if *counts { sign * 0.1 / 4.0 } else { 0.0 };
        assert!((slope - want).abs() < 1e-15, "place {i}: {slope} against {want}");
    }
}

#[test]
fn preferences_far_apart_neither_overflow_nor_vanish() {
    for (chosen, value, slope) in [(4e4, 0.0, 0.0), (-4e4, 4e4, -1.0)] {
        for dtype in [DType::F64, DType::F32] {
            let log_probs = tensor(vec![chosen, 0.0], [2, 1]).cast(dtype).require_grad();
            let (reference, pairs) = (log_probs.zeros_like(), Pairs::halves(2, &device()));
            let options = DpoOptions { beta: 1.0, ..Default::default() };
            let made = dpo_loss(log_probs.clone(), reference, all_count([2, 1]), &pairs, &options);
            let gradient = values(log_probs.grad(&made.value.backward()).unwrap());
            assert_eq!((scalar(made.value), gradient), (value, vec![slope, -slope]), "{chosen} in {dtype:?}");
        }
    }
}

#[test]
fn means_do_not_depend_on_the_length() {
    let once = tensor(vec![-0.5, -1.5, -2.0, -1.0], [2, 2]);
    let twice = Tensor::cat(vec![once.clone(), once.clone()], 1);
    let pairs = Pairs::halves(2, &device());
    let simpo = |log_probs: Tensor<2>| {
        let mask = all_count(log_probs.dims());
        simpo_loss(log_probs, mask, &pairs, &SimpoOptions { margin: 1.0, ..Default::default() })
    };
    let made = simpo(once.clone());
    // β 2 times means of −1 and −1.5, with a margin of 1: no preference beyond it.
    assert_eq!(values(made.rewards), [-2.0, -3.0]);
    assert!((scalar(made.value.clone()) - 2f64.ln()).abs() < 1e-15);
    assert_eq!(scalar(simpo(twice).value), scalar(made.value));
}

#[test]
fn log_odds_keep_their_digits_from_certain_to_impossible() {
    let means = [-1e-12, -1e-6, -4e-3, -0.3, -0.693, -0.694, -3.0, -40.0, -1e4];
    for (dtype, unit) in [(DType::F64, f64::EPSILON), (DType::F32, f64::from(f32::EPSILON))] {
        let log_probs = tensor(means.to_vec(), [means.len(), 1]).cast(dtype).require_grad();
        let pairs = Pairs::halves(2, &device());
        let (mask, options) =
            (all_count([means.len(), 1]), OrpoOptions { nll_weight: 0.0, ..Default::default() });
        let made = orpo_loss(log_probs.clone(), mask, &pairs, &options);
        for (a, odds) in values(log_probs.clone()).into_iter().zip(values(made.log_odds)) {
            let want = -a.exp_m1().abs().ln() + a;
            assert!(
                (odds - want).abs() < 4.0 * unit * want.abs().max(1.0),
                "{a} in {dtype:?}: {odds}, {want}"
            );
        }
    }
}

#[test]
fn a_certain_answer_has_finite_log_odds_and_is_still_pushed_down() {
    // Exactly certain, and above by rounding.
    for certain in [0.0, 1e-17] {
        let log_probs = tensor(vec![-1.0, certain], [2, 1]).require_grad();
        let options = OrpoOptions { odds_weight: 1.0, nll_weight: 0.0 };
        let pairs = Pairs::halves(2, &device());
        let made = orpo_loss(log_probs.clone(), all_count([2, 1]), &pairs, &options);
        let gradient = values(log_probs.grad(&made.value.backward()).unwrap());
        assert!(gradient[1] > 0.0 && gradient.iter().all(|slope| slope.is_finite()), "{gradient:?}");
        assert!(scalar(made.value).is_finite());
    }
}

#[test]
fn desirable_answers_are_pulled_up_and_others_down() {
    let log_probs = tensor(vec![-1.0, -1.0, -1e5, -1e5], [4, 1]).require_grad();
    let reference = tensor(vec![-1.0, -1.0, 0.0, 0.0], [4, 1]);
    let desirable = Tensor::<1, Bool>::from_data([true, false, true, false], &device());
    let options =
        KtoOptions { beta: 0.5, desirable_weight: 2.0, undesirable_weight: 3.0, ..Default::default() };
    let made = kto_loss(log_probs.clone(), reference, all_count([4, 1]), desirable, &options);
    assert_eq!(values(made.per_sequence), [1.0, 1.5, 2.0, 0.0]);
    assert_eq!(values(made.rewards), [0.0, 0.0, -5e4, -5e4]);
    let gradient = values(log_probs.grad(&made.value.backward()).unwrap());
    // σ' is 1/4 at 0, of which the mean over four sequences takes a quarter.
    assert_eq!(gradient, [-0.5 * 2.0 / 16.0, 0.5 * 3.0 / 16.0, 0.0, 0.0]);
}

#[test]
fn a_reference_point_is_a_divergence() {
    let [low, high] = [-3.0, -1.0].map(|value| tensor(vec![value; 4], [2, 2]));
    let point =
        |p: &Tensor<2>, q: &Tensor<2>| scalar(kto_reference_point(p.clone(), q.clone(), all_count([2, 2])));
    assert_eq!((point(&high, &low), point(&low, &high)), (4.0, 0.0));
    // One in half precision, as the log-probabilities.
    let [high, low, point] = [high, low, tensor(vec![1.0], [1, 1])].map(|values| values.cast(DType::BF16));
    let options = KtoOptions { reference_point: Some(point.reshape([1])), ..Default::default() };
    let desirable = Tensor::<1, Bool>::full([2], true, &device());
    let made = kto_loss(high, low, all_count([2, 2]), desirable, &options);
    let expected = 1.0 / (1.0 + (0.1f64 * (4.0 - 1.0)).exp());
    assert!((scalar(made.value) - expected).abs() < 1e-6);
}

#[test]
fn a_ratio_of_one_is_the_policy_gradient() {
    let given = Given::new();
    let log_probs = given.log_probs();
    let (old, mask) = (log_probs.clone().detach(), Given::mask());
    let made = grpo_loss(log_probs.clone(), old, given.advantages(), mask, &GrpoOptions::default());
    let gradient = values(log_probs.grad(&made.value.backward()).unwrap());
    let tokens = MASK.as_flattened().iter().filter(|counts| **counts).count() as f64;
    for (slope, advantage) in gradient.iter().zip(values(given.advantages())) {
        assert!((slope + advantage / tokens).abs() < 1e-15, "{slope} against {advantage}");
    }
    assert!(made.kl_term.is_none() && values(made.clipped.int().float()) == [0.0; SEQUENCES * LENGTH]);
}

#[test]
fn every_side_of_the_clip_has_its_value_and_gradient() {
    let ln = f64::ln;
    // Log-ratio, advantage, value and gradient of the policy term, whether the clip holds.
    let cases = [
        (ln(2.0), 1.0, -1.25, 0.0, true),
        (ln(2.0), -1.0, 2.0, 2.0, false),
        (ln(0.25), 1.0, -0.25, -0.25, false),
        (ln(0.25), -1.0, 0.5, 0.0, true),
        (1e4, 1.0, -1.25, 0.0, true),
        (-1e4, -1.0, 0.5, 0.0, true),
        (-1e4, 1.0, 0.0, 0.0, false),
        (1e4, 0.0, 0.0, 0.0, false),
        (0.0, -3.0, 3.0, 3.0, false),
    ];
    let column = |of: fn(&(f64, f64, f64, f64, bool)) -> f64| tensor(cases.iter().map(of).collect(), [1, 9]);
    for dtype in [DType::F64, DType::F32] {
        let log_probs = column(|case| case.0).cast(dtype).require_grad();
        let options = GrpoOptions {
            clip_low: 0.5,
            clip_high: 0.25,
            aggregation: Aggregation::Divisor(1.0),
            ..Default::default()
        };
        let advantages = column(|case| case.1).cast(dtype);
        let (old, mask) = (log_probs.zeros_like(), all_count([1, 9]));
        let made = grpo_loss(log_probs.clone(), old, advantages, mask, &options);
        let gradient = values(log_probs.grad(&made.value.backward()).unwrap());
        let flags: Vec<bool> = made.clipped.into_data().iter::<bool>().collect();
        for (i, value) in values(made.policy_term).into_iter().enumerate() {
            let (_, _, want, slope, clipped) = cases[i];
            let off = (value - want).abs().max((gradient[i] - slope).abs());
            assert!(off < 1e-6 && flags[i] == clipped, "{i}: {value}, {}, {}", gradient[i], flags[i]);
        }
    }
}

#[test]
fn without_a_clip_every_ratio_counts() {
    let log_probs = tensor(vec![3.0, -3.0], [1, 2]).require_grad();
    let options = GrpoOptions { clip_low: 1.0, clip_high: f64::INFINITY, ..Default::default() };
    let advantages = tensor(vec![1.0, -1.0], [1, 2]);
    let (old, mask) = (log_probs.zeros_like(), all_count([1, 2]));
    let made = grpo_loss(log_probs, old, advantages, mask, &options);
    for (value, want) in values(made.policy_term).into_iter().zip([-3f64.exp(), (-3f64).exp()]) {
        assert!((value - want).abs() < 1e-14, "{value} against {want}");
    }
}

#[test]
fn parts_under_one_divisor_are_the_whole() {
    let given = Given::new();
    let rows = |from: usize, to: usize| {
        let part = |values: Tensor<2>| values.slice([from..to, 0..LENGTH]);
        let mask = Given::mask().slice([from..to, 0..LENGTH]);
        let options = GrpoOptions { aggregation: Aggregation::Divisor(11.0), ..Default::default() };
        let (log_probs, old) = (part(given.log_probs()), part(given.other_log_probs(4)));
        scalar(grpo_loss(log_probs, old, part(given.advantages()), mask, &options).value)
    };
    assert!((rows(0, 1) + rows(1, SEQUENCES) - rows(0, SEQUENCES)).abs() < 1e-15);
}

#[test]
fn where_nothing_counts_the_loss_and_its_gradient_are_zero() {
    let mask = || all_count([2, 3]).bool_not();
    let nan = || tensor(vec![f64::NAN; 6], [2, 3]);
    for aggregation in [Aggregation::TokenMean, Aggregation::SequenceMean, Aggregation::Divisor(3.0)] {
        let options = GrpoOptions { aggregation, kl_penalty: Some((0.1, nan())), ..Default::default() };
        let log_probs = nan().require_grad();
        let made = grpo_loss(log_probs.clone(), nan(), nan(), mask(), &options);
        let gradient = values(log_probs.grad(&made.value.backward()).unwrap());
        assert_eq!((scalar(made.value), gradient), (0.0, vec![0.0; 6]), "{aggregation:?}");
    }
    // Of no sequences, and of sequences without columns.
    for shape in [[0, 3], [2, 0]] {
        let none = || tensor(vec![], shape);
        for aggregation in [Aggregation::TokenMean, Aggregation::SequenceMean, Aggregation::Divisor(3.0)] {
            let options = GrpoOptions { aggregation, kl_penalty: Some((0.1, none())), ..Default::default() };
            let made = grpo_loss(none().require_grad(), none(), none(), all_count(shape), &options);
            made.value.backward();
            assert_eq!((scalar(made.value), made.per_token.dims()), (0.0, shape), "{aggregation:?}");
        }
    }
    // Of no pairs, with sequences and without.
    let pairs = Pairs::halves(0, &device());
    for sequences in [0, 2] {
        let given = || tensor(vec![-1.0; 3 * sequences], [sequences, 3]);
        let (mask, log_probs) = (|| all_count([sequences, 3]), given().require_grad());
        let check = |loss: Tensor<1>| {
            let gradient = log_probs.grad(&loss.backward()).map(values);
            assert!(gradient.is_none_or(|gradient| gradient.iter().all(|g| *g == 0.0)));
            assert_eq!(scalar(loss), 0.0);
        };
        check(dpo_loss(log_probs.clone(), given(), mask(), &pairs, &DpoOptions::default()).value);
        check(simpo_loss(log_probs.clone(), mask(), &pairs, &SimpoOptions::default()).value);
        check(orpo_loss(log_probs.clone(), mask(), &pairs, &OrpoOptions::default()).value);
        if sequences == 0 {
            let point = kto_reference_point(log_probs.clone(), given(), mask());
            let options = KtoOptions { reference_point: Some(point), ..Default::default() };
            let desirable = Tensor::<1, Bool>::full([0], true, &device());
            check(kto_loss(log_probs.clone(), given(), mask(), desirable, &options).value);
        }
    }
    assert_eq!(values(sequence_sum(nan(), mask())), [0.0; 2]);
    assert_eq!(values(sequence_mean(nan(), mask())), [0.0; 2]);
}

#[test]
fn one_advantage_a_sequence_is_that_of_all_its_tokens() {
    let given = Given::new();
    let column = [0.5, -1.0, 2.0, -0.25];
    let loss = |advantages: Tensor<2>| {
        let (log_probs, old) = (given.log_probs(), given.other_log_probs(4));
        scalar(grpo_loss(log_probs, old, advantages, Given::mask(), &GrpoOptions::default()).value)
    };
    let spread = column.iter().flat_map(|advantage| [*advantage; LENGTH]).collect();
    let column = tensor(column.to_vec(), [SEQUENCES, 1]);
    assert_eq!(loss(column), loss(tensor(spread, [SEQUENCES, LENGTH])));
}

#[test]
fn advantages_of_a_group_have_mean_0_and_deviation_1() {
    let rewards = tensor(vec![0.0, 1.0, 1.0, 0.5, 1e3, 3e3, -7e3, 0.0, 0.7, 0.7, 0.7, 0.7], [3, 4]);
    let advantages = values(group_advantages(rewards.clone(), GroupScale::Deviation));
    for group in advantages.chunks(4).take(2) {
        let squares: f64 = group.iter().map(|a| a * a).sum();
        assert!(group.iter().sum::<f64>().abs() < 1e-12);
        assert!((squares / 3.0 - 1.0).abs() < 1e-3, "{group:?}");
    }
    assert!(advantages[8..].iter().all(|advantage| advantage.abs() < 1e-9), "{advantages:?}");
    assert_eq!(values(group_advantages(rewards, GroupScale::One))[..4], [-0.625, 0.375, 0.375, -0.125]);
}

#[test]
fn tensors_of_the_plain_device_are_constants() {
    let given = Given::new();
    let plain = |values: Tensor<2>| values.inner();
    let log_probs = given.log_probs();
    let options =
        GrpoOptions { kl_penalty: Some((0.3, plain(given.other_log_probs(5)))), ..Default::default() };
    let (old, advantages) = (plain(given.other_log_probs(4)), plain(given.advantages()));
    let made = grpo_loss(log_probs.clone(), old, advantages, Given::mask().inner(), &options);
    let gradient = values(log_probs.grad(&made.value.backward()).unwrap());
    assert!(gradient.iter().any(|slope| *slope != 0.0));
}

/// The message of a panic.
fn message(of: impl FnOnce() + std::panic::UnwindSafe) -> String {
    *std::panic::catch_unwind(of).unwrap_err().downcast::<String>().expect("a message")
}

#[test]
fn misuse_is_refused_with_both_sides() {
    fn zeros(rows: usize, columns: usize) -> Tensor<2> {
        tensor(vec![0.0; rows * columns], [rows, columns])
    }
    fn dpo(reference: Tensor<2>, options: DpoOptions) {
        dpo_loss(zeros(2, 3), reference, all_count([2, 3]), &Pairs::halves(2, &device()), &options);
    }
    fn simpo(options: SimpoOptions) {
        simpo_loss(zeros(2, 3), all_count([2, 3]), &Pairs::halves(2, &device()), &options);
    }
    fn orpo(options: OrpoOptions) {
        orpo_loss(zeros(2, 3), all_count([2, 3]), &Pairs::halves(2, &device()), &options);
    }
    fn kto(desirable: Tensor<1, Bool>) {
        kto_loss(zeros(2, 3), zeros(2, 3), all_count([2, 3]), desirable, &KtoOptions::default());
    }
    fn grpo(advantages: Tensor<2>, options: GrpoOptions) {
        grpo_loss(zeros(2, 3), zeros(2, 3), advantages, all_count([2, 3]), &options);
    }
    type Call = fn();
    let calls: [(Call, &str); 15] = [
        (
            || drop(sequence_sum(zeros(2, 3), all_count([2, 4]))),
            "sequence_sum: mask has shape [2, 4], expected [2, 3], the shape of the log-probabilities",
        ),
        (
            || {
                let chosen = Tensor::from_ints([0, 1], &device());
                let pairs = Pairs { chosen, rejected: Tensor::from_ints([1], &device()) };
                simpo_loss(zeros(2, 3), all_count([2, 3]), &pairs, &SimpoOptions::default());
            },
            "simpo_loss: rejected has shape [1], expected [2], one for each chosen sequence",
        ),
        (|| drop(Pairs::halves(3, &device())), "Pairs::halves: 3 sequences, expected two for each pair"),
        (
            || dpo(zeros(3, 2), DpoOptions::default()),
            "dpo_loss: ref_log_probs has shape [3, 2], expected [2, 3], the shape of the log-probabilities",
        ),
        (
            || dpo(zeros(2, 3), DpoOptions { label_smoothing: 0.6, ..Default::default() }),
            "dpo_loss: label_smoothing is 0.6, expected a number in [0, 0.5]",
        ),
        (
            || {
                let half = zeros(2, 3).cast(DType::F32);
                let options = DpoOptions { beta: 1e60, ..Default::default() };
                dpo_loss(half.clone(), half, all_count([2, 3]), &Pairs::halves(2, &device()), &options);
            },
            "dpo_loss: beta is 1e60, expected 0 to 3.4028234663852886e38, which the type of sums holds",
        ),
        (
            || {
                let half = || zeros(2, 3).cast(DType::F32);
                let options = GrpoOptions { aggregation: Aggregation::Divisor(1e-60), ..Default::default() };
                grpo_loss(half(), half(), half(), all_count([2, 3]), &options);
            },
            "grpo_loss: divisor is 1e-60, expected 1.1754943508222875e-38 to 8.507059173023462e37, which the type of sums holds",
        ),
        (
            || simpo(SimpoOptions { beta: f64::NAN, ..Default::default() }),
            "simpo_loss: beta is NaN, expected a finite number of at least 0",
        ),
        (
            || orpo(OrpoOptions { odds_weight: -1.0, ..Default::default() }),
            "orpo_loss: odds_weight is -1, expected a finite number of at least 0",
        ),
        (
            || kto(Tensor::full([3], true, &device())),
            "kto_loss: desirable has shape [3], expected [2], one for each sequence",
        ),
        (
            || grpo(zeros(2, 2), GrpoOptions::default()),
            "grpo_loss: advantages has shape [2, 2], expected [2, 3], of the log-probabilities, or with one column",
        ),
        (
            || grpo(zeros(2, 1), GrpoOptions { clip_low: 1.5, ..Default::default() }),
            "grpo_loss: clip_low is 1.5, expected a number in [0, 1]",
        ),
        (
            || grpo(zeros(2, 1), GrpoOptions { kl_penalty: Some((0.1, zeros(2, 1))), ..Default::default() }),
            "grpo_loss: ref_log_probs has shape [2, 1], expected [2, 3], the shape of the log-probabilities",
        ),
        (
            || {
                grpo(
                    zeros(2, 1),
                    GrpoOptions { aggregation: Aggregation::Divisor(0.0), ..Default::default() },
                )
            },
            "grpo_loss: divisor is 0, expected a finite number above 0",
        ),
        (
            || drop(group_advantages(zeros(3, 1), GroupScale::One)),
            "group_advantages: the number of answers to a prompt is 1, expected at least 2",
        ),
    ];
    for (call, expected) in calls {
        assert_eq!(message(call), expected);
    }
}

#[test]
fn equal_rewards_have_no_advantages_in_any_type() {
    for (answers, reward) in [(3, 1000.1), (6, 10.1), (7, 5000.3), (7, 0.7)] {
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            let rewards = tensor(vec![reward; answers], [1, answers]).cast(dtype);
            let advantages = values(group_advantages(rewards, GroupScale::Deviation));
            assert_eq!(advantages, vec![0.0; answers], "{answers} rewards of {reward} in {dtype:?}");
        }
    }
    let half = group_advantages(tensor(vec![0.0, 600.0], [1, 2]).cast(DType::F16), GroupScale::Deviation);
    assert!(values(half).iter().all(|advantage| (advantage.abs() - 0.5f64.sqrt()).abs() < 1e-5));
}

#[test]
fn the_penalty_of_a_policy_keeps_its_digits_and_may_weigh_nothing() {
    let (one, mask) = (|x: f64| tensor(vec![x], [1, 1]).cast(DType::F32), all_count([1, 1]));
    let loss = |log_ratio: f64, beta| {
        let log_probs = one(-1.0 - log_ratio).require_grad();
        let options = GrpoOptions { kl_penalty: Some((beta, one(-1.0))), ..Default::default() };
        let made = grpo_loss(log_probs.clone(), log_probs.clone(), one(0.0), mask.clone(), &options);
        let gradient = values(log_probs.grad(&made.value.backward()).unwrap())[0];
        // What f32 makes of the ratio.
        let x = -1.0 - values(log_probs)[0];
        (x, values(made.kl_term.unwrap())[0], scalar(made.value), gradient)
    };
    for log_ratio in [3e-4, -3e-4, 1e-3, 0.0625, 0.25, -2.0, 5.0] {
        let (x, term, value, gradient) = loss(log_ratio, 1.0);
        let want = x.exp_m1() - x;
        assert!((term - want).abs() < 2e-6 * want, "{x}: {term} against {want}");
        assert!(
            (value - want).abs() < 2e-6 * want && (gradient + x.exp_m1()).abs() < 2e-6 * x.exp_m1().abs()
        );
    }
    let (_, term, value, gradient) = loss(99.0, 0.0);
    assert_eq!((term, value, gradient), (f64::INFINITY, 0.0, 0.0));
}

#[test]
fn tokens_of_half_precision_are_counted_in_full() {
    let (rows, length) = (70, 1000);
    let log_probs = Tensor::<2>::full([rows, length], -1.0, (&device(), DType::F16));
    let advantages = Tensor::<2>::full([rows, 1], 1.0, (&device(), DType::F16));
    let mask = all_count([rows, length]);
    let loss =
        grpo_loss(log_probs.clone(), log_probs.clone(), advantages, mask.clone(), &GrpoOptions::default());
    assert_eq!(scalar(loss.value), -1.0);
    assert_eq!(values(sequence_sum(log_probs, mask)), vec![-1000.0; rows]);
}
