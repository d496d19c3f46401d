//! Wrong options of a loss: a typed error from the checked form, and the same line in the other form's panic.

use burn::tensor::{DType, Int, Tensor, TensorData};
use highrank::{
    HeadConfig, HeadError, LossOptions, OutputHead, TimeAxis, linear_cross_entropy, validate_targets,
};

use crate::support::*;

const VOCAB: usize = 11;
const TOKENS: usize = 3;

fn mos() -> OutputHead {
    head(&HeadConfig::mos(HIDDEN, EMBEDDING, VOCAB, 3), (&cpu(), DType::F64))
}

/// With clusters.
fn adaptive() -> OutputHead {
    let [_, config] = adaptive_heads(VOCAB);
    head(&config, (&cpu(), DType::F64))
}

fn state() -> Tensor<2> {
    tensor([TOKENS, HIDDEN], 1, (&cpu(), DType::F64))
}

fn words(words: &[i64]) -> Tensor<1, Int> {
    Tensor::from_data(words, &cpu())
}

fn floats<const D: usize>(values: &[f64], shape: [usize; D]) -> Tensor<D> {
    crate::support::floats(values, shape, (&cpu(), DType::F64))
}

/// Two words a token.
fn teacher(ids: [i64; 6], probs: [f64; 6]) -> LossOptions {
    let ids = Tensor::from_data(TensorData::new(ids.to_vec(), [TOKENS, 2]), &cpu());
    LossOptions::new().with_teacher(ids, floats(&probs, [TOKENS, 2]))
}

fn weighted(weights: [f64; TOKENS]) -> LossOptions {
    LossOptions::new().with_token_weights(floats(&weights, [TOKENS]))
}

fn by_class(word: usize, weight: f64) -> LossOptions {
    let mut weights = [1.0; VOCAB];
    weights[word] = weight;
    LossOptions::new().with_class_weights(floats(&weights, [VOCAB]))
}

#[test]
fn targets_of_any_shape_are_looked_through() {
    let of = |last: i64| {
        let targets = ints(&[0, 10, 3, last], [2, 2], &cpu());
        validate_targets(&targets, VOCAB)
    };
    assert_eq!(of(10), Ok(()));
    for wrong in [11, -100] {
        assert_eq!(of(wrong), Err(HeadError::Target { target: wrong, token: 3, vocab: VOCAB }));
    }
}

/// The error of the checked form, which the other form's panic must repeat, and a head with clusters.
#[track_caller]
fn error_of(targets: &[i64], options: &LossOptions) -> HeadError {
    let error = mos().try_loss_with(state(), words(targets), options).expect_err("wrong options");
    let message = panic_of(|| drop(mos().loss_with(state(), words(targets), options)));
    assert_eq!(message, format!("loss_with: {error}"));
    let of_clusters = adaptive().try_loss_with(state(), words(targets), options).expect_err("wrong options");
    assert_eq!(of_clusters.to_string(), error.to_string());
    error
}

#[track_caller]
fn check(options: LossOptions, message: &str) {
    assert_eq!(error_of(&[1, 2, 3], &options).to_string(), message);
}

#[test]
fn shapes_that_do_not_fit_each_other_are_both_named() {
    let options = LossOptions::new();
    let column: Tensor<2, Int> = words(&[1, 2, 3]).reshape([TOKENS, 1]);
    let error = mos().try_loss_with(state(), column, &options).expect_err("a column");
    assert_eq!(
        error.to_string(),
        "hidden has shape [3, 6], expected 3 dimensions, one more than the 2 of the targets [3, 1]"
    );

    let of_linear = || floats(&[0.0; HIDDEN * VOCAB], [HIDDEN, VOCAB]);
    let message =
        panic_of(|| drop(linear_cross_entropy(state(), of_linear(), None, words(&[1, 2, 3]), &options)));
    assert_eq!(
        message,
        "linear_cross_entropy: hidden has shape [3, 6], expected [.., 11] of the weight [6, 11], which is [V, d]: that of \
         a Linear must be transposed"
    );

    let config = HeadConfig::mos(HIDDEN, EMBEDDING, VOCAB, 3).with_latent_dropout(0.5, TimeAxis::First);
    let mask = Tensor::<2>::full([2, 3 * EMBEDDING], 2.0, (&cpu(), DType::F64));
    let masked = head(&config, (&cpu(), DType::F64)).with_latent_mask(mask);
    let error = masked.try_loss_with(state(), words(&[1, 2, 3]), &options).expect_err("two sequences");
    assert_eq!(
        error.to_string(),
        "the latent mask has shape [2, 15], expected [3, 15], a row for each sequence of hidden states [3, 6]"
    );
}

