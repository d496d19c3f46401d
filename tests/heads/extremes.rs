//! Numbers at the ends of their types, words that are all masked, parameters that do not fit: what is right or a typed error,
//! and never a number without meaning.

use std::f64::consts::LN_2;

use burn::module::{Initializer, Param};
use burn::tensor::{DType, Device, IndexingUpdateOp, Int, Tensor, TensorData};
use highrank::context::{Context, MixtureConfig};
use highrank::{
    ContextConfig, Divergence, HeadConfig, HeadError, LossOptions, OutputHead, Precision, Reduction, Sampling,
};
use rand::SeedableRng;
use rand_pcg::Pcg64;

use crate::support::*;

const VOCAB: usize = 11;
const TOKENS: usize = 4;

fn words(device: &Device) -> Tensor<1, Int> {
    targets(TOKENS, VOCAB, device)
}

/// A head in f32 that has such logits for the hidden state 1: a softmax, or a mixture of two equal components.
fn of_logits(logits: &[f64], masked: Option<usize>, is_mixture: bool, device: &Device) -> OutputHead {
    let mut config = HeadConfig::softmax(1, logits.len());
    // Each component's context.
    let mut context = 1.0;
    if is_mixture {
        let initializer = Initializer::Constant { value: 0.25 };
        let equal = MixtureConfig { initializer, ..MixtureConfig::new(2) };
        config = config.with_context(ContextConfig::MixtureOfSoftmaxes(equal));
        context = 0.5f64.tanh();
    }
    let weight: Vec<f64> = logits.iter().map(|logit| logit / context).collect();
    let weight = TensorData::new(weight, [logits.len(), 1]).convert_dtype(DType::F32);
    let mut bias = vec![0f32; logits.len()];
    if let Some(word) = masked {
        bias[word] = f32::NEG_INFINITY;
    }
    let mut head = config.init(device);
    head.decoder.weight = Some(Param::from_data(weight, device));
    head.decoder.bias = Some(Param::from_data(bias.as_slice(), device));
    head
}

/// Checks the nll of some words under logits, by every way to it, and that gradients are numbers.
fn check(logits: &[f64], masked: Option<usize>, temperature: f64, want: &[(usize, f64)]) {
    let (words, want): (Vec<i64>, Vec<f64>) = want.iter().map(|(word, nll)| (*word as i64, *nll)).unzip();
    let hidden = |device: &Device| Tensor::<2>::ones([words.len(), 1], device);
    let words = |device: &Device| Tensor::<1, Int>::from_data(words.as_slice(), device);
    for (plain, is_mixture) in cpus().flat_map(|device| [false, true].map(|is| (device.clone(), is))) {
        let tracking = plain.clone().autodiff();
        let what = |name: &str| {
            format!("{name}, mixture {is_mixture}, masked {masked:?}, {temperature:e}, {plain:?}")
        };
        // Each to its own size: they are of very different ones.
        let check = |got: Tensor<1>, want: &[f64], name: &str| {
            let got = values(got);
            assert_eq!(got.len(), want.len());
            let is_close = |(got, want): (&f64, &f64)| (got - want).abs() <= 1e-6 * want.abs().max(1.0);
            assert!(got.iter().zip(want).all(is_close), "{}: {got:?} against {want:?}", what(name));
        };
        for device in [&plain, &tracking] {
            let head = of_logits(logits, masked, is_mixture, device).at_temperature(temperature);
            check(head.nll(hidden(device), words(device)), &want, "nll");
            check(composed_nll(&head, hidden(device), words(device)), &want, "log-probabilities");
            let rows = values(head.forward(hidden(device)));
            let is_masked = |i: usize| masked == Some(i % logits.len());
            let is_right =
                |(i, x): (usize, &f64)| if is_masked(i) { *x == f64::NEG_INFINITY } else { x.is_finite() };
            assert!(rows.iter().enumerate().all(is_right), "{}", what("rows"));
        }
        let head = of_logits(logits, masked, is_mixture, &tracking).at_temperature(temperature);
        for with_statistics in [false, true] {
            let options = LossOptions::new().with_statistics(with_statistics);
            let state = hidden(&tracking).require_grad();
            let made = head.loss_with(state.clone(), words(&tracking), &options);
            let mean = want.iter().sum::<f64>() / want.len() as f64;
            check(made.value.clone(), &[mean], "mean");
            let gradients = all_gradients(&head, &state, made.value);
            assert!(gradients.iter().all(|x| x.is_finite()), "{}: {gradients:?}", what("gradients"));
            let Some(statistics) = made.statistics else { continue };
            check(statistics.nll, &want, "nll of statistics");
            // The words of the largest logit.
            let best = logits.iter().copied().fold(f64::MIN, f64::max);
            let best: Vec<usize> = (0..logits.len()).filter(|word| logits[*word] == best).collect();
            let entropy = vec![(best.len() as f64).ln(); want.len()];
            check(statistics.max_log_prob.neg(), &entropy, "most probable");
            check(statistics.entropy, &entropy, "entropy");
            assert_eq!(
                values(statistics.argmax.float()),
                vec![best[0] as f64; want.len()],
                "{}",
                what("argmax")
            );
        }
    }
}

