//! Log-probabilities of given words, entropies, divergences from another head and given divisors, beside the composed formulas.

use burn::module::Module;
use burn::tensor::{DType, Device, Int, Tensor};
use highrank::{
    ContextConfig, Distribution, Divergence, HeadConfig, LogProbOptions, LogitMapConfig, LossOptions,
    OutputHead, Precision, Reduction, TokenLogProbs, cast_parameters,
};

use crate::support::*;

const VOCAB: usize = 11;
const TOKENS: usize = 8;
const WIDTH: usize = 3;
const IGNORED: i64 = -100;
const MASKED: [usize; 2] = [2, 9];

/// Those of the other tests, and wider ones, whose logits are made chunk by chunk: of two tokens, so that some are alone.
fn every_head() -> impl Iterator<Item = HeadConfig> {
    let wide = [
        HeadConfig::softmax(32, VOCAB),
        HeadConfig::plif(32, VOCAB, 17),
        HeadConfig::mos(40, 32, VOCAB, 3),
        HeadConfig::mos_plif(40, 32, VOCAB, 3, 17),
        HeadConfig::mixtape(40, 32, VOCAB),
    ];
    let in_chunks = |config: HeadConfig| {
        let budget = 2 * config.context.components() * VOCAB * size_of::<f64>();
        config.with_memory_budget(Some(budget))
    };
    all_heads(VOCAB).into_iter().chain(adaptive_heads(VOCAB)).chain(wide.map(in_chunks))
}

/// Words of every kind: twice in a row, ignored in some places or all, masked.
fn words(device: &Device) -> Tensor<2, Int> {
    let mut words: Vec<i64> =
        (0..TOKENS as i64).flat_map(|n| [(n * 5) % 11, (n * 3 + 1) % 11, (n * 5) % 11]).collect();
    words[4] = IGNORED;
    words[6..9].fill(IGNORED);
    words[10] = MASKED[1] as i64;
    ints(&words, [TOKENS, WIDTH], device)
}

/// Factors of log-probabilities, some of them negative, of which none meets a masked word.
fn upstream(words: &Tensor<2, Int>, on: On<'_>) -> Tensor<2> {
    let masked = MASKED.iter().map(|word| words.clone().equal_elem(*word as i64));
    tensor([TOKENS, WIDTH], 5, on).mask_fill(masked.reduce(Tensor::bool_or).unwrap(), 0.0)
}

/// The tokens all of whose places are ignored hold what no computation survives.
fn with_nan(hidden: Tensor<2>) -> Tensor<2> {
    hidden.slice_fill(2..3, f64::NAN)
}

/// 0 in place of −∞, through which no gradient flows.
fn finite(log_probs: Tensor<2>) -> Tensor<2> {
    log_probs.clone().mask_fill(log_probs.is_inf(), 0.0)
}

/// Entropies `[N]` of log-probabilities.
fn entropy(log_probs: Tensor<2>) -> Tensor<1> {
    let probs = log_probs.clone().exp();
    -(probs * finite(log_probs)).sum_dim(1).squeeze_dim::<1>(1)
}

fn heads_on(on: On<'_>) -> impl Iterator<Item = (HeadConfig, OutputHead)> {
    every_head().map(move |config| {
        let head = head(&config, on).mask_words(&MASKED).at_temperature(1.3);
        (config, head)
    })
}

