//! Losses of heads with clusters against the same losses composed of all log-probabilities, and what they tell of each token.

use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use highrank::{HeadConfig, LossOptions, OutputHead, Reduction};

use crate::adaptive::{MASKED, VOCAB, configs};
use crate::support::*;

const TOKENS: usize = 12;
const TOLERANCE: f64 = 1e-12;

/// Each head whole, and with masked words under a padded decoder.
fn heads(on: On<'_>) -> impl Iterator<Item = (HeadConfig, OutputHead)> {
    let masked = |config: HeadConfig| config.with_vocab_multiple(8).with_masked_words(MASKED.to_vec());
    let both = move |config: HeadConfig| [config.clone(), masked(config)];
    configs().into_iter().flat_map(both).map(move |config| (config.clone(), head(&config, on)))
}

/// The words that are not masked.
fn left(head: &OutputHead) -> Vec<usize> {
    (0..VOCAB).filter(|word| !head.masked_words().contains(word)).collect()
}

/// Unmasked words of all parts.
fn unmasked_targets(head: &OutputHead, device: &Device) -> Tensor<1, Int> {
    let left = left(head);
    let words: Vec<i64> = (0..TOKENS).map(|token| left[(token * 7 + 3) % left.len()] as i64).collect();
    ints(&words, [TOKENS], device)
}

/// Unmasked words of a teacher, `listed` a token, which leave `rest` of 1; one of them has probability 0.
fn teacher(head: &OutputHead, listed: usize, rest: f64) -> (Vec<usize>, Vec<f64>) {
    let left = left(head);
    let ids = (0..TOKENS * listed).map(|i| left[(i / listed * 5 + i % listed) % left.len()]).collect();
    let share = |i: usize| if listed > 2 && i % listed == 1 { 0.0 } else { (1 + i % 4) as f64 };
    let shares: Vec<f64> = (0..TOKENS * listed).map(share).collect();
    let probs = shares.chunks(listed).flat_map(|row| {
        let sum: f64 = row.iter().sum();
        row.iter().map(move |share| share / sum * (1.0 - rest))
    });
    (ids, probs.collect())
}

/// `q̃` over all words, by its definition.
fn dense(
    head: &OutputHead,
    targets: &Tensor<1, Int>,
    listed: Option<(usize, f64)>,
    epsilon: f64,
) -> Vec<f64> {
    let left = left(head);
    let words = integers(targets.clone());
    let mut rows = vec![0.0; TOKENS * VOCAB];
    for (token, row) in rows.chunks_mut(VOCAB).enumerate() {
        match listed {
            None => row[words[token] as usize] = 1.0,
            Some((listed, rest)) => {
                let (ids, probs) = teacher(head, listed, rest);
                let ids = &ids[token * listed..(token + 1) * listed];
                let others: Vec<usize> = left.iter().copied().filter(|word| !ids.contains(word)).collect();
                others.iter().for_each(|word| row[*word] = rest / others.len() as f64);
                ids.iter().zip(&probs[token * listed..]).for_each(|(word, p)| row[*word] = *p);
            }
        }
        for (word, q) in row.iter_mut().enumerate() {
            let even = if left.contains(&word) { epsilon / left.len() as f64 } else { 0.0 };
            *q = (1.0 - epsilon) * *q + even;
        }
    }
    rows
}

/// `−Σ_v q_v log P(v)` of every token, by all log-probabilities.
fn cross_entropies(head: &OutputHead, hidden: Tensor<2>, rows: &[f64], on: On<'_>) -> Tensor<1> {
    let none: Vec<bool> = rows.iter().map(|q| *q == 0.0).collect();
    let none = Tensor::from_data(TensorData::new(none, [TOKENS, VOCAB]), on.0);
    let log_probs = head.forward(hidden).mask_fill(none, 0.0);
    (log_probs * floats(rows, [TOKENS, VOCAB], on)).sum_dim(1).neg().reshape([TOKENS])
}

/// Of tokens 3, 7 and 11 the weight is 0.
fn weights(on: On<'_>) -> Tensor<1> {
    floats(&[0.5, 2.0, 1.25, 0.0].repeat(TOKENS / 4), [TOKENS], on)
}

/// What becomes of the tokens' losses, and whether they are asked for.
const SHAPES: [(Reduction, bool); 5] = [
    (Reduction::Mean, false),
    (Reduction::Sum, false),
    (Reduction::Divisor(7.0), false),
    (Reduction::Mean, true),
    (Reduction::Sum, true),
];

