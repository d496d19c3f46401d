//! Losses with options: tokens that do not count, weights, upstream gradients and statistics.

use burn::tensor::{DType, Device, Int, Tensor};
use highrank::context::Context;
use highrank::{HeadConfig, Loss, LossOptions, OutputHead, Reduction, TimeAxis};

use crate::priors::priors;
use crate::support::*;

const VOCAB: usize = 11;
const TOKENS: usize = 8;
const IGNORED: i64 = -100;

/// Weights of tokens, all above 0.
fn weights(on: On<'_>) -> Tensor<1> {
    tensor([TOKENS], 3, on).add_scalar(1.2)
}

/// Three words a token; some rows leave something to other words.
fn teacher(on: On<'_>) -> (Tensor<2, Int>, Tensor<2>) {
    let ids: Vec<i64> = (0..TOKENS as i64).flat_map(|n| [n % 11, (n + 4) % 11, (n + 9) % 11]).collect();
    let probs: Vec<f64> =
        (0..TOKENS).flat_map(|n| [0.5, 0.25, if n % 2 == 0 { 0.25 } else { 0.125 }]).collect();
    (ints(&ids, [TOKENS, 3], on.0), floats(&probs, [TOKENS, 3], on))
}

/// A distribution over all words for each token.
fn distributions(on: On<'_>) -> Tensor<2> {
    let rows = tensor([TOKENS, VOCAB], 4, on).add_scalar(1.0);
    rows.clone() / rows.sum_dim(1)
}

const CHOICES: usize = 4;

/// Nothing; everything that works together with words; the same with a teacher, and with distributions.
fn choices(on: On<'_>) -> [LossOptions; CHOICES] {
    let all = LossOptions::new().with_label_smoothing(0.2).with_z_loss(0.05);
    let (ids, probs) = teacher(on);
    let against_rows = all.clone().with_distributions(distributions(on));
    [LossOptions::new(), all.clone(), all.with_teacher(ids, probs), against_rows]
}

/// The temperature of a head that a choice is for.
fn temperature(choice: usize) -> f64 {
    if choice == 0 { 1.0 } else { 1.3 }
}

/// What is asked for of a loss.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Asked {
    Value(Reduction),
    /// The values of the tokens.
    Tokens,
}

const ALL_ASKED: [Asked; 3] = [Asked::Value(Reduction::Mean), Asked::Value(Reduction::Sum), Asked::Tokens];

impl Asked {
    fn of(self, options: LossOptions) -> LossOptions {
        match self {
            Self::Value(reduction) => options.with_reduction(reduction),
            Self::Tokens => options.with_per_token(true),
        }
    }

    fn read(self, made: Loss<1>) -> Tensor<1> {
        match self {
            Self::Value(_) => made.value,
            Self::Tokens => made.per_token.expect("asked for"),
        }
    }
}

/// All choices with all that can be asked for.
fn every_choice() -> impl Iterator<Item = (usize, Asked)> {
    (0..CHOICES).flat_map(|choice| ALL_ASKED.map(|asked| (choice, asked)))
}

/// What is asked for of a loss and all gradients of it, under upstream gradients if there are any.
fn run(
    head: &OutputHead,
    hidden: Tensor<2>,
    targets: Tensor<1, Int>,
    (options, asked): (LossOptions, Asked),
    upstream: Option<Tensor<1>>,
) -> [Vec<f64>; 2] {
    let hidden = hidden.require_grad();
    let loss = asked.read(head.loss_with(hidden.clone(), targets, &asked.of(options)));
    let total = match upstream {
        Some(upstream) => (loss.clone() * upstream).sum(),
        None => loss.clone().sum(),
    };
    [values(loss), all_gradients(head, &hidden, total)]
}

/// Rows that no computation survives, and a place for each.
fn poisoned(hidden: Tensor<2>, rows: &[usize]) -> Tensor<2> {
    let [_, width] = hidden.dims();
    rows.iter().enumerate().fold(hidden, |hidden, (i, &row)| match i % 3 {
        0 => hidden.slice_fill(row..row + 1, f64::NAN),
        1 => hidden.slice_fill(row..row + 1, f64::INFINITY),
        _ => hidden.slice_fill([row..row + 1, width - 1..width], f64::NEG_INFINITY),
    })
}