#[test]
fn numbers_outside_of_their_ranges() {
    let options = LossOptions::new;
    for (epsilon, text) in [(1.0, "1"), (-0.1, "-0.1"), (1.5, "1.5"), (f64::NAN, "NaN")] {
        let message = format!("label_smoothing is {text}, expected a number in [0, 1)");
        check(options().with_label_smoothing(epsilon), &message);
    }
    for (lambda, text) in [(-1e-4, "-0.0001"), (f64::NAN, "NaN"), (f64::INFINITY, "inf")] {
        let message = format!("z_loss is {text}, expected a finite number of at least 0");
        check(options().with_z_loss(lambda), &message);
    }
    for (tau, text) in [(0.0, "0"), (-1.0, "-1"), (f64::NAN, "NaN"), (f64::INFINITY, "inf")] {
        let message = format!("temperature is {text}, expected a finite number above 0");
        let panic = panic_of(|| drop(mos().at_temperature(tau)));
        assert_eq!(panic, format!("at_temperature: {message}"));
    }
    // The ends of the ranges that belong to them.
    let options = options().with_label_smoothing(0.0).with_z_loss(0.0);
    let cold = mos().at_temperature(f64::MIN_POSITIVE.sqrt());
    assert!(cold.try_loss_with(state(), words(&[1, 2, 3]), &options).is_ok());
}

#[test]
fn tensors_of_other_shapes() {
    let options = LossOptions::new;
    check(
        options().with_token_weights(floats(&[1.0; 4], [4])),
        "token_weights has shape [4], expected [3], the shape of the targets",
    );
    check(
        options().with_token_weights(floats(&[1.0; 3], [3, 1])),
        "token_weights has shape [3, 1], expected [3], the shape of the targets",
    );
    check(
        options().with_class_weights(floats(&[1.0; 12], [12])),
        "class_weights has shape [12], expected [11], a weight for each word of the vocabulary",
    );
    let ids = |shape: [usize; 2]| {
        Tensor::<2, Int>::from_data(TensorData::new(vec![0i64; shape[0] * shape[1]], shape), &cpu())
    };
    let probs = |shape: [usize; 2]| floats(&vec![0.0; shape[0] * shape[1]], shape);
    let of_ids = |got: &str| {
        format!(
            "teacher_ids has shape {got}, expected [3] of the targets and then m, 1 to the vocabulary's 11"
        )
    };
    check(options().with_teacher(ids([4, 2]), probs([4, 2])), &of_ids("[4, 2]"));
    check(options().with_teacher(ids([3, 12]), probs([3, 12])), &of_ids("[3, 12]"));
    check(options().with_teacher(ids([3, 0]), probs([3, 0])), &of_ids("[3, 0]"));
    let flat = Tensor::<1, Int>::from_data([0i64, 1, 2], &cpu());
    check(options().with_teacher(flat, floats(&[1.0; 3], [3])), &of_ids("[3]"));
    check(
        options().with_teacher(ids([3, 2]), probs([3, 3])),
        "teacher_probs has shape [3, 3], expected [3, 2], the shape of teacher_ids",
    );

    let error = mos().try_loss_with(state(), words(&[1, 2]), &options()).expect_err("two targets");
    assert_eq!(error.to_string(), "targets has shape [2], expected [3], as the hidden state says");
    let narrow = tensor([TOKENS, 4], 1, (&cpu(), DType::F64));
    let error = mos().try_loss_with(narrow, words(&[1, 2, 3]), &options()).expect_err("a narrow state");
    assert_eq!(error.to_string(), "hidden has shape [3, 4], expected [.., 6] with at least one token");
}