#[test]
fn log_probabilities_and_entropies_are_those_of_the_composed_program() {
    for device in cpus().map(Device::autodiff) {
        let on = (&device, DType::F64);
        let (words, device) = (words(&device), &device);
        let upstream = upstream(&words, on);
        let of_entropy = tensor::<2>([TOKENS, 1], 6, on);
        let ignored = words.clone().equal_elem(IGNORED);
        for (config, head) in heads_on(on) {
            let what = format!("{config:?}, {device:?}");
            let state = || tensor([TOKENS, config.d_hidden], 1, on).require_grad();
            let options = LogProbOptions { ignored: vec![IGNORED], entropy: true };

            let hidden = with_nan(tensor([TOKENS, config.d_hidden], 1, on)).require_grad();
            let made = head.token_log_probs(hidden.clone(), words.clone(), &options);
            let TokenLogProbs { log_probs, entropy: made } = made;
            let made = made.expect("asked for");
            let counted = finite(log_probs.clone()) * upstream.clone();
            let loss = counted.sum() + (made.clone() * of_entropy.clone()).sum();
            let got = (values(log_probs), values(made), all_gradients(&head, &hidden, loss));

            let hidden = state();
            let rows = head.forward(hidden.clone());
            let all = rows.clone().gather(1, words.clone().clamp(0, VOCAB as i64 - 1));
            let all = all.mask_fill(ignored.clone(), 0.0);
            let of_tokens = entropy(rows).reshape([TOKENS, 1]);
            let none = ignored.clone().all_dim(1);
            let of_tokens = of_tokens.mask_fill(none, 0.0);
            let loss = (finite(all.clone()) * upstream.clone()).sum()
                + (of_tokens.clone() * of_entropy.clone()).sum();
            let want = (values(all), values(of_tokens), all_gradients(&head, &hidden, loss));

            let masked = want.0.iter().filter(|x| **x == f64::NEG_INFINITY).count();
            assert!(masked >= 2, "{what}: masked words are asked for");
            assert_close(&got.0, &want.0, 1e-11, &format!("{what}: log-probabilities"));
            assert_close(&got.1, &want.1, 1e-11, &format!("{what}: entropy"));
            assert_close(&got.2, &want.2, 1e-10, &format!("{what}: gradients"));
        }
    }
}

#[test]
fn one_word_a_token_is_the_negative_nll() {
    let on = (&ad(), DType::F64);
    for config in every_head() {
        let head = head(&config, on);
        let state = || tensor([TOKENS, config.d_hidden], 1, on).require_grad();
        let words = targets(TOKENS, VOCAB, on.0);
        let factors = tensor::<1>([TOKENS], 3, on);

        let hidden = state();
        let asked = words.clone().reshape([TOKENS, 1]);
        let made = head.token_log_probs(hidden.clone(), asked, &LogProbOptions::default()).log_probs;
        let loss = (made.clone() * factors.clone().reshape([TOKENS, 1])).sum();
        let got = all_gradients(&head, &hidden, loss);

        let hidden = state();
        let want = -head.nll(hidden.clone(), words.clone());
        assert_close(&values(made), &values(want.clone()), 1e-13, &format!("{config:?}"));
        assert_close(
            &got,
            &all_gradients(&head, &hidden, (want * factors).sum()),
            1e-12,
            &format!("{config:?}"),
        );
    }
}

#[test]
fn an_entropy_bonus_adds_the_weighted_entropies() {
    let on = (&ad(), DType::F64);
    for (config, head) in heads_on(on) {
        for per_token in [false, true] {
            let what = format!("{config:?}, {per_token}");
            let state = || tensor([TOKENS, config.d_hidden], 1, on).require_grad();
            let words = ints(&[0, 1, 3, IGNORED, 4, 5, 1, 8], [TOKENS], on.0);
            let weights = tensor::<1>([TOKENS], 3, on).add_scalar(1.2);
            let options = LossOptions::new()
                .with_ignore_index(IGNORED)
                .with_token_weights(weights.clone())
                .with_reduction(Reduction::Sum)
                .with_per_token(per_token)
                .with_statistics(per_token);
            let bonus = options.clone().with_entropy_bonus(0.3).with_label_smoothing(0.1);

            let hidden = state();
            let made = head.loss_with(hidden.clone(), words.clone(), &bonus);
            let got = (values(made.value.clone()), all_gradients(&head, &hidden, made.value));

            let hidden = state();
            let plain =
                head.loss_with(hidden.clone(), words.clone(), &options.clone().with_label_smoothing(0.1));
            let counted = words.clone().equal_elem(IGNORED).bool_not().float().cast(DType::F64);
            let entropies = entropy(head.forward(hidden.clone())) * weights * counted;
            let value = plain.value - entropies.sum() * 0.3;
            assert_close(&got.0, &values(value.clone()), 1e-12, &what);
            assert_close(&got.1, &all_gradients(&head, &hidden, value), 1e-10, &what);
        }
    }
}

const DIVERGENCES: [Divergence; 5] = [
    Divergence::ForwardKl,
    Divergence::ReverseKl,
    Divergence::JensenShannon { beta: 0.5 },
    Divergence::JensenShannon { beta: 0.1 },
    Divergence::TotalVariation,
];