#[test]
fn tokens_that_do_not_count_are_as_if_removed() {
    const WITHOUT: [usize; 4] = [0, 3, 4, 7];
    let kept: Vec<i64> = (0..TOKENS as i64).filter(|n| !WITHOUT.contains(&(*n as usize))).collect();
    for device in cpus().map(Device::autodiff) {
        let on = (&device, DType::F64);
        let rows = Tensor::<1, Int>::from_data(kept.as_slice(), &device);
        for config in every_head(VOCAB) {
            let head = head(&config, on);
            let hidden = tensor([TOKENS, config.d_hidden], 1, on);
            let words = targets(TOKENS, VOCAB, &device);
            let upstream = tensor([TOKENS], 5, on);
            for (choice, asked) in every_choice() {
                let what = format!("{config:?}, options {choice}, {asked:?}, {device:?}");
                let is_vector = asked == Asked::Tokens;
                let head = head.at_temperature(temperature(choice));
                let small = match choice {
                    2 => {
                        let (ids, probs) = teacher(on);
                        let (ids, probs) = (ids.select(0, rows.clone()), probs.select(0, rows.clone()));
                        choices(on)[1].clone().with_teacher(ids, probs)
                    }
                    3 => choices(on)[1].clone().with_distributions(distributions(on).select(0, rows.clone())),
                    other => choices(on)[other].clone(),
                };
                let small = small.with_token_weights(weights(on).select(0, rows.clone()));
                let [want_loss, want] = run(
                    &head,
                    hidden.clone().select(0, rows.clone()),
                    words.clone().select(0, rows.clone()),
                    (small, asked),
                    is_vector.then(|| upstream.clone().select(0, rows.clone())),
                );

                // Two are ignored, whatever their weights, their teacher and their distribution; two have weight 0 and any target.
                let (mut given, mut weights) =
                    (words.to_data().iter::<i64>().collect::<Vec<_>>(), values(weights(on)));
                (given[0], given[4], given[3], given[7]) = (IGNORED, IGNORED, -3, 99);
                (weights[0], weights[4], weights[3], weights[7]) = (f64::NAN, -1.0, 0.0, 0.0);
                let mut options = choices(on)[choice].clone();
                if choice == 2 {
                    let (ids, probs) = teacher(on);
                    let mut ids: Vec<i64> = ids.into_data().iter::<i64>().collect();
                    let mut probs = values(probs);
                    for row in WITHOUT {
                        ids[3 * row..3 * row + 3].copy_from_slice(&[-1, 99, 99]);
                        probs[3 * row..3 * row + 3].copy_from_slice(&[f64::NAN, -1.0, 3.0]);
                    }
                    options = options
                        .with_teacher(ints(&ids, [TOKENS, 3], &device), floats(&probs, [TOKENS, 3], on));
                }
                if choice == 3 {
                    let mut rows = values(distributions(on));
                    WITHOUT.iter().for_each(|row| rows[row * VOCAB..(row + 1) * VOCAB].fill(f64::NAN));
                    options = options.with_distributions(floats(&rows, [TOKENS, VOCAB], on));
                }
                // One of two targets to ignore is nowhere.
                let options = options
                    .with_ignore_index(IGNORED)
                    .with_ignore_index(77)
                    .with_token_weights(floats(&weights, [TOKENS], on));
                let [loss, got] = run(
                    &head,
                    poisoned(hidden.clone(), &WITHOUT),
                    ints(&given, [TOKENS], &device),
                    (options, asked),
                    is_vector.then(|| upstream.clone()),
                );

                if is_vector {
                    let of_kept: Vec<f64> = kept.iter().map(|n| loss[*n as usize]).collect();
                    assert_close(&of_kept, &want_loss, 1e-13, &format!("token losses of {what}"));
                    assert!(WITHOUT.iter().all(|n| loss[*n] == 0.0), "{what}: {loss:?}");
                } else {
                    assert_close(&loss, &want_loss, 1e-13, &format!("loss of {what}"));
                }
                let (of_params, of_hidden) = got.split_at(got.len() - TOKENS * config.d_hidden);
                assert_close(of_params, &want[..of_params.len()], 1e-13, &format!("gradients of {what}"));
                let mut want_hidden = want[of_params.len()..].chunks(config.d_hidden);
                for (n, row) in of_hidden.chunks(config.d_hidden).enumerate() {
                    match WITHOUT.contains(&n) {
                        true => assert!(row.iter().all(|x| *x == 0.0), "{what}: {row:?} of token {n}"),
                        false => assert_close(row, want_hidden.next().unwrap(), 1e-13, &what),
                    }
                }
            }
        }
    }
}

