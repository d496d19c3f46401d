//! Losses with options against the same losses composed of all log-probabilities, and what they tell of each token.

use burn::module::{ModuleVisitor, Param};
use burn::tensor::{Gradients, TensorData};

use super::*;
use crate::Reduction;

const N: usize = 12;
/// All of the cluster 4 .. 9, one word of the shortlist and one of another cluster.
const MASKED: [usize; 7] = [1, 4, 5, 6, 7, 8, 10];

/// Each head whole, and with masked words under a padded decoder.
fn heads(device: &Device) -> Vec<OutputHead> {
    let masked = |config: HeadConfig| config.with_vocab_multiple(8).with_masked_words(MASKED.to_vec());
    let both = |config: HeadConfig| [config.clone(), masked(config)].map(|config| wide(&config, device));
    configs().into_iter().flat_map(both).collect()
}

fn floats<const D: usize>(values: Vec<f64>, shape: [usize; D], device: &Device) -> Tensor<D> {
    Tensor::from_data(TensorData::new(values, shape), (device, DType::F64))
}

/// Unmasked words of all parts.
fn unmasked_targets(head: &OutputHead, device: &Device) -> Tensor<1, Int> {
    let left: Vec<i64> =
        (0..V as i64).filter(|word| !head.masked_words().contains(&(*word as usize))).collect();
    let words: Vec<i64> = (0..N).map(|token| left[(token * 7 + 3) % left.len()]).collect();
    Tensor::from_data(words.as_slice(), device)
}

/// Unmasked words of a teacher, `listed` a token, which leave `rest` of 1; one of them has probability 0.
fn teacher(head: &OutputHead, listed: usize, rest: f64) -> (Vec<usize>, Vec<f64>) {
    let left: Vec<usize> = (0..V).filter(|word| !head.masked_words().contains(word)).collect();
    let ids = (0..N * listed).map(|i| left[(i / listed * 5 + i % listed) % left.len()]).collect();
    let share = |i: usize| if listed > 2 && i % listed == 1 { 0.0 } else { (1 + i % 4) as f64 };
    let shares: Vec<f64> = (0..N * listed).map(share).collect();
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
    let is_masked = |word: usize| head.masked_words().contains(&word);
    let count = (V - head.masked_words().len()) as f64;
    let words: Vec<i64> = targets.to_data().iter::<i64>().collect();
    let mut rows = vec![0.0; N * V];
    for (token, row) in rows.chunks_mut(V).enumerate() {
        match listed {
            None => row[words[token] as usize] = 1.0,
            Some((listed, rest)) => {
                let (ids, probs) = teacher(head, listed, rest);
                let ids = &ids[token * listed..(token + 1) * listed];
                let others: Vec<usize> =
                    (0..V).filter(|word| !is_masked(*word) && !ids.contains(word)).collect();
                others.iter().for_each(|word| row[*word] = rest / others.len() as f64);
                ids.iter().zip(&probs[token * listed..]).for_each(|(word, p)| row[*word] = *p);
            }
        }
        for (word, q) in row.iter_mut().enumerate() {
            *q = (1.0 - epsilon) * *q + if is_masked(word) { 0.0 } else { epsilon / count };
        }
    }
    rows
}

/// `−Σ_v q_v log P(v)` of every token, by all log-probabilities.
fn cross_entropies(head: &OutputHead, hidden: Tensor<2>, rows: Vec<f64>) -> Tensor<1> {
    let log_probs = head.forward(hidden);
    let device = log_probs.device();
    let none: Vec<bool> = rows.iter().map(|q| *q == 0.0).collect();
    let none = Tensor::from_data(TensorData::new(none, [N, V]), &device);
    let losses = (log_probs.mask_fill(none, 0.0) * floats(rows, [N, V], &device)).sum_dim(1).neg();
    losses.reshape([N])
}

/// Gradients of all parameters and of the hidden states.
fn all_gradients(head: &OutputHead, hidden: &Tensor<2>, gradients: &Gradients) -> Vec<Vec<f64>> {
    struct All<'a>(&'a Gradients, Vec<Vec<f64>>);
    impl ModuleVisitor for All<'_> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            // Those of masks are no parameters.
            if param.val().is_require_grad() {
                self.1.push(values(param.val().grad(self.0).expect("every parameter has a gradient")));
            }
        }
    }
    let mut all = All(gradients, vec![values(hidden.grad(gradients).unwrap())]);
    burn::module::Module::visit(head, &mut all);
    all.1
}