#[test]
fn weights_that_are_none() {
    let message =
        |weight: &str| format!("weight {weight} at position 1, expected a finite number of at least 0");
    for (weight, text) in [(-0.5, "-0.5"), (f64::NAN, "NaN"), (f64::INFINITY, "inf")] {
        check(weighted([1.0, weight, 1.0]), &message(text));
        check(by_class(1, weight), &message(text));
        // Of a token that is ignored it may be any number.
        let options = weighted([1.0, weight, 1.0]).with_ignore_index(2);
        let loss = mos().try_loss_with(state(), words(&[1, 2, 3]), &options).expect("no wrong weight").value;
        assert!(values(loss)[0].is_finite());
    }
}

#[test]
fn targets_that_are_no_words() {
    let wrong = |targets: &[i64], options: &LossOptions, target: i64| {
        let error = error_of(targets, options);
        assert_eq!(error, HeadError::Target { target, token: 1, vocab: VOCAB });
        assert_eq!(error.to_string(), format!("target {target} at token 1 is outside the vocabulary 0..11"));
    };
    wrong(&[1, 11, 3], &LossOptions::new(), 11);
    wrong(&[1, -1, 3], &LossOptions::new().with_ignore_index(-100), -1);
    wrong(&[-100, -100, 3], &weighted([0.0, 1.0, 1.0]), -100);
    wrong(&[1, -1, 3], &by_class(1, 0.0), -1);
}

#[test]
fn teachers_that_are_no_distributions() {
    let ids = [0, 1, 2, 3, 4, 5];
    let good = [0.5, 0.5, 1.0, 0.0, 0.25, 0.25];
    let expected = "expected numbers of at least 0 that sum to 1 or less";
    let row = |row: [f64; 2]| [good[0], good[1], row[0], row[1], good[4], good[5]];
    check(
        teacher(ids, row([0.75, 0.5])),
        &format!("the teacher's probabilities at token 1 sum to 1.25, the least is 0.5: {expected}"),
    );
    check(
        teacher(ids, row([0.75, -0.25])),
        &format!("the teacher's probabilities at token 1 sum to 0.5, the least is -0.25: {expected}"),
    );
    for wrong in [f64::NAN, f64::INFINITY] {
        let error = error_of(&[1, 2, 3], &teacher(ids, row([0.5, wrong])));
        assert!(matches!(error, HeadError::TeacherRow { token: 1, .. }), "{error}");
    }
    let of_words = |at: i64| {
        format!("the teacher lists word {at} at token 2, expected different words of the vocabulary 0..11")
    };
    check(teacher([0, 1, 2, 3, 4, 4], good), &of_words(4));
    check(teacher([0, 1, 2, 3, 4, 11], good), &of_words(11));
    check(teacher([0, 1, 2, 3, -1, 4], good), &of_words(-1));
    // A row of an ignored token is not read.
    let options = teacher([0, 1, 2, 3, -1, -1], [0.5, 0.5, 1.0, 0.0, 7.0, f64::NAN]).with_ignore_index(3);
    let loss = mos().try_loss_with(state(), words(&[1, 2, 3]), &options).expect("no wrong row").value;
    assert!(values(loss)[0].is_finite());
}

#[test]
fn teachers_of_masked_words() {
    let head = mos().mask_words(&[3, 9]);
    let run = |probs: [f64; 6]| {
        let options = teacher([0, 1, 2, 3, 4, 5], probs);
        values(head.loss_with(state(), words(&[1, 2, 4]), &options).value)[0]
    };
    assert!(run([0.5, 0.5, 1.0, 0.0, 0.25, 0.25]).is_finite());
    // What no distribution can follow.
    assert_eq!(run([0.5, 0.5, 0.5, 0.5, 0.25, 0.25]), f64::INFINITY);
}