#[test]
fn where_nothing_counts_the_sum_is_zero_the_mean_no_number_and_every_gradient_zero() {
    for device in cpus().map(Device::autodiff) {
        let on = (&device, DType::F32);
        for config in every_head(VOCAB) {
            let head = head(&config, on);
            let hidden = tensor([TOKENS, config.d_hidden], 1, on);
            let hidden = poisoned(hidden, &(0..TOKENS).collect::<Vec<_>>());
            let words = ints(&[IGNORED; TOKENS], [TOKENS], &device);
            for (choice, asked) in every_choice() {
                let what = format!("{config:?}, options {choice}, {asked:?}, {device:?}");
                let options = choices(on)[choice].clone().with_ignore_index(IGNORED);
                let [loss, gradients] = run(&head, hidden.clone(), words.clone(), (options, asked), None);
                match asked {
                    Asked::Value(Reduction::Mean) => assert!(loss[0].is_nan(), "{what}: {loss:?}"),
                    _ => assert!(loss.iter().all(|x| *x == 0.0), "{what}: {loss:?}"),
                }
                assert!(gradients.iter().all(|x| *x == 0.0), "{what}: {gradients:?}");
            }
        }
    }
}

/// Tokens of one sequence share a mask, so equal rows with equal targets have equal losses: those that count keep theirs.
#[test]
fn tokens_that_count_keep_their_masks() {
    // Enough latent features that two masks are never the same by chance.
    const WIDTH: usize = 40;
    const TIMES: usize = 4;
    // Of each sequence, which of its tokens count.
    let counts = [[true, false, true, true], [false, false, true, true], [true, true, false, true]];
    let on = (&ad(), DType::F64);
    let mixtures = [HeadConfig::mos(HIDDEN, WIDTH, VOCAB, 2), HeadConfig::moc(HIDDEN, WIDTH, VOCAB, 2)];
    for (config, time) in
        mixtures.iter().flat_map(|config| [TimeAxis::First, TimeAxis::Second].map(|time| (config, time)))
    {
        // Shape, and the token of a sequence at a time.
        let (shape, token): (_, fn(usize, usize) -> usize) = match time {
            TimeAxis::First => ([TIMES, 3], |sequence, time| time * 3 + sequence),
            TimeAxis::Second => ([3, TIMES], |sequence, time| sequence * TIMES + time),
        };
        let row = values(tensor([1, HIDDEN], 1, on));
        let (mut states, mut words) = (vec![f64::NAN; 3 * TIMES * HIDDEN], vec![IGNORED; 3 * TIMES]);
        let all = (0..3).flat_map(|sequence| (0..TIMES).map(move |time| (sequence, time)));
        for (sequence, time) in all.filter(|(sequence, time)| counts[*sequence][*time]) {
            let token = token(sequence, time);
            states[token * HIDDEN..(token + 1) * HIDDEN].copy_from_slice(&row);
            words[token] = 4;
        }
        let words = ints(&words, shape, on.0);
        // Room for all tokens, and for one: chunks find their rows of the mask.
        for (budget, choice, per_token) in [1 << 20, 1]
            .into_iter()
            .flat_map(|budget| [(budget, 0, false), (budget, 1, false), (budget, 0, true)])
        {
            let config = config.clone().with_latent_dropout(0.5, time).with_memory_budget(Some(budget));
            let head = head(&config, on).at_temperature(temperature(choice));
            let hidden = floats(&states, [shape[0], shape[1], HIDDEN], on).require_grad();
            let options = choices(on)[choice].clone().with_ignore_index(IGNORED).with_statistics(true);
            let options = options.with_reduction(Reduction::Sum).with_per_token(per_token);
            let made = head.loss_with(hidden.clone(), words.clone(), &options);
            let store = made.per_token.map_or(made.value, Tensor::sum).backward();
            let nll = values(made.statistics.expect("statistics").nll);
            let gradients = values(hidden.grad(&store).expect("a gradient"));
            let gradients: Vec<f64> = gradients.chunks(HIDDEN).map(|row| row[0]).collect();
            for (name, values) in [("nll", nll), ("gradient", gradients)] {
                let of_sequence = |sequence: usize| -> Vec<f64> {
                    let times = (0..TIMES).filter(|time| counts[sequence][*time]);
                    times.map(|time| values[token(sequence, time)]).collect()
                };
                let sequences = [0, 1, 2].map(of_sequence);
                let what = format!("{name} with {budget} bytes, {time:?}: {sequences:?}");
                for sequence in &sequences {
                    assert!(sequence.iter().all(|x| (x - sequence[0]).abs() < 1e-12), "{what}");
                }
                let [first, second, third] = sequences.map(|sequence| sequence[0]);
                assert!((first - second).abs() > 1e-9 && (first - third).abs() > 1e-9, "{what}");
            }
        }
    }
}