/// Twice the same hidden states, with a gradient each. Drawn once: other tests draw from the same numbers meanwhile.
fn tracked(device: &Device) -> (Tensor<2>, Tensor<2>) {
    let state = hidden(N, device).detach();
    (state.clone().require_grad(), state.require_grad())
}

/// Of tokens 3, 7 and 11 the weight is 0.
fn weights(device: &Device) -> Tensor<1> {
    floats((0..N).map(|token| [0.5, 2.0, 1.25, 0.0][token % 4]).collect(), [N], device)
}

/// What becomes of the tokens' losses, and whether they are asked for.
const SHAPES: [(Reduction, bool); 4] =
    [(Reduction::Mean, false), (Reduction::Sum, false), (Reduction::Mean, true), (Reduction::Sum, true)];

/// The value of weighted losses by a reduction.
fn reduced(losses: Tensor<1>, reduction: Reduction, device: &Device) -> Tensor<1> {
    match reduction {
        Reduction::Mean => losses.sum() / weights(device).sum(),
        Reduction::Sum => losses.sum(),
    }
}

#[test]
fn losses_with_options_are_those_of_all_log_probabilities() {
    let device = Device::flex().autodiff();
    for head in heads(&device) {
        let targets = unmasked_targets(&head, &device);
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
            let head = head.at_temperature(temperature);
            let mut options = LossOptions::new().with_label_smoothing(epsilon).with_statistics(is_dense);
            if let Some((count, rest)) = listed {
                options = match is_dense {
                    true => {
                        let mut given = dense(&head, &targets, listed, 0.0);
                        // Of a token that does not count.
                        given[3 * V..4 * V].fill(f64::NAN);
                        options.with_distributions(floats(given, [N, V], &device))
                    }
                    false => {
                        let (ids, probs) = teacher(&head, count, rest);
                        let ids: Vec<i64> = ids.into_iter().map(|word| word as i64).collect();
                        let ids = Tensor::<2, Int>::from_data(TensorData::new(ids, [N, count]), &device);
                        options.with_teacher(ids, floats(probs, [N, count], &device))
                    }
                };
            }
            let rows = dense(&head, &targets, listed, epsilon);
            for (reduction, per_token) in SHAPES {
                let options = options.clone().with_token_weights(weights(&device)).with_reduction(reduction);
                let options = options.with_per_token(per_token);
                let (state, again) = tracked(&device);
                let made = head.loss_with(state.clone(), targets.clone(), &options);
                let losses = cross_entropies(&head, again.clone(), rows.clone()) * weights(&device);
                let want = reduced(losses.clone(), reduction, &device);
                assert_close(&values(made.value.clone()), &values(want.clone()));
                if let Some(statistics) = made.statistics {
                    // Of the target words.
                    let counted = weights(&device).greater_elem(0.0).float().cast(DType::F64);
                    let words = dense(&head, &targets, None, 0.0);
                    let nll = cross_entropies(&head, again.clone(), words) * counted;
                    assert_close(&values(statistics.nll), &values(nll));
                }
                let (made, want) = match made.per_token {
                    None => (made.value, want),
                    Some(tokens) => {
                        assert_close(&values(tokens.clone()), &values(losses.clone()));
                        (Tensor::cat(vec![made.value, tokens], 0), Tensor::cat(vec![want, losses], 0))
                    }
                };
                let upstream =
                    floats((0..made.dims()[0]).map(|i| 1.0 - 0.3 * i as f64).collect(), made.dims(), &device);
                let made = (made * upstream.clone()).sum().backward();
                let want = (want * upstream).sum().backward();
                let (made, want) = (all_gradients(&head, &state, &made), all_gradients(&head, &again, &want));
                assert_eq!(made.len(), want.len());
                made.iter().zip(&want).for_each(|(made, want)| assert_close(made, want));
            }
        }
        let rows = Tensor::<2>::zeros([N, 7], (&device, DType::F64));
        let options = LossOptions::new().with_distributions(rows);
        let error = head.try_loss_with(hidden(N, &device), targets, &options).unwrap_err();
        assert!(error.to_string().contains("[12, 7], expected [12, 23]"), "{error}");
    }
}