/// `[N]`
fn composed(divergence: Divergence, log_s: Tensor<2>, log_t: Tensor<2>) -> Tensor<1> {
    let (s, t) = (log_s.clone().exp(), log_t.clone().exp());
    let (log_s, log_t) = (finite(log_s), finite(log_t));
    let terms = match divergence {
        Divergence::ForwardKl => t * (log_t - log_s),
        Divergence::ReverseKl => s * (log_s - log_t),
        Divergence::JensenShannon { beta } => {
            let mixed = t.clone() * beta + s.clone() * (1.0 - beta);
            // Of what neither has any, the logarithm of 1.
            let mixed = mixed.clone().mask_fill(mixed.equal_elem(0.0), 1.0).log();
            t * (log_t - mixed.clone()) * beta + s * (log_s - mixed) * (1.0 - beta)
        }
        Divergence::TotalVariation => (s - t).abs() * 0.5,
        _ => unreachable!("listed above"),
    };
    terms.sum_dim(1).squeeze_dim(1)
}

#[test]
fn divergences_are_those_of_the_composed_program() {
    for device in cpus().map(Device::autodiff) {
        let on = (&device, DType::F64);
        let teachers = [HeadConfig::softmax(7, VOCAB), HeadConfig::mos(9, 4, VOCAB, 2)];
        for (number, (config, head)) in
            heads_on(on).filter(|(config, _)| config.adaptive.is_none()).enumerate()
        {
            let teacher = &teachers[number % 2];
            let of_teacher = tensor::<2>([TOKENS, teacher.d_hidden], 8, on);
            let teacher = self::head(teacher, on).mask_words(&MASKED).at_temperature(1.3);
            for divergence in DIVERGENCES {
                let what = format!("{config:?}, {divergence:?}, {device:?}");
                let state = || tensor([TOKENS, config.d_hidden], 1, on).require_grad();
                let words = ints(&[0, 1, IGNORED, 3, 4, 5, 1, 8], [TOKENS], &device);
                let given = tensor::<1>([TOKENS], 3, on);
                let poisoned = with_nan(of_teacher.clone());
                let options = LossOptions::new()
                    .with_ignore_index(IGNORED)
                    .with_per_token(true)
                    .with_distillation(teacher.distribution(poisoned), divergence);
                let hidden = with_nan(tensor([TOKENS, config.d_hidden], 1, on)).require_grad();
                let made = head.loss_with(hidden.clone(), words.clone(), &options).per_token.unwrap();
                let got = (values(made.clone()), all_gradients(&head, &hidden, (made * given.clone()).sum()));

                let hidden = state();
                let log_t = teacher.forward(of_teacher.clone()).detach();
                let want = composed(divergence, head.forward(hidden.clone()), log_t);
                let want = want.mask_fill(words.equal_elem(IGNORED), 0.0);
                assert_close(&got.0, &values(want.clone()), 1e-11, &what);
                let gradients = all_gradients(&head, &hidden, (want.clone() * given).sum());
                assert_close(&got.1, &gradients, 1e-10, &what);

                // A mean makes its gradients in the forward pass. Its teacher is one without autodiff, as a model that learns has.
                let hidden = state();
                let frozen = teacher.valid().distribution(of_teacher.clone().inner());
                let options = LossOptions::new().with_distillation(frozen, divergence).with_statistics(true);
                let all = targets(TOKENS, VOCAB, &device);
                let mean = head.loss_with(hidden.clone(), all, &options).value;
                let got = all_gradients(&head, &hidden, mean.clone());
                let hidden = state();
                let log_t = teacher.forward(of_teacher.clone()).detach();
                let want = composed(divergence, head.forward(hidden.clone()), log_t).mean();
                assert_close(&values(mean), &values(want.clone()), 1e-11, &what);
                assert_close(&got, &all_gradients(&head, &hidden, want), 1e-10, &what);
            }
        }
    }
}