#[test]
fn ties_stay_ties_at_temperatures_near_zero() {
    check(&[1.0, 1.0, 0.5, 0.0], None, 1e-26, &[(0, LN_2), (1, LN_2), (2, 5e25)]);
}

#[test]
fn logits_may_be_far_apart_and_far_below_zero() {
    // Of more words than a kernel visits at a time, with the largest in the first run or in the last.
    const WORDS: usize = 600;
    for best in [0, WORDS - 1] {
        let mut logits = [-1.1e25; WORDS];
        logits[best] = 0.0;
        check(&logits, None, 1.0, &[(best, 0.0), (5, 1.1e25), (300, 1.1e25)]);
    }
    // None of them is masked: that takes a bias of −∞.
    let mut logits = [-3e30; WORDS];
    (logits[0], logits[WORDS - 1]) = (-2e30, -2e30);
    for masked in [None, Some(7)] {
        check(&logits, masked, 1.0, &[(0, LN_2), (WORDS - 1, LN_2), (5, 1e30)]);
    }
}

/// Checks that a head draws no word, in whatever way.
fn none_is_drawn(head: &OutputHead, hidden: &Tensor<2>, what: &str) {
    for sampling in [
        Sampling::default(),
        Sampling::new().with_temperature(0.0),
        Sampling::new().with_top_k(Some(2)),
        Sampling::new().with_top_p(Some(0.9)),
    ] {
        let mut rng = Pcg64::seed_from_u64(1);
        let drawn: Result<Tensor<1, Int>, _> = head.sample(hidden.clone(), &sampling, &mut rng);
        assert_eq!(drawn.expect_err("no word"), HeadError::AllMasked { token: 0 }, "{what}");
    }
}

#[test]
fn where_all_words_are_masked_none_has_a_probability() {
    for (plain, config) in
        cpus().flat_map(|device| all_heads(VOCAB).into_iter().map(move |c| (device.clone(), c)))
    {
        let tracking = plain.clone().autodiff();
        let what = format!("{config:?}, {plain:?}");
        let all: Vec<usize> = (0..VOCAB).collect();
        let masked = |on: On<'_>| mask_by_bias(head(&config, on), &all);
        for device in [&plain, &tracking] {
            let on = (device, DType::F32);
            let (head, hidden) = (masked(on), tensor::<2>([TOKENS, config.d_hidden], 1, on));
            let rows = values(head.forward(hidden.clone()));
            assert!(rows.iter().all(|x| *x == f64::NEG_INFINITY), "{what}: {rows:?}");
            none_is_drawn(&head, &hidden, &what);
        }
        let on = (&tracking, DType::F32);
        let head = masked(on);
        let plain = LossOptions::new();
        let options = [
            plain.clone(),
            plain.clone().with_per_token(true),
            plain.clone().with_statistics(true),
            plain.with_label_smoothing(0.1),
        ];
        for options in options {
            let hidden = tensor([TOKENS, config.d_hidden], 1, on).require_grad();
            let made = head.loss_with(hidden.clone(), words(&tracking), &options);
            assert_eq!(values(made.value.clone()), [f64::INFINITY], "{what}");
            let gradients = all_gradients(&head, &hidden, made.value);
            assert_close(&gradients, &vec![0.0; gradients.len()], 1e-6, &format!("gradients, {what}"));
            if let Some(losses) = made.per_token {
                assert_eq!(values(losses), [f64::INFINITY; TOKENS], "{what}");
            }
            if let Some(statistics) = made.statistics {
                assert_eq!(values(statistics.nll), [f64::INFINITY; TOKENS], "{what}");
                assert_eq!(values(statistics.entropy), [0.0; TOKENS], "{what}");
                assert_eq!(values(statistics.argmax.float()), [0.0; TOKENS], "{what}");
                assert_eq!(values(statistics.max_log_prob), [f64::NEG_INFINITY; TOKENS], "{what}");
            }
        }
    }
}