#[test]
fn class_weights_of_single_words_are_token_weights() {
    let on = (&ad(), DType::F64);
    // The class of word 3, the target of some tokens, does not count.
    let mut classes = values(tensor([VOCAB], 6, on).add_scalar(1.3));
    classes[3] = 0.0;
    let words = targets(TOKENS, VOCAB, on.0);
    assert!(words.to_data().iter::<i64>().any(|word| word == 3));
    let by_word: Vec<f64> = words.to_data().iter::<i64>().map(|word| classes[word as usize]).collect();
    let classes = floats(&classes, [VOCAB], on);
    let by_word = floats(&by_word, [TOKENS], on);
    for config in every_head(VOCAB) {
        let head = head(&config, on);
        let hidden = tensor([TOKENS, config.d_hidden], 1, on);
        for asked in ALL_ASKED {
            let run = |options: LossOptions| {
                let upstream = (asked == Asked::Tokens).then(|| tensor([TOKENS], 5, on));
                run(&head, hidden.clone(), words.clone(), (options, asked), upstream).concat()
            };
            let what = format!("{config:?}, {asked:?}");
            let want = run(LossOptions::new().with_token_weights(by_word.clone()));
            let got = run(LossOptions::new().with_class_weights(classes.clone()));
            assert_close(&got, &want, 1e-14, &format!("class weights of {what}"));
            let want = run(LossOptions::new().with_token_weights(by_word.clone() * weights(on)));
            let got =
                run(LossOptions::new().with_class_weights(classes.clone()).with_token_weights(weights(on)));
            assert_close(&got, &want, 1e-14, &format!("both weights of {what}"));
        }
    }
}

/// Weights of words, and one of them as many tokens' target.
fn classes(on: On<'_>) -> Tensor<1> {
    tensor([VOCAB], 6, on).add_scalar(1.3)
}

#[test]
fn class_weights_do_not_reach_the_padding() {
    let on = (&ad(), DType::F64);
    for config in [softmax(VOCAB), mos_plif(VOCAB)].map(|config| config.with_vocab_multiple(8)) {
        let head = head(&config, on);
        let hidden = tensor([TOKENS, config.d_hidden], 1, on);
        for options in choices(on).into_iter().take(3) {
            let options = options.with_reduction(Reduction::Sum);
            let value = |options: &LossOptions| {
                values(head.loss_with(hidden.clone(), targets(TOKENS, VOCAB, on.0), options).value)
            };
            let ones = options.clone().with_class_weights(Tensor::ones([VOCAB], on));
            assert_close(&value(&ones), &value(&options), 1e-13, &format!("{config:?}, {options:?}"));
        }
    }
}