#[test]
fn a_teacher_of_another_float_type_and_checkpointing_strategy_is_a_constant() {
    for device in cpus() {
        let (learns, teaches) =
            (device.clone().autodiff().gradient_checkpointing(), device.clone().autodiff());
        let (on, of_teacher) = ((&learns, DType::F64), (&teaches, DType::F32));
        let head = self::head(&mos(VOCAB), on);
        let teacher = self::head(&softmax(VOCAB), of_teacher);
        let seen = tensor::<2>([TOKENS, EMBEDDING], 8, of_teacher);
        for divergence in DIVERGENCES {
            let what = format!("{divergence:?}, {device:?}");
            let state = || tensor::<2>([TOKENS, HIDDEN], 1, on).require_grad();
            let (fused, formula) = (state(), state());
            let got = distance(&head, fused.clone(), teacher.distribution(seen.clone()), divergence);
            let log_t = teacher.forward(seen.clone()).without_autodiff().cast(DType::F64);
            let want = composed(divergence, head.forward(formula.clone()), log_t).mean();
            assert_close(&values(got.clone()), &values(want.clone()), 1e-6, &what);
            let got = all_gradients(&head, &fused, got);
            assert_close(&got, &all_gradients(&head, &formula, want), 1e-6, &what);

            let options =
                LossOptions::new().with_distillation(teacher.distribution(seen.clone()), divergence);
            let options = options.with_ignore_index(0).with_reduction(Reduction::Sum);
            let nothing = Tensor::<1, Int>::zeros([TOKENS], &learns);
            let made = head.loss_with(state(), nothing, &options).value;
            assert_eq!(values(made), [0.0], "{what}: all ignored");
        }
    }
}

/// The mean over all tokens.
fn distance(
    head: &OutputHead,
    hidden: Tensor<2>,
    teacher: Distribution,
    divergence: Divergence,
) -> Tensor<1> {
    let words = Tensor::<1, Int>::zeros([TOKENS], &hidden.device());
    head.loss_with(hidden, words, &LossOptions::new().with_distillation(teacher, divergence)).value
}

#[test]
fn a_head_is_no_distance_from_itself() {
    let on = (&ad(), DType::F32);
    for (config, head) in heads_on(on).filter(|(config, _)| config.adaptive.is_none()) {
        for divergence in DIVERGENCES {
            let hidden = tensor([TOKENS, config.d_hidden], 1, on).require_grad();
            let loss = distance(&head, hidden.clone(), head.distribution(hidden.clone()), divergence);
            let what = format!("{config:?}, {divergence:?}");
            assert_close(&values(loss.clone()), &[0.0], 1e-6, &what);
            if divergence != Divergence::TotalVariation {
                let gradients = all_gradients(&head, &hidden, loss);
                assert_close(&gradients, &vec![0.0; gradients.len()], 2e-6, &what);
            }
        }
    }
}

#[test]
fn a_word_that_one_side_masks_makes_a_divergence_infinite_or_leaves_it() {
    let on = (&ad(), DType::F64);
    let config = mos(VOCAB);
    let of = |masked: &[usize]| head(&config, on).mask_words(masked);
    let hidden = || tensor::<2>([TOKENS, HIDDEN], 1, on);
    let distance = |student: &[usize], teacher: &[usize], divergence| {
        values(distance(&of(student), hidden(), of(teacher).distribution(hidden()), divergence))[0]
    };
    let (none, one): (&[usize], &[usize]) = (&[], &[4]);
    assert_eq!(distance(one, none, Divergence::ForwardKl), f64::INFINITY);
    assert_eq!(distance(none, one, Divergence::ReverseKl), f64::INFINITY);
    for (student, teacher) in [(one, none), (none, one)] {
        for divergence in [Divergence::JensenShannon { beta: 0.3 }, Divergence::TotalVariation] {
            let value = distance(student, teacher, divergence);
            assert!((1e-3..1.0).contains(&value), "{divergence:?}: {value}");
        }
    }
    // What the other side masks is nothing to a word of probability 0.
    assert!(distance(none, one, Divergence::ForwardKl).is_finite());
    assert!(distance(one, none, Divergence::ReverseKl).is_finite());
}