#[test]
fn losses_against_distributions() {
    let rows = |width: usize| floats(&vec![0.1; TOKENS * width], [TOKENS, width]);
    let against = |width: usize| LossOptions::new().with_distributions(rows(width));
    let of_shape = |got: &str| {
        format!(
            "distributions has shape {got}, expected [3, 11], of the targets and then a probability for each row of the \
             decoder"
        )
    };
    check(against(10), &of_shape("[3, 10]"));
    let flat: Tensor<1> = rows(VOCAB).reshape([TOKENS * VOCAB]);
    check(LossOptions::new().with_distributions(flat), &of_shape("[33]"));
    // What is wrong otherwise is so here.
    let weights = floats(&[1.0, -1.0, 1.0], [TOKENS]);
    let error = error_of(&[1, 2, 3], &against(VOCAB).with_token_weights(weights));
    assert_eq!(error, HeadError::Weight { value: -1.0, token: 1 });
    let error = error_of(&[1, 2, 3], &against(VOCAB).with_z_loss(-1.0));
    assert!(matches!(error, HeadError::Range { name: "z_loss", .. }));
    let error = error_of(&[1, 11, 3], &against(VOCAB));
    assert_eq!(error, HeadError::Target { target: 11, token: 1, vocab: VOCAB });
    // The later of two distributions is the target.
    let teacher = teacher([0, 1, 2, 3, 4, 11], [0.5; 6]);
    error_of(&[1, 2, 3], &teacher);
    let options = teacher.with_distributions(rows(VOCAB));
    assert!(mos().try_loss_with(state(), words(&[1, 2, 3]), &options).is_ok());
}

#[test]
fn class_weights_of_more_than_words_under_clusters() {
    let run = |options: &LossOptions| adaptive().try_loss_with(state(), words(&[1, 2, 3]), options);
    assert!(run(&by_class(1, 0.5)).is_ok());
    let distributions = floats(&[1.0 / VOCAB as f64; TOKENS * VOCAB], [TOKENS, VOCAB]);
    for options in
        [by_class(1, 0.5).with_label_smoothing(0.1), by_class(1, 0.5).with_distributions(distributions)]
    {
        let error = run(&options).expect_err("class weights of many words");
        assert!(matches!(error, HeadError::Unused { option: "class_weights", .. }), "{error}");
    }
}

#[test]
fn tensors_on_another_device() {
    let options = LossOptions::new;
    // None where the tests are built with one backend.
    for other in cpus().skip(1) {
        let there = (&other, DType::F64);
        let check = |hidden: Tensor<2>, words: Tensor<1, Int>, options: LossOptions, name: &str| {
            let error = mos().try_loss_with(hidden, words, &options).expect_err("another device");
            let line = error.to_string();
            assert!(matches!(error, HeadError::Device { what, .. } if what == name), "{line}");
            assert!(line.starts_with(&format!("{name} is on ")), "{line}");
        };
        let targets = || words(&[1, 2, 3]);
        check(tensor::<2>([TOKENS, HIDDEN], 1, there), targets(), options(), "hidden");
        check(state(), Tensor::from_data([1i64, 2, 3], &other), options(), "targets");
        let weights = tensor::<1>([TOKENS], 2, there);
        check(state(), targets(), options().with_token_weights(weights), "token_weights");
        let weights = tensor::<1>([VOCAB], 2, there);
        check(state(), targets(), options().with_class_weights(weights), "class_weights");
        let rows = tensor::<2>([TOKENS, VOCAB], 2, there);
        check(state(), targets(), options().with_distributions(rows.clone()), "distributions");
        let ids = Tensor::from_data([[1i64], [2], [3]], &other);
        let probs = rows.narrow(1, 0, 1);
        check(state(), targets(), options().with_teacher(ids, probs), "teacher_ids");
    }
}

#[test]
fn tied_heads_without_their_matrix() {
    let config = HeadConfig::mos(HIDDEN, EMBEDDING, VOCAB, 3).with_tied(true);
    let tied = head(&config, (&cpu(), DType::F64));
    let options = LossOptions::new();
    let error = tied.try_loss_with(state(), words(&[1, 2, 3]), &options).expect_err("no matrix");
    assert_eq!(error, HeadError::MissingDecoder);
    let bound = tied.tied_to(tensor([VOCAB, EMBEDDING], 7, (&cpu(), DType::F64)));
    let error = bound.try_loss_with(state(), words(&[1, 2, 3]), &options.with_label_smoothing(2.0));
    assert!(matches!(error, Err(HeadError::Range { name: "label_smoothing", .. })));
}
