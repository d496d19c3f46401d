//! The penalty on the variation of the priors, against its formula and finite differences.

use burn::tensor::{DType, Device, Int, Tensor};
use highrank::context::Context;
use highrank::{HeadConfig, HeadError, LossOptions, OutputHead, Reduction};

use crate::priors::priors;
use crate::support::*;

const VOCAB: usize = 9;
const TOKENS: usize = 7;
const LAMBDA: f64 = 0.75;

/// Every kind of head with priors.
fn mixtures() -> [HeadConfig; 5] {
    let [_, adaptive] = adaptive_heads(VOCAB);
    [
        moc(VOCAB),
        mos(VOCAB),
        mos_plif(VOCAB),
        HeadConfig::direct_output_connection(&[(4, 1), (HIDDEN, 3)], EMBEDDING, VOCAB),
        adaptive,
    ]
}

fn words(device: &Device) -> Tensor<1, Int> {
    targets(TOKENS, VOCAB, device)
}

/// The squared coefficient of variation from the priors themselves.
fn expected(head: &OutputHead, hidden: Tensor<2>, weights: &[f64]) -> f64 {
    let priors = priors(head, hidden);
    let [_, components] = priors.dims();
    let rows = values(priors);
    let mut sums = vec![0.0; components];
    for (row, weight) in rows.chunks(components).zip(weights) {
        sums.iter_mut().zip(row).for_each(|(sum, prior)| *sum += weight * prior);
    }
    let mean = sums.iter().sum::<f64>() / components as f64;
    let variance = sums.iter().map(|sum| (sum - mean).powi(2)).sum::<f64>() / components as f64;
    variance / mean.powi(2)
}

fn weights(on: On<'_>) -> Tensor<1> {
    tensor([TOKENS], 7, on).add_scalar(1.5)
}

#[test]
fn the_penalty_is_that_of_the_tokens_that_count() {
    for device in cpus() {
        let on = (&device, DType::F64);
        for config in mixtures() {
            let head = head(&config, on);
            let hidden = || tensor::<2>([TOKENS, config.d_hidden], 1, on);
            let ignored = words(&device).into_data().iter::<i64>().nth(2).unwrap();
            let given = values(weights(on));
            let counted = |n: usize| words(&device).into_data().iter::<i64>().nth(n) != Some(ignored);
            let plain: Vec<f64> = (0..TOKENS).map(|n| if counted(n) { given[n] } else { 0.0 }).collect();
            let cases = [
                (LossOptions::new(), vec![1.0; TOKENS]),
                (LossOptions::new().with_token_weights(weights(on)), given.clone()),
                (LossOptions::new().with_token_weights(weights(on)).with_ignore_index(ignored), plain),
            ];
            for (options, weights) in cases {
                let squared = expected(&head, hidden(), &weights);
                for (reduction, times) in
                    [(Reduction::Mean, 1.0), (Reduction::Sum, weights.iter().sum::<f64>())]
                {
                    let options = options.clone().with_reduction(reduction);
                    let without = head.loss_with(hidden(), words(&device), &options);
                    assert!(without.prior_cv.is_none());
                    let with = head.loss_with(hidden(), words(&device), &options.with_prior_cv(LAMBDA));
                    let want = values(without.value)[0] + LAMBDA * squared * times;
                    let what = format!("{config:?}, {reduction:?}");
                    assert_close(&values(with.value), &[want], 1e-13, &what);
                    assert_close(&values(with.prior_cv.unwrap()), &[squared], 1e-13, &what);
                }
            }
        }
    }
}

#[test]
fn equal_class_weights_change_nothing_of_the_penalty() {
    let on = (&cpu(), DType::F64);
    let head = head(&mos(VOCAB), on);
    let hidden = || tensor::<2>([TOKENS, HIDDEN], 1, on);
    let penalty = |options: LossOptions| {
        values(head.loss_with(hidden(), words(on.0), &options.with_prior_cv(1.0)).prior_cv.unwrap())
    };
    let options = || LossOptions::new().with_z_loss(1e-3).with_token_weights(weights(on));
    let classes = Tensor::<1>::full([VOCAB], 0.25, on);
    let weighted = penalty(options().with_class_weights(classes));
    assert_close(&weighted, &penalty(options()), 1e-14, "class weights of 1/4");
}

#[test]
fn the_penalty_runs_from_0_to_one_less_than_the_components() {
    let on = (&cpu(), DType::F64);
    let squared = |scale: f64| {
        let mut head = head(&mos(VOCAB), on);
        let Context::MixtureOfSoftmaxes(mixture) = &mut head.context else { unreachable!() };
        // Priors that are the same for every token: logits of 0, scale and -scale.
        let column = |by: f64| Tensor::<2>::ones([HIDDEN, 1], on) * (by * scale);
        let weight = Tensor::cat(vec![column(0.0), column(1.0), column(-1.0)], 1);
        mixture.prior.weight = burn::module::Param::from_tensor(weight);
        let hidden = Tensor::<2>::ones([TOKENS, HIDDEN], on);
        let options = LossOptions::new().with_prior_cv(1.0);
        values(head.loss_with(hidden, words(on.0), &options).prior_cv.unwrap())[0]
    };
    assert_close(&[squared(0.0), squared(100.0)], &[0.0, 2.0], 1e-14, "the ends");
    assert!(squared(0.1) > 0.0 && squared(0.1) < 2.0);
}