#[test]
fn class_weights_leave_the_entropy_bonus_alone() {
    let on = (&ad(), DType::F64);
    let words = targets(TOKENS, VOCAB, on.0);
    let by_word = classes(on).select(0, words.clone());
    for config in all_heads(VOCAB) {
        let head = head(&config, on);
        let hidden = tensor([TOKENS, config.d_hidden], 1, on);
        let log_probs = head.forward(hidden.clone());
        let entropy = -(log_probs.clone().exp() * log_probs).sum();
        let want = (head.nll(hidden.clone(), words.clone()) * by_word.clone()).sum() - entropy * 0.7;
        let options = LossOptions::new().with_class_weights(classes(on)).with_entropy_bonus(0.7);
        let got = head.loss_with(hidden, words.clone(), &options.with_reduction(Reduction::Sum)).value;
        assert_close(&values(got), &values(want), 1e-12, &format!("{config:?}"));
    }
}

#[test]
fn values_of_tokens_take_any_upstream_gradient() {
    for device in cpus().map(Device::autodiff) {
        let on = (&device, DType::F64);
        let upstream = [-2.5, 0.0, 1.0, 1e3, -1e-3, 0.3, 7.0, -0.5];
        let words = targets(TOKENS, VOCAB, &device);
        for config in every_head(VOCAB) {
            let head = head(&config, on);
            let hidden = tensor([TOKENS, config.d_hidden], 1, on);
            for choice in 0..2 {
                let head = head.at_temperature(temperature(choice));
                let options = choices(on)[choice].clone();
                // Each token by itself, as a sum over one.
                let mut want = vec![];
                let mut of_hidden = vec![];
                for (n, factor) in upstream.iter().enumerate() {
                    let token = hidden.clone().slice(n..n + 1);
                    let options = (options.clone(), Asked::Value(Reduction::Sum));
                    let [_, gradients] = run(&head, token, words.clone().slice(n..n + 1), options, None);
                    let of_params = gradients.len() - config.d_hidden;
                    want.resize(of_params, 0.0);
                    want.iter_mut().zip(&gradients).for_each(|(sum, x)| *sum += factor * x);
                    of_hidden.extend(gradients[of_params..].iter().map(|x| factor * x));
                }
                want.extend(of_hidden);
                for statistics in [false, true] {
                    let options = (options.clone().with_statistics(statistics), Asked::Tokens);
                    let upstream = floats(&upstream, [TOKENS], on);
                    let [_, got] = run(&head, hidden.clone(), words.clone(), options, Some(upstream));
                    let what = format!("{config:?}, options {choice}, {statistics}, {device:?}");
                    assert_close(&got, &want, 1e-13, &what);
                }
            }
        }
    }
}

#[test]
fn a_value_is_the_same_whether_values_of_tokens_are_asked_for() {
    for device in cpus().map(Device::autodiff) {
        let on = (&device, DType::F64);
        for config in every_head(VOCAB) {
            let head = head(&config, on);
            for (choice, reduction) in
                (0..CHOICES).flat_map(|choice| [(choice, Reduction::Mean), (choice, Reduction::Sum)])
            {
                let head = head.at_temperature(temperature(choice));
                let options = choices(on)[choice].clone().with_ignore_index(2).with_reduction(reduction);
                let options = options.with_token_weights(weights(on));
                let [(want, _), (got, losses)] = [false, true].map(|per_token| {
                    let options = options.clone().with_per_token(per_token);
                    let hidden = tensor([TOKENS, config.d_hidden], 1, on).require_grad();
                    let words = targets(TOKENS, VOCAB, &device);
                    let Loss { value, per_token, .. } = head.loss_with(hidden.clone(), words, &options);
                    let made = [values(value.clone()), all_gradients(&head, &hidden, value)].concat();
                    (made, per_token.map(values))
                });
                let what = format!("{config:?}, options {choice}, {reduction:?}, {device:?}");
                assert_close(&got, &want, 1e-13, &what);
                if reduction == Reduction::Sum {
                    let sum: f64 = losses.expect("asked for").iter().sum();
                    assert_close(&[sum], &want[..1], 1e-13, &format!("sum of tokens, {what}"));
                }
            }
        }
    }
}