#[test]
fn no_word_is_drawn_where_all_words_with_clusters_are_masked() {
    for config in adaptive_heads(VOCAB) {
        let on = (&cpu(), DType::F32);
        let all: Vec<usize> = (0..config.decoder_rows()).collect();
        let hidden = tensor::<2>([TOKENS, config.d_hidden], 1, on);
        none_is_drawn(&mask_by_bias(head(&config, on), &all), &hidden, &format!("{config:?}"));
    }
}

#[test]
fn a_student_without_a_word_is_infinitely_far_from_its_teacher() {
    for device in cpus() {
        let on = (&device.clone().autodiff(), DType::F32);
        let hidden = || tensor::<2>([TOKENS, EMBEDDING], 1, on);
        let teacher = head(&softmax(VOCAB), on);
        let student = mask_by_bias(teacher.clone(), &(0..VOCAB).collect::<Vec<_>>());
        for divergence in [
            Divergence::ForwardKl,
            Divergence::ReverseKl,
            Divergence::JensenShannon { beta: 0.5 },
            Divergence::TotalVariation,
        ] {
            let options = LossOptions::new().with_distillation(teacher.distribution(hidden()), divergence);
            let loss = student.loss_with(hidden(), words(on.0), &options).value;
            assert_eq!(values(loss), [f64::INFINITY], "{divergence:?}, {device:?}");
        }
    }
}

#[test]
fn numbers_that_the_type_of_sums_cannot_hold_are_errors() {
    let device = cpu();
    let [narrow, wide] = [DType::F32, DType::F64].map(|dtype| head(&mos(VOCAB), (&device, dtype)));
    let state = || tensor::<2>([TOKENS, HIDDEN], 1, (&device, DType::F32));
    let plain = LossOptions::new();
    for temperature in [2.9e-39, 1e-60, 1e39] {
        let head = narrow.at_temperature(temperature);
        let error = head.try_loss_with(state(), words(&device), &plain).expect_err("a temperature");
        assert!(
            matches!(error, HeadError::Range { name: "temperature", value, .. } if value == temperature),
            "{error}"
        );
        let mut rng = Pcg64::seed_from_u64(1);
        let drawn: Result<Tensor<1, Int>, _> = head.sample(state(), &Sampling::default(), &mut rng);
        assert_eq!(drawn.expect_err("a temperature"), error);
        let methods: [(&str, &dyn Fn()); 5] = [
            ("loss", &|| drop(head.loss(state(), words(&device)))),
            ("nll", &|| drop(head.nll(state(), words(&device)))),
            ("forward", &|| drop(head.forward(state()))),
            ("top_k", &|| drop(head.top_k(state(), 2))),
            ("log_prob_blocks", &|| drop(head.log_prob_blocks(state()))),
        ];
        for (name, method) in methods {
            assert_eq!(panic_of(method), format!("{name}: {error}"));
        }
    }
    let error =
        narrow.try_loss_with(state(), words(&device), &plain.with_z_loss(1e39)).expect_err("a factor");
    assert!(matches!(error, HeadError::Range { name: "z_loss", .. }), "{error}");

    // In f64 what remains of the nll is how far the word is below the best one, in the component where it is nearest.
    let state = state().cast(DType::F64);
    let nll = values(wide.at_temperature(1e-60).nll(state.clone(), words(&device)));
    let logits = values(Tensor::cat(wide.logit_blocks(state).collect(), 0));
    let rows: Vec<&[f64]> = logits.chunks(VOCAB).collect();
    let targets = words(&device).into_data();
    let want: Vec<f64> = rows
        .chunks(3)
        .zip(targets.iter::<i64>())
        .map(|(rows, word)| {
            let gap = |row: &&[f64]| row.iter().fold(f64::MIN, |max, x| max.max(*x)) - row[word as usize];
            rows.iter().map(gap).fold(f64::MAX, f64::min)
        })
        .collect();
    let got: Vec<f64> = nll.iter().map(|nll| nll * 1e-60).collect();
    assert_close(&got, &want, 1e-12, "nll at a temperature of 1e-60");
}