#[test]
fn gradients_match_central_differences() {
    let ignored = words(&cpu()).into_data().iter::<i64>().nth(4).unwrap();
    for config in mixtures() {
        for reduction in [Reduction::Mean, Reduction::Sum] {
            let what = format!("{config:?}, {reduction:?}");
            check_derivative(&config, TOKENS, &what, |head, hidden, weights| {
                // A large weight: the penalty must show.
                let options = LossOptions::new().with_prior_cv(5.0).with_reduction(reduction);
                let options = options.with_token_weights(weights).with_ignore_index(ignored);
                let words = words(&hidden.device());
                head.loss_with(hidden, words, &options).value
            });
        }
    }
}

#[test]
fn tokens_that_do_not_count_may_hold_anything() {
    let on = (&ad(), DType::F64);
    for config in mixtures() {
        let head = head(&config, on);
        let ids = [1i64, -100, 4, 8, -100, 0, 2];
        let words = || Tensor::<1, Int>::from_data(ids, on.0);
        let kept = || Tensor::<1, Int>::from_data([0i64, 2, 3, 5, 6], on.0);
        let clean = tensor::<2>([TOKENS, config.d_hidden], 1, on);
        let poisoned = clean.clone().slice_fill(1..2, f64::NAN).slice_fill(4..5, f64::NAN);
        let options = LossOptions::new().with_prior_cv(LAMBDA).with_ignore_index(-100);
        let state = poisoned.require_grad();
        let made = head.loss_with(state.clone(), words(), &options);
        let few = head.loss_with(clean.select(0, kept()), words().select(0, kept()), &options);
        assert_close(&values(made.value.clone()), &values(few.value), 1e-13, "loss");
        let gradient = all_gradients(&head, &state, made.value);
        assert!(gradient.iter().all(|x| x.is_finite()), "{config:?}");
    }
}

#[test]
fn nothing_that_counts_costs_nothing() {
    let on = (&cpu(), DType::F64);
    let head = head(&mixtures()[1], on);
    let hidden = tensor::<2>([TOKENS, HIDDEN], 1, on);
    let none = Tensor::<1, Int>::full([TOKENS], -100, on.0);
    let options = LossOptions::new().with_prior_cv(LAMBDA).with_ignore_index(-100);
    let sum = options.clone().with_reduction(Reduction::Sum);
    assert_eq!(values(head.loss_with(hidden.clone(), none.clone(), &sum).value), [0.0]);
    assert!(values(head.loss_with(hidden, none, &options).value)[0].is_nan());
}

#[test]
fn distributions_as_targets_have_the_same_penalty() {
    let on = (&cpu(), DType::F64);
    let head = head(&mixtures()[1], on);
    let hidden = || tensor::<2>([TOKENS, HIDDEN], 1, on);
    let even = || Tensor::<2>::full([TOKENS, VOCAB], 1.0 / VOCAB as f64, on);
    let made =
        |options: LossOptions| head.loss_with(hidden(), words(on.0), &options.with_distributions(even()));
    let (without, with) = (made(LossOptions::new()), made(LossOptions::new().with_prior_cv(LAMBDA)));
    let want = values(without.value)[0] + LAMBDA * expected(&head, hidden(), &[1.0; TOKENS]);
    assert_close(&values(with.value), &[want], 1e-13, "distributions");
}

#[test]
fn the_value_of_a_single_token_gains_nothing() {
    let on = (&cpu(), DType::F64);
    for config in mixtures() {
        let head = head(&config, on);
        let hidden = || tensor::<2>([TOKENS, config.d_hidden], 1, on);
        let made = |lambda: f64, options: LossOptions| {
            head.loss_with(hidden(), words(on.0), &options.with_prior_cv(lambda))
        };
        for reduction in [Reduction::Mean, Reduction::Sum] {
            let options = LossOptions::new().with_reduction(reduction);
            let alone = made(LAMBDA, options.clone());
            let beside = made(LAMBDA, options.clone().with_per_token(true));
            let without = made(0.0, options.with_per_token(true));
            let what = format!("{config:?}, {reduction:?}");
            assert_close(&values(beside.value), &values(alone.value), 1e-13, &what);
            assert_eq!(values(beside.per_token.unwrap()), values(without.per_token.unwrap()), "{what}");
        }
    }
}

#[test]
fn a_penalty_that_makes_no_sense_is_an_error() {
    let on = (&cpu(), DType::F64);
    let head_of = |config: &HeadConfig| head(config, on);
    let error = |config: &HeadConfig, options: &LossOptions| {
        let hidden = || tensor::<2>([TOKENS, config.d_hidden], 1, on);
        let head = head_of(config);
        let error = head.try_loss_with(hidden(), words(on.0), options).expect_err("wrong options");
        let panic = panic_of(|| drop(head.loss_with(hidden(), words(on.0), options)));
        assert_eq!(panic, format!("loss_with: {error}"));
        error
    };
    let (softmax, mos) = (softmax(VOCAB), &mixtures()[1]);
    let some = LossOptions::new().with_prior_cv(LAMBDA);
    // Priors of words are not priors of components.
    for config in [&softmax, &mixtape(VOCAB, 3)] {
        let unused = error(config, &some);
        assert!(matches!(unused, HeadError::Unused { .. }));
        assert_eq!(
            unused.to_string(),
            "prior_cv is set, but this head has no priors: use a mixture, or leave it out"
        );
    }
    let message = |options: &LossOptions| error(mos, options).to_string();
    for wrong in [-0.5, f64::NAN, f64::INFINITY] {
        let want = format!("prior_cv is {wrong}, expected a finite number of at least 0");
        assert_eq!(message(&LossOptions::new().with_prior_cv(wrong)), want);
    }
    // Of no weight, it is no option at all.
    let none = LossOptions::new().with_prior_cv(0.0);
    head_of(&softmax).loss_with(tensor::<2>([TOKENS, EMBEDDING], 1, on), words(on.0), &none);
}