#[test]
fn gradients_reach_tracked_weights_of_tokens_that_count() {
    let on = (&ad(), DType::F64);
    for config in [&HeadConfig::mos(HIDDEN, EMBEDDING, VOCAB, 2), &adaptive_heads(VOCAB)[1]] {
        let head = head(config, on);
        let mut words: Vec<i64> = targets(TOKENS, VOCAB, on.0).into_data().iter::<i64>().collect();
        words[2] = IGNORED;
        let hidden = tensor([TOKENS, HIDDEN], 1, on);
        let head = head.at_temperature(temperature(1));
        let options = choices(on)[1].clone().with_ignore_index(IGNORED);
        let asked = |options: LossOptions, asked: Asked| {
            let words = ints(&words, [TOKENS], on.0);
            asked.read(head.loss_with(hidden.clone(), words, &asked.of(options)))
        };
        let losses = values(asked(options.clone(), Asked::Tokens));
        let given = values(weights(on));
        let total: f64 = given.iter().enumerate().filter(|(n, _)| *n != 2).map(|(_, weight)| weight).sum();
        let mean = losses.iter().zip(&given).map(|(loss, weight)| loss * weight).sum::<f64>() / total;
        for what in ALL_ASKED {
            let weights = weights(on).detach().require_grad();
            let loss = asked(options.clone().with_token_weights(weights.clone()), what);
            let got = values(weights.grad(&loss.sum().backward()).expect("a gradient of the weights"));
            let want = losses.iter().enumerate().map(|(n, loss)| match (n, what) {
                (2, _) => 0.0,
                (_, Asked::Value(Reduction::Mean)) => (loss - mean) / total,
                _ => *loss,
            });
            assert_close(&got, &want.collect::<Vec<_>>(), 1e-13, &format!("{what:?}"));
        }
    }
}

/// Statistics from log-probabilities, and `z` from the logits.
fn statistics_of(head: &OutputHead, hidden: Tensor<2>, words: &[i64], temperature: f64) -> [Vec<f64>; 5] {
    let rows = values(head.at_temperature(temperature).forward(hidden.clone()));
    let rows: Vec<&[f64]> = rows.chunks(VOCAB).collect();
    let best =
        |row: &&[f64]| (0..VOCAB).fold(0, |best, word| if row[word] > row[best] { word } else { best });
    let logits = Tensor::cat(head.logit_blocks(hidden.clone()).collect(), 0);
    let mapped = values(head.logit_map.forward(logits).div_scalar(temperature));
    let normalisers: Vec<f64> = mapped
        .chunks(VOCAB)
        .map(|row| {
            let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            max + row.iter().map(|x| (x - max).exp()).sum::<f64>().ln()
        })
        .collect();
    let components = normalisers.len() / rows.len();
    let prior = match &head.context {
        Context::MixtureOfSoftmaxes(_) | Context::DirectOutputConnection(_) => values(priors(head, hidden)),
        _ => vec![1.0; normalisers.len()],
    };
    let squares: Vec<f64> = normalisers.iter().zip(prior).map(|(lse, prior)| prior * lse * lse).collect();
    [
        rows.iter().zip(words).map(|(row, word)| -row[*word as usize]).collect(),
        rows.iter().map(|row| -row.iter().map(|x| x.exp() * x).sum::<f64>()).collect(),
        rows.iter().map(|row| best(row) as f64).collect(),
        rows.iter().map(|row| row[best(row)]).collect(),
        squares.chunks(components).map(|squares| squares.iter().sum()).collect(),
    ]
}