#[test]
fn slices_over_one_divisor_add_up_to_the_batch() {
    let on = (&ad(), DType::F64);
    for config in every_head() {
        let head = head(&config, on);
        let words = [3, IGNORED, IGNORED, 1, 5, 0, 8, 10];
        let counted = words.iter().filter(|word| **word != IGNORED).count() as f64;
        let all = tensor::<2>([TOKENS, config.d_hidden], 1, on);
        let run = |range: std::ops::Range<usize>, options: &LossOptions| {
            let hidden = all.clone().narrow(0, range.start, range.len()).require_grad();
            let words = ints(&words[range.clone()], [range.len()], on.0);
            let loss = head.loss_with(hidden.clone(), words, options).value;
            let gradients = all_gradients(&head, &hidden, loss.clone());
            let of_hidden = range.len() * config.d_hidden;
            (values(loss)[0], gradients[..gradients.len() - of_hidden].to_vec(), gradients)
        };
        let mean = LossOptions::new().with_ignore_index(IGNORED);
        let (want, gradients, _) = run(0..TOKENS, &mean);
        let divided = mean.clone().with_reduction(Reduction::Divisor(counted));
        let parts = [0..1, 1..3, 3..TOKENS].map(|range| run(range, &divided));
        let sum: f64 = parts.iter().map(|part| part.0).sum();
        let total =
            (0..gradients.len()).map(|i| parts.iter().map(|part| part.1[i]).sum()).collect::<Vec<f64>>();
        assert_close(&[sum], &[want], 1e-12, &format!("{config:?}"));
        assert_close(&total, &gradients, 1e-12, &format!("{config:?}"));
        // Nothing of the second slice counts.
        assert_eq!(parts[1].0, 0.0, "{config:?}");
        assert!(parts[1].2.iter().all(|gradient| *gradient == 0.0), "{config:?}");
    }
}

#[test]
fn rounded_products_lose_no_more_than_their_rounding() {
    let on = (&ad(), DType::F32);
    for config in [HeadConfig::softmax(32, VOCAB), HeadConfig::mos(40, 32, VOCAB, 3)] {
        let state = || tensor([TOKENS, config.d_hidden], 1, on).require_grad();
        let words = words(on.0).clamp(0, 1);
        let run = |precision: Precision| {
            let head = head(&config.clone().with_precision(precision), on);
            let hidden = state();
            let options = LogProbOptions { entropy: true, ..Default::default() };
            let made = head.token_log_probs(hidden.clone(), words.clone(), &options);
            let entropy = made.entropy.unwrap();
            let loss = made.log_probs.clone().sum() + entropy.clone().sum();
            let teacher = head.distribution(hidden.clone() * 0.5);
            let distance = distance(&head, hidden.clone(), teacher, Divergence::JensenShannon { beta: 0.3 });
            let gradients = all_gradients(&head, &hidden, loss + distance.clone() * 100.0);
            [values(made.log_probs), values(entropy), values(distance), gradients]
        };
        for (short, full) in run(Precision::Bf16).into_iter().zip(run(Precision::Full)) {
            let error = relative_error(&short, &full);
            assert!(error < 0.02, "{config:?}: {error}");
        }
    }
}

#[test]
fn misuse_is_said_in_a_line() {
    let on = (&cpu(), DType::F32);
    let config = mos(VOCAB);
    let head = head(&config, on);
    let hidden = || tensor::<2>([TOKENS, HIDDEN], 1, on);
    let asked = |words: Tensor<2, Int>| {
        let panic = panic_of(|| drop(head.token_log_probs(hidden(), words, &LogProbOptions::default())));
        panic.strip_prefix("token_log_probs: ").expect("the method's name").to_string()
    };
    let shape = asked(ints(&[1; 7], [7, 1], on.0));
    assert_eq!(shape, "words has shape [7, 1], expected [8] of the hidden state and then m, at least 1");
    let outside = asked(ints(&[0, 1, 2, 3, 4, 11, 6, 7], [TOKENS, 1], on.0));
    assert!(outside.contains("11") && outside.contains("token 5"), "{outside}");

    let words = || targets(TOKENS, VOCAB, on.0);
    let refused = |options: LossOptions| {
        head.try_loss_with(hidden(), words(), &options).expect_err("refused").to_string()
    };
    for divisor in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let line = refused(LossOptions::new().with_reduction(Reduction::Divisor(divisor)));
        assert_eq!(line, format!("divisor is {divisor}, expected a finite number above 0"));
    }
    let line = refused(LossOptions::new().with_entropy_bonus(f64::NAN));
    assert_eq!(line, "entropy_bonus is NaN, expected a finite number");

    let other =
        self::head(&HeadConfig::softmax(4, VOCAB + 1), on).distribution(tensor::<2>([TOKENS, 4], 1, on));
    let line = refused(LossOptions::new().with_distillation(other, Divergence::ForwardKl));
    assert!(line.starts_with("the teacher's vocabulary has shape [12, 12], expected [11, 11]"), "{line}");
    let teacher = |tokens: usize| {
        self::head(&HeadConfig::softmax(4, VOCAB), on).distribution(tensor::<2>([tokens, 4], 1, on))
    };
    let line = refused(LossOptions::new().with_distillation(teacher(3), Divergence::ForwardKl));
    assert!(line.starts_with("the teacher's tokens has shape [3], expected [8]"), "{line}");
    for beta in [0.0, 1.0, f64::NAN] {
        let divergence = Divergence::JensenShannon { beta };
        let line = refused(LossOptions::new().with_distillation(teacher(TOKENS), divergence));
        assert_eq!(line, format!("beta is {beta}, expected a number between 0 and 1"));
    }
    let smoothed = LossOptions::new().with_label_smoothing(0.1);
    let line = refused(smoothed.with_distillation(teacher(TOKENS), Divergence::ForwardKl));
    assert!(line.starts_with("label_smoothing is set, but a divergence"), "{line}");
    let [adaptive, _] = adaptive_heads(VOCAB);
    let adaptive = self::head(&adaptive, on);
    let made = adaptive.try_loss_with(
        tensor::<2>([TOKENS, EMBEDDING], 1, on),
        words(),
        &LossOptions::new().with_distillation(teacher(TOKENS), Divergence::ForwardKl),
    );
    assert!(made.expect_err("refused").to_string().starts_with("distillation is set, but"));
}