#[test]
fn statistics_describe_the_distribution_of_all_words() {
    let device = Device::flex().autodiff();
    for head in heads(&device) {
        let words = unmasked_targets(&head, &device);
        let clean = hidden(N, &device);
        let dirty =
            clean.clone().slice_assign([0..1, 0..H], Tensor::full([1, H], f64::NAN, (&device, DType::F64)));
        let mut given: Vec<i64> = words.to_data().iter().collect();
        given[0] = -100;
        let given = Tensor::<2, Int>::from_data(TensorData::new(given, [3, 4]), &device);
        let plain = LossOptions::new().with_ignore_index(-100);
        for options in [plain.clone(), plain.with_label_smoothing(0.1)] {
            let made = head.at_temperature(1.2).loss_with(
                dirty.clone().reshape([3, 4, H]),
                given.clone(),
                &options.with_statistics(true),
            );
            let made = made.statistics.unwrap();
            assert_eq!(made.nll.dims(), [3, 4]);
            let rows = values(head.at_temperature(1.2).forward(clean.clone()));
            let words: Vec<i64> = words.to_data().iter().collect();
            let argmax: Vec<i64> = made.argmax.into_data().iter().collect();
            let counted: Vec<bool> = made.counted.into_data().iter().collect();
            let made = [made.nll, made.entropy, made.max_log_prob].map(values);
            for (token, row) in rows.chunks(V).enumerate() {
                let best = (0..V).rev().max_by(|a, b| row[*a].total_cmp(&row[*b])).unwrap();
                let entropy: f64 = row.iter().filter(|x| x.is_finite()).map(|x| -x.exp() * x).sum();
                let mut want = [-row[words[token] as usize], entropy, row[best]];
                if token == 0 {
                    want = [0.0; 3];
                }
                assert_close(&made.each_ref().map(|values| values[token]), &want);
                assert_eq!(argmax[token], if token == 0 { 0 } else { best as i64 });
                assert_eq!(counted[token], token != 0);
            }
        }
        // A target that is masked.
        if let [.., masked] = head.masked_words() {
            let words = Tensor::<1, Int>::full([1], *masked as i64, &device);
            let options = LossOptions::new().with_statistics(true);
            let made = head.loss_with(clean.narrow(0, 1, 1), words, &options).statistics.unwrap();
            assert_eq!(values(made.nll), [f64::INFINITY]);
        }
    }
}

#[test]
fn a_tail_without_tokens_leaves_a_first_token_of_nan_alone() {
    let device = Device::flex().autodiff();
    for head in heads(&device) {
        let dirty = hidden(2, &device)
            .slice_assign([0..1, 0..H], Tensor::full([1, H], f64::NAN, (&device, DType::F64)))
            .detach()
            .require_grad();
        for epsilon in [0.0, 0.1] {
            let options = LossOptions::new().with_ignore_index(-1).with_label_smoothing(epsilon);
            let words = Tensor::<1, Int>::from_data([-1, 2], &device);
            let made = head.loss_with(dirty.clone(), words, &options).value;
            let gradients = all_gradients(&head, &dirty, &made.backward());
            assert!(gradients.iter().flatten().all(|x| x.is_finite()), "{gradients:?}");
        }
    }
}

#[test]
fn a_wrong_teacher_is_refused() {
    let device = Device::flex();
    let head = wide(&configs()[0], &device);
    let refused = |ids: [[i64; 2]; 2], probs: [[f64; 2]; 2]| {
        let ids = Tensor::<2, Int>::from_data(ids, &device);
        let options = LossOptions::new().with_teacher(ids, Tensor::from_data(probs, (&device, DType::F64)));
        head.try_loss_with(hidden(2, &device), targets(2, &device), &options).unwrap_err()
    };
    let halves = [[0.5, 0.5], [0.5, 0.5]];
    let word = |word| HeadError::TeacherWord { word, token: 1, vocab: V };
    assert_eq!(refused([[3, 17], [4, 23]], halves), word(23));
    assert_eq!(refused([[3, 17], [20, 20]], halves), word(20));
    let error = refused([[3, 17], [4, 20]], [[0.5, 0.5], [0.75, 0.5]]);
    assert_eq!(error, HeadError::TeacherRow { token: 1, sum: 1.25, least: 0.5 });
}

#[test]
fn a_tracked_teacher_is_a_constant() {
    let device = Device::flex().autodiff();
    let head = wide(&configs()[0], &device);
    let probs = Tensor::<2>::full([2, 1], 0.5, (&device, DType::F64)).require_grad();
    let options = LossOptions::new().with_teacher(Tensor::<2, Int>::zeros([2, 1], &device), probs.clone());
    let gradients = head.loss_with(hidden(2, &device), targets(2, &device), &options).value.backward();
    assert!(probs.grad(&gradients).is_none());
}