#[test]
fn statistics_are_those_of_the_log_probabilities() {
    for device in cpus() {
        for dtype in [DType::F32, DType::F64] {
            let on = (&device, dtype);
            let tolerance = if dtype == DType::F64 { 1e-12 } else { 2e-5 };
            for config in all_heads(VOCAB) {
                let head = head(&config, on);
                let hidden = tensor([TOKENS, config.d_hidden], 1, on);
                let words: Vec<i64> = targets(TOKENS, VOCAB, &device).into_data().iter::<i64>().collect();
                for choice in 0..CHOICES {
                    let what = format!("{config:?}, options {choice}, {device:?}");
                    let want = statistics_of(&head, hidden.clone(), &words, temperature(choice));
                    let head = head.at_temperature(temperature(choice));
                    // Every third token is ignored.
                    let given: Vec<i64> = words
                        .iter()
                        .enumerate()
                        .map(|(n, word)| if n % 3 == 2 { IGNORED } else { *word })
                        .collect();
                    for asked in ALL_ASKED {
                        let options = choices(on)[choice].clone().with_ignore_index(IGNORED);
                        let options = asked.of(options).with_statistics(true);
                        let words = ints(&given, [TOKENS], &device);
                        let made = head.loss_with(hidden.clone(), words, &options).statistics;
                        let made = made.expect("statistics");
                        let flags: Vec<bool> = made.counted.clone().into_data().iter::<bool>().collect();
                        assert_eq!(flags, (0..TOKENS).map(|n| n % 3 != 2).collect::<Vec<_>>(), "{what}");
                        let names = ["nll", "entropy", "argmax", "max_log_prob", "z_term"];
                        for ((name, got), want) in names.into_iter().zip(columns(made)).zip(&want) {
                            let counted = |(n, x): (usize, &f64)| if n % 3 == 2 { 0.0 } else { *x };
                            let want: Vec<f64> = want.iter().enumerate().map(counted).collect();
                            assert_close(&got, &want, tolerance, &format!("{name} of {what}"));
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn statistics_have_the_shape_of_the_targets() {
    let on = (&cpu(), DType::F32);
    let head = head(&mos(VOCAB), on);
    let hidden = || tensor([2, 3, HIDDEN], 1, on);
    let words = targets(6, VOCAB, on.0).reshape([2, 3]);
    let options = LossOptions::new().with_statistics(true);
    let made = head.loss_with(hidden(), words.clone(), &options).statistics.unwrap();
    assert_eq!([made.nll.dims(), made.entropy.dims(), made.z_term.dims()], [[2, 3]; 3]);
    assert_eq!([made.argmax.dims(), made.max_log_prob.dims(), made.counted.dims()], [[2, 3]; 3]);
    assert_close(&values(made.nll), &values(head.nll(hidden(), words)), 1e-6, "nll");

    // They are constants: a loss of them trains nothing.
    let on = (&ad(), DType::F32);
    let head = crate::support::head(&mos(VOCAB), on);
    let made = head.loss_with(tensor([6, HIDDEN], 1, on), targets(6, VOCAB, on.0), &options);
    let store = (made.value + made.statistics.unwrap().entropy.sum()).backward();
    let with: Vec<f64> = values(head.decoder.weight.as_ref().unwrap().val().grad(&store).unwrap());
    let made = head.loss_with(tensor([6, HIDDEN], 1, on), targets(6, VOCAB, on.0), &options);
    let store = made.value.backward();
    assert_eq!(with, values(head.decoder.weight.as_ref().unwrap().val().grad(&store).unwrap()));
}

#[test]
fn a_dense_target_is_a_teacher_that_lists_every_word() {
    let on = (&ad(), DType::F64);
    for config in every_head(VOCAB) {
        let head = head(&config, on).at_temperature(temperature(1));
        let hidden = || tensor([TOKENS, config.d_hidden], 1, on).require_grad();
        let rows = distributions(on);
        let ids: Vec<i64> = (0..TOKENS as i64 * 11).map(|i| (i * 4 + i / 11) % 11).collect();
        let ids = ints(&ids, [TOKENS, VOCAB], on.0);
        let run = |choice: LossOptions| {
            let (state, options) = (hidden(), choice.with_token_weights(weights(on)));
            let loss = head.loss_with(state.clone(), targets(TOKENS, VOCAB, on.0), &options).value;
            [values(loss.clone()), all_gradients(&head, &state, loss)].concat()
        };
        let want = run(choices(on)[3].clone());
        let got = run(choices(on)[1].clone().with_teacher(ids.clone(), rows.gather(1, ids)));
        assert_close(&got, &want, 1e-12, &format!("{config:?}"));
    }
}