/// Heads whose words have neither clusters nor gates.
fn heads_with_candidates(on: On<'_>) -> impl Iterator<Item = (HeadConfig, OutputHead)> {
    let has_rows = |config: &HeadConfig| {
        config.adaptive.is_none() && !matches!(config.context, ContextConfig::Mixtape(_))
    };
    heads_on(on).filter(move |(config, _)| has_rows(config))
}

#[test]
fn candidates_share_what_all_words_would() {
    let on = (&ad(), DType::F64);
    let chosen = [7, 0, 2, 5];
    for (config, head) in heads_with_candidates(on) {
        let what = format!("{config:?}");
        let state = || tensor([TOKENS, config.d_hidden], 1, on).require_grad();
        let words = ints(&chosen, [chosen.len()], on.0);
        let places = targets(TOKENS, 2, on.0);

        let hidden = state();
        let loss = head.restricted_to(words.clone(), None).loss(hidden.clone(), places.clone());
        let got = (values(loss.clone()), all_gradients(&head, &hidden, loss));

        // All other words masked, which leaves the same distribution.
        let others: Vec<usize> = (0..VOCAB).filter(|word| !chosen.contains(&(*word as i64))).collect();
        let hidden = state();
        let loss =
            head.clone().mask_words(&others).loss(hidden.clone(), words.clone().select(0, places.clone()));
        let want = (values(loss.clone()), all_gradients(&head, &hidden, loss));
        assert_close(&got.0, &want.0, 1e-12, &what);
        assert_close(&got.1, &want.1, 1e-11, &what);

        let hidden = state();
        let sets = words.reshape([1, chosen.len()]).repeat_dim(0, TOKENS);
        let log_probs = head.candidate_log_probs(hidden.clone(), sets, None);
        let masked = values(log_probs.clone()).chunks(chosen.len()).all(|row| row[2] == f64::NEG_INFINITY);
        assert!(masked, "{what}: word 2 is masked");
        let loss = -log_probs.gather(1, places.reshape([TOKENS, 1])).mean();
        assert_close(&values(loss.clone()), &want.0, 1e-12, &what);
        assert_close(&all_gradients(&head, &hidden, loss), &want.1, 1e-11, &what);
    }
}