#[test]
fn large_weights_do_not_overflow_a_mean() {
    for device in cpus().map(Device::autodiff) {
        let on = (&device, DType::F32);
        for config in [softmax(VOCAB), mos(VOCAB)].into_iter().chain(adaptive_heads(VOCAB)) {
            let head = head(&config, on);
            let run = |weight: f64, per_token: bool| {
                let weights = Tensor::<1>::full([TOKENS], weight, on);
                let options = LossOptions::new().with_token_weights(weights).with_per_token(per_token);
                let hidden = tensor([TOKENS, config.d_hidden], 1, on).require_grad();
                let value = head.loss_with(hidden.clone(), words(&device), &options).value;
                [values(value.clone()), all_gradients(&head, &hidden, value)].concat()
            };
            let want = run(1.0, false);
            assert_close(&run(2e38, false), &want, 1e-6, &format!("{config:?}, {device:?}"));
            assert_close(&run(2e38, true), &want, 1e-6, &format!("of tokens, {config:?}, {device:?}"));
        }
    }
}

#[test]
fn parameters_of_other_shapes_are_errors() {
    let on = (&cpu(), DType::F32);
    let check = |change: &dyn Fn(&mut OutputHead), what: &str, got: &[usize], fits: &str| {
        let mut head = head(&mos(VOCAB), on);
        change(&mut head);
        let hidden = tensor::<2>([TOKENS, HIDDEN], 1, on);
        let error = head.try_loss_with(hidden, words(on.0), &LossOptions::new()).expect_err("a shape");
        assert!(matches!(error, HeadError::Shape { .. }), "{error}");
        let line = format!("{what} has shape {got:?}, expected {fits}, as the head's other parameters say");
        assert_eq!(error.to_string(), line);
    };
    let other = |shape: [usize; 2]| Param::from_tensor(tensor(shape, 1, on));
    check(&|head| head.decoder.weight = Some(other([7, 3])), "the decoder's weight", &[7, 3], "[11, 5]");
    let bias = |head: &mut OutputHead| head.decoder.bias = Some(Param::from_tensor(tensor([4], 1, on)));
    check(&bias, "the decoder's bias", &[4], "[11]");
    let latent = |head: &mut OutputHead| match &mut head.context {
        Context::MixtureOfSoftmaxes(mixture) => mixture.latent.weight = other([HIDDEN, 7]),
        other => panic!("{other}"),
    };
    check(&latent, "the mixture's latent.weight", &[HIDDEN, 7], "[6, 15]");
}