#[test]
fn losses_with_options_are_those_of_all_log_probabilities() {
    let on = (&ad(), DType::F64);
    for (config, head) in heads(on) {
        let targets = unmasked_targets(&head, on.0);
        let hidden = || tensor::<2>([TOKENS, config.d_hidden], 1, on).require_grad();
        // What a teacher lists and leaves, smoothing, the temperature, and whether the teacher says it of all words.
        let cases = [
            (None, 0.1, 1.0, false),
            (Some((1, 0.0)), 0.0, 1.0, false),
            (Some((4, 0.0)), 0.0, 1.0, false),
            (Some((3, 0.25)), 0.0, 1.3, false),
            (Some((5, 0.4)), 0.2, 0.7, false),
            (Some((4, 0.3)), 0.0, 1.0, true),
            (Some((4, 0.3)), 0.15, 1.2, true),
        ];
        for (listed, epsilon, temperature, is_dense) in cases {
            let what = format!("{config:?}, {listed:?}, {epsilon}, {temperature}, {is_dense}");
            let head = head.at_temperature(temperature);
            let mut options = LossOptions::new().with_label_smoothing(epsilon).with_statistics(is_dense);
            if let Some((count, rest)) = listed {
                options = match is_dense {
                    true => {
                        let mut given = dense(&head, &targets, listed, 0.0);
                        // Of a token that does not count.
                        given[3 * VOCAB..4 * VOCAB].fill(f64::NAN);
                        options.with_distributions(floats(&given, [TOKENS, VOCAB], on))
                    }
                    false => {
                        let (ids, probs) = teacher(&head, count, rest);
                        let ids: Vec<i64> = ids.into_iter().map(|word| word as i64).collect();
                        let shape = [TOKENS, count];
                        options.with_teacher(ints(&ids, shape, on.0), floats(&probs, shape, on))
                    }
                };
            }
            let rows = dense(&head, &targets, listed, epsilon);
            for (reduction, per_token) in SHAPES {
                let options = options.clone().with_token_weights(weights(on)).with_reduction(reduction);
                let options = options.with_per_token(per_token);
                let (state, again) = (hidden(), hidden());
                let made = head.loss_with(state.clone(), targets.clone(), &options);
                let losses = cross_entropies(&head, again.clone(), &rows, on) * weights(on);
                let want = match reduction {
                    Reduction::Mean => losses.clone().sum() / weights(on).sum(),
                    Reduction::Sum => losses.clone().sum(),
                    // Burn differentiates a division by a number in f32.
                    Reduction::Divisor(n) => losses.clone().sum() * n.recip(),
                };
                assert_close(&values(made.value.clone()), &values(want.clone()), TOLERANCE, &what);
                if let Some(statistics) = made.statistics {
                    // Of the target words.
                    let counted = weights(on).greater_elem(0.0).float().cast(DType::F64);
                    let words = dense(&head, &targets, None, 0.0);
                    let nll = cross_entropies(&head, again.clone(), &words, on) * counted;
                    assert_close(&values(statistics.nll), &values(nll), TOLERANCE, &what);
                }
                let (made, want) = match made.per_token {
                    None => (made.value, want),
                    Some(tokens) => {
                        assert_close(&values(tokens.clone()), &values(losses.clone()), TOLERANCE, &what);
                        (Tensor::cat(vec![made.value, tokens], 0), Tensor::cat(vec![want, losses], 0))
                    }
                };
                let upstream: Vec<f64> = (0..made.dims()[0]).map(|i| 1.0 - 0.3 * i as f64).collect();
                let upstream = floats(&upstream, made.dims(), on);
                let made = all_gradients(&head, &state, (made * upstream.clone()).sum());
                let want = all_gradients(&head, &again, (want * upstream).sum());
                assert_close(&made, &want, TOLERANCE, &format!("gradients, {what}"));
            }
        }
    }
}