#[test]
fn a_correction_is_subtracted_from_the_mapped_logits() {
    let on = (&ad(), DType::F64);
    let chosen = [7, 0, 4, 5];
    let log_q = [-0.5, -3.0, -1.0, -2.5];
    for (config, head) in heads_with_candidates(on) {
        let what = format!("{config:?}");
        let hidden = tensor([TOKENS, config.d_hidden], 1, on);
        let sets = ints::<2>(&chosen, [1, 4], on.0).repeat_dim(0, TOKENS);
        let of_sets = Tensor::<2>::from_data([log_q], on).repeat_dim(0, TOKENS);
        let got = values(head.candidate_log_probs(hidden.clone(), sets.clone(), Some(of_sets)));
        if head.components() == 1 {
            let plain = head.candidate_log_probs(hidden.clone(), sets, None);
            let corrected = plain - Tensor::<2>::from_data([log_q], on);
            let want = corrected.clone() - corrected.exp().sum_dim(1).log();
            assert_close(&got, &values(want), 1e-12, &what);
        }
        if config.logit_map == LogitMapConfig::Identity {
            let of_set = Tensor::<1>::from_data(log_q, on);
            let shared = head.restricted_to(ints(&chosen, [4], on.0), Some(of_set));
            assert_close(&got, &values(shared.forward(hidden)), 1e-12, &what);
        }
    }
}

#[test]
fn products_with_candidates_are_rounded_as_all_are() {
    for precision in [Precision::Full, Precision::Tf32, Precision::Bf16] {
        for (dtype, tolerance) in [(DType::F64, 1e-12), (DType::F32, 1e-5), (DType::BF16, 1e-5)] {
            let on = (&cpu(), DType::F64);
            for (config, head) in heads_with_candidates(on) {
                let mut head = cast_parameters(head, dtype);
                head.precision = precision;
                let hidden = tensor::<2>([TOKENS, config.d_hidden], 1, on).cast(dtype);
                let words = ints::<1>(&[7, 0, 4, 5], [4], on.0);
                let sets = words.clone().reshape([1, 4]).repeat_dim(0, TOKENS);
                let got = values(head.candidate_log_probs(hidden.clone(), sets, None));
                let want = values(head.restricted_to(words, None).forward(hidden));
                assert_close(&got, &want, tolerance, &format!("{precision}, {dtype:?}, {config:?}"));
            }
        }
    }
}

#[test]
fn a_correction_that_is_not_finite_is_refused() {
    let on = (&cpu(), DType::F64);
    let head = head(&softmax(VOCAB), on);
    let hidden = tensor::<2>([1, EMBEDDING], 1, on);
    for value in [f64::NEG_INFINITY, f64::INFINITY, f64::NAN] {
        let log_q = || Tensor::<2>::from_data([[-1.0, value]], on);
        let message =
            panic_of(|| drop(head.restricted_to(ints(&[7, 0], [2], on.0), Some(log_q().reshape([2])))));
        assert_eq!(message, format!("restricted_to: log_q is {value}, expected a finite number"));
        let sets = ints(&[7, 0], [1, 2], on.0);
        let message = panic_of(|| drop(head.candidate_log_probs(hidden.clone(), sets, Some(log_q()))));
        assert_eq!(message, format!("candidate_log_probs: log_q is {value}, expected a finite number"));
    }
}

#[test]
fn a_correction_keeps_its_digits_in_half_precision() {
    let on = (&cpu(), DType::F64);
    let log_q = || Tensor::<1>::from_data([-9.23, -11.07, -7.59, -10.31], on);
    let words = || ints(&[7, 0, 4, 5], [4], on.0);
    let wide = head(&softmax(VOCAB), on);
    let half = cast_parameters(wide.clone(), DType::BF16);
    // The same numbers in the wide head.
    let wide = cast_parameters(half.clone(), DType::F64);
    let hidden = tensor::<2>([3, EMBEDDING], 1, on).cast(DType::BF16);
    let got = values(half.restricted_to(words(), Some(log_q().cast(DType::F32))).forward(hidden.clone()));
    let want = values(wide.restricted_to(words(), Some(log_q())).forward(hidden.clone().cast(DType::F64)));
    let worst = got.iter().zip(&want).map(|(got, want)| (got - want).abs()).fold(0.0, f64::max);
    assert!(worst < 1e-5, "{worst}");
    // Nor does a temperature take any of a short number.
    let (head, sets) = (half.at_temperature(0.7), words().reshape([1, 4]).repeat_dim(0, 3));
    let short = log_q().cast(DType::BF16);
    let of_sets = short.clone().reshape([1, 4]).repeat_dim(0, 3);
    let shared = values(head.restricted_to(words(), Some(short)).forward(hidden.clone()));
    let listed = values(head.candidate_log_probs(hidden, sets, Some(of_sets)));
    assert_close(&shared, &listed, 1e-5, "a correction in half precision");
}