#[test]
fn hidden_states_of_f64_need_parameters_of_f64() {
    for device in cpus().map(Device::autodiff) {
        for config in all_heads(VOCAB) {
            let what = format!("{config:?}, {device:?}");
            let [narrow, wide] = [DType::F32, DType::F64].map(|dtype| head(&config, (&device, dtype)));
            let state = tensor::<2>([TOKENS, config.d_hidden], 1, (&device, DType::F32)).require_grad();
            let cast = state.clone().detach().cast(DType::F64);
            let error =
                narrow.try_loss_with(cast.clone(), words(&device), &LossOptions::new()).expect_err("f64");
            let expected = HeadError::FloatType { what: "hidden", got: DType::F64, sums: DType::F32 };
            assert_eq!(error, expected, "{what}");

            let loss = wide.loss(state.clone(), words(&device));
            assert_eq!(loss.dtype(), DType::F64, "{what}");
            let want = values(wide.loss(cast.clone(), words(&device)));
            assert_close(&values(loss.clone()), &want, 1e-14, &what);
            let rows = values(wide.forward(state.clone()));
            assert_close(&rows, &values(wide.forward(cast)), 1e-14, &what);
            let gradient = state.grad(&loss.backward()).expect("a gradient");
            assert_eq!(gradient.dtype(), DType::F32, "{what}");
        }
    }
}