#[test]
fn statistics_describe_the_distribution_of_all_words() {
    let on = (&ad(), DType::F64);
    for (config, head) in heads(on) {
        let words = integers(unmasked_targets(&head, on.0));
        let clean = tensor::<2>([TOKENS, config.d_hidden], 1, on);
        let dirty = clean.clone().slice_fill(0..1, f64::NAN).reshape([3, 4, config.d_hidden]);
        let given = ints(&[&[-100][..], &words[1..]].concat(), [3, 4], on.0);
        let plain = LossOptions::new().with_ignore_index(-100).with_statistics(true);
        for options in [plain.clone(), plain.with_label_smoothing(0.1)] {
            let hot = head.at_temperature(1.2);
            let made = hot.loss_with(dirty.clone(), given.clone(), &options).statistics.unwrap();
            assert_eq!(made.nll.dims(), [3, 4]);
            let rows = values(hot.forward(clean.clone()));
            let argmax = integers(made.argmax);
            let counted: Vec<bool> = made.counted.into_data().iter::<bool>().collect();
            let made = [made.nll, made.entropy, made.max_log_prob].map(values);
            for (token, row) in rows.chunks(VOCAB).enumerate() {
                let best = (0..VOCAB).rev().max_by(|a, b| row[*a].total_cmp(&row[*b])).unwrap();
                let entropy: f64 = row.iter().filter(|x| x.is_finite()).map(|x| -x.exp() * x).sum();
                let (want, word) = match token {
                    0 => ([0.0; 3], 0),
                    _ => ([-row[words[token] as usize], entropy, row[best]], best as i64),
                };
                let got = made.each_ref().map(|values| values[token]);
                assert_close(&got, &want, TOLERANCE, &format!("{config:?}"));
                assert_eq!((argmax[token], counted[token]), (word, token != 0));
            }
        }
        // A target that is masked.
        if let [.., masked] = head.masked_words() {
            let words = ints(&[*masked as i64], [1], on.0);
            let options = LossOptions::new().with_statistics(true);
            let made = head.loss_with(clean.narrow(0, 1, 1), words, &options).statistics.unwrap();
            assert_eq!(values(made.nll), [f64::INFINITY]);
        }
    }
}

#[test]
fn what_is_ignored_may_be_a_word_of_a_part() {
    let on = (&ad(), DType::F64);
    for config in configs() {
        let head = head(&config, on);
        let hidden = tensor::<2>([6, config.d_hidden], 1, on);
        let kept = hidden.clone().select(0, ints(&[0, 2, 4, 5], [4], on.0));
        let want = values(head.loss(kept, ints(&[2, 17, 3, 22], [4], on.0)));
        // 10 is a word of a cluster, and 5 the head cluster's word for the second one.
        for ignored in [-100, 10, 5, 99] {
            let dirty = hidden.clone().slice_fill(1..2, f64::NAN).detach().require_grad();
            let words = ints(&[2, ignored, 17, ignored, 3, 22], [6], on.0);
            let options = LossOptions::new().with_ignore_index(ignored);
            let made = head.loss_with(dirty.clone(), words, &options).value;
            assert_close(&values(made.clone()), &want, TOLERANCE, &format!("{ignored} is ignored"));
            let gradient = values(dirty.grad(&made.backward()).unwrap());
            let of_ignored = &gradient[config.d_hidden..2 * config.d_hidden];
            assert!(gradient.iter().all(|x| x.is_finite()) && of_ignored.iter().all(|x| *x == 0.0));
        }
    }
}

#[test]
fn a_tail_without_tokens_leaves_a_first_token_of_nan_alone() {
    let on = (&ad(), DType::F64);
    for (config, head) in heads(on) {
        let dirty = tensor::<2>([2, config.d_hidden], 1, on).slice_fill(0..1, f64::NAN);
        let dirty = dirty.detach().require_grad();
        for epsilon in [0.0, 0.1] {
            let options = LossOptions::new().with_ignore_index(-1).with_label_smoothing(epsilon);
            let made = head.loss_with(dirty.clone(), ints(&[-1, 2], [2], on.0), &options).value;
            let gradients = all_gradients(&head, &dirty, made);
            assert!(gradients.iter().all(|x| x.is_finite()), "{gradients:?}");
        }
    }
}

#[test]
fn a_tracked_teacher_is_a_constant() {
    let on = (&ad(), DType::F64);
    let head = head(&configs()[0], on);
    let probs = Tensor::<2>::full([2, 1], 0.5, on).require_grad();
    let options = LossOptions::new().with_teacher(ints(&[0, 0], [2, 1], on.0), probs.clone());
    let hidden = tensor::<2>([2, EMBEDDING], 1, on);
    let loss = head.loss_with(hidden, targets(2, VOCAB, on.0), &options).value;
    assert!(probs.grad(&loss.backward()).is_none());
}