/// PyTorch's definition: word v's part is `−w_v q̃_v log P(v)` with the smoothing over all words, and a mean of single words
/// divides by the sum of the targets' weights.
#[test]
fn class_weights_are_those_of_pytorch() {
    const IGNORED: i64 = -100;
    for device in cpus().map(Device::autodiff) {
        let on = (&device, DType::F64);
        let matrix = |values: &[f64]| floats(values, [TOKENS, values.len() / TOKENS], on);
        let rows_of = |ids: Tensor<2, Int>, probs: Tensor<2>| {
            Tensor::<2>::zeros([TOKENS, VOCAB], on).scatter(1, ids, probs, IndexingUpdateOp::Add)
        };
        // Word 3, a target, has weight 0; the second token is ignored.
        let mut classes = values(tensor::<1>([VOCAB], 6, on).add_scalar(1.3));
        classes[3] = 0.0;
        let mut given: Vec<i64> = words(&device).into_data().iter::<i64>().collect();
        assert_eq!(given[0], 3);
        let column = words(&device).reshape([TOKENS, 1]);
        let counted = matrix(&[1.0, 0.0, 1.0, 1.0]);
        let by_word: f64 = [0, 2, 3].map(|n: usize| classes[given[n] as usize]).iter().sum();
        given[1] = IGNORED;
        let classes = Tensor::<1>::from_data(classes.as_slice(), on);

        let plain = LossOptions::new().with_ignore_index(IGNORED).with_class_weights(classes.clone());
        let ids = Tensor::<2, Int>::from_data([[3i64, 5], [2, 0], [7, 1], [6, 0]], &device);
        let probs = matrix(&[0.5, 0.5, 1.0, 0.0, 0.125, 0.875, 0.25, 0.75]);
        let rows = tensor::<2>([TOKENS, VOCAB], 4, on).add_scalar(1.0);
        let rows = rows.clone() / rows.sum_dim(1);
        let kinds = [
            ("words", rows_of(column, matrix(&[1.0; TOKENS])), by_word, plain.clone()),
            ("teacher", rows_of(ids.clone(), probs.clone()), 3.0, plain.clone().with_teacher(ids, probs)),
            ("distributions", rows.clone(), 3.0, plain.with_distributions(rows)),
        ];
        let heads = all_heads(VOCAB)
            .into_iter()
            .flat_map(|config| [0.0, 0.2].map(|epsilon| (config.clone(), epsilon)));
        for ((config, epsilon), (name, q, count, options)) in
            heads.flat_map(|case| kinds.iter().map(move |kind| (case.clone(), kind)))
        {
            let head = head(&config, on);
            let hidden = || tensor::<2>([TOKENS, config.d_hidden], 1, on).require_grad();
            let composed = |hidden: Tensor<2>| -> Tensor<1> {
                let smoothed = q.clone() * (1.0 - epsilon) + epsilon / VOCAB as f64;
                let parts = smoothed * classes.clone().reshape([1, VOCAB]) * head.forward(hidden);
                (parts.sum_dim(1) * counted.clone()).neg().reshape([TOKENS])
            };
            for (reduction, divisor) in [(Reduction::Mean, *count), (Reduction::Sum, 1.0)] {
                let what = format!("{name}, {epsilon}, {reduction:?}, {config:?}, {device:?}");
                let options = options.clone().with_label_smoothing(epsilon).with_reduction(reduction);
                let state = hidden();
                let losses = composed(state.clone());
                // The derivative of a division by a number rounds it to f32.
                let value = losses.clone().sum() * (1.0 / divisor);
                let want = [values(value.clone()), all_gradients(&head, &state, value)].concat();
                for per_token in [false, true] {
                    let state = hidden();
                    let targets = Tensor::<1, Int>::from_data(given.as_slice(), &device);
                    let made =
                        head.loss_with(state.clone(), targets, &options.clone().with_per_token(per_token));
                    let got = [values(made.value.clone()), all_gradients(&head, &state, made.value)].concat();
                    assert_close(&got, &want, 1e-12, &what);
                    if let Some(made) = made.per_token {
                        assert_close(
                            &values(made),
                            &values(losses.clone()),
                            1e-12,
                            &format!("tokens, {what}"),
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn a_precision_that_is_set_later_is_that_of_the_contexts_too() {
    let on = (&cpu(), DType::F64);
    for config in all_heads(VOCAB) {
        let hidden = || tensor::<2>([TOKENS, config.d_hidden], 1, on);
        let run = |head: &OutputHead| results(head, hidden());
        let mut changed = head(&config, on);
        let full = run(&changed);
        changed.precision = Precision::Bf16;
        let configured = head(&config.clone().with_precision(Precision::Bf16), on);
        assert_eq!(run(&changed), run(&configured), "{config:?}");
        assert_ne!(run(&changed), full, "{config:?}");
    }
    // A mixture of one component, by hand.
    let mut mixture = head(&HeadConfig::mos(HIDDEN, EMBEDDING, VOCAB, 1), on);
    mixture.precision = Precision::Bf16;
    let mut single = head(&softmax(VOCAB), on);
    (single.decoder, single.precision) = (mixture.decoder.clone(), Precision::Bf16);
    let Context::MixtureOfSoftmaxes(parts) = &mixture.context else { unreachable!() };
    let hidden = tensor::<2>([TOKENS, HIDDEN], 1, on);
    let [left, right] = [hidden.clone(), parts.latent.weight.val()].map(|x| Precision::Bf16.round(x));
    let bias = parts.latent.bias.as_ref().unwrap().val();
    let context = (left.matmul(right) + bias.unsqueeze()).tanh();
    let want = values(single.loss(context, words(on.0)));
    assert_close(&values(mixture.loss(hidden, words(on.0))), &want, 1e-13, "one component");
}

#[test]
fn a_mean_over_nothing_is_no_number_and_trains_nothing() {
    let none = |size: usize, on: On<'_>| Tensor::<1>::zeros([size], on);
    for device in cpus().map(Device::autodiff) {
        let on = (&device, DType::F32);
        let plain = LossOptions::new();
        let ignoring = (0..VOCAB as i64).fold(plain.clone(), |options, word| options.with_ignore_index(word));
        let by_class = plain.clone().with_class_weights(none(VOCAB, on));
        let smoothed = by_class.clone().with_label_smoothing(0.1);
        let both = ignoring.clone().with_class_weights(none(VOCAB, on)).with_label_smoothing(0.1);
        let for_every_head = [ignoring, plain.with_token_weights(none(TOKENS, on)), by_class];
        for config in [softmax(VOCAB), mos(VOCAB)].into_iter().chain(adaptive_heads(VOCAB)) {
            let head = head(&config, on);
            let others = match config.adaptive {
                Some(_) => vec![],
                None => vec![smoothed.clone(), both.clone()],
            };
            for (i, options) in for_every_head.iter().chain(&others).enumerate() {
                let what = format!("options {i}, {config:?}, {device:?}");
                let hidden = tensor([TOKENS, config.d_hidden], 1, on).require_grad();
                let value = head.loss_with(hidden.clone(), words(&device), options).value;
                assert!(values(value.clone())[0].is_nan(), "{what}");
                let gradients = all_gradients(&head, &hidden, value);
                assert!(gradients.iter().all(|x| *x == 0.0), "{what}: {gradients:?}");
            }
        }
    }
}
