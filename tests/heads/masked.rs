//! Masked words on every path: the head without them, gradients of exactly 0, and no number that is none.

use burn::module::Param;
use burn::optim::decay::WeightDecayConfig;
use burn::optim::{AdamWConfig, GradientsParams, ModuleOptimizer, SgdConfig};
use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use highrank::context::Context;
use highrank::{BeamSearch, HeadConfig, LiveHypotheses, LossOptions, OutputHead, Reduction, Sampling};

use crate::support::*;

const VOCAB: usize = 13;
const MASKED: [usize; 4] = [0, 5, 6, 12];
const LEFT: usize = VOCAB - MASKED.len();
const TOKENS: usize = 6;

fn is_masked(word: usize) -> bool {
    MASKED.contains(&word)
}

/// The unmasked words.
fn kept() -> Vec<i64> {
    (0..VOCAB).filter(|word| !is_masked(*word)).map(|word| word as i64).collect()
}

/// How words are masked.
#[derive(Debug, Clone, Copy, PartialEq)]
enum By {
    /// By a bias of −∞, which is a parameter.
    Bias,
    /// By the head's configuration.
    Config,
}

/// A head with masked words, and the one over the other words alone, with the same parameters.
fn heads(config: &HeadConfig, by: By, on: On<'_>) -> [OutputHead; 2] {
    let full = match by {
        By::Bias => head(config, on),
        By::Config => head(&config.clone().with_masked_words(MASKED.to_vec()), on),
    };
    let small = with_words(&full, config, &kept());
    [if by == By::Bias { mask_by_bias(full, &MASKED) } else { full }, small]
}

/// Every head with either way to mask, on every device; in small chunks as well.
fn everywhere(mut check: impl FnMut(&HeadConfig, By, On<'_>)) {
    for device in cpus().map(Device::autodiff) {
        for (i, config) in all_heads(VOCAB).into_iter().enumerate() {
            let budget = if i % 2 == 0 { 1 } else { 1 << 20 };
            for by in [By::Bias, By::Config] {
                check(&config.clone().with_memory_budget(Some(budget)), by, (&device, DType::F64));
            }
        }
    }
}

/// Unmasked targets, as words and as places among the unmasked words.
fn words(device: &Device) -> [Tensor<1, Int>; 2] {
    let places: Vec<i64> = (0..TOKENS).map(|n| (n * 5 % LEFT) as i64).collect();
    let words: Vec<i64> = places.iter().map(|place| kept()[*place as usize]).collect();
    [words, places].map(|words| Tensor::from_data(words.as_slice(), device))
}

/// A teacher of three words, of which the full head's third is masked; the rest goes to the words that are left.
fn teachers(on: On<'_>) -> [(Tensor<2, Int>, Tensor<2>); 2] {
    let (mut full, mut small) = ((vec![], vec![]), (vec![], vec![]));
    for n in 0..TOKENS {
        let places = [n % LEFT, (n + 4) % LEFT];
        full.0.extend(places.map(|place| kept()[place]));
        full.0.push(MASKED[n % MASKED.len()] as i64);
        full.1.extend([0.5, 0.375, 0.0]);
        small.0.extend(places.map(|place| place as i64));
        small.1.extend([0.5, 0.375]);
    }
    let make = |(ids, probs): (Vec<i64>, Vec<f64>)| {
        let shape = [TOKENS, ids.len() / TOKENS];
        let probs = Tensor::from_data(TensorData::new(probs, shape), on);
        (Tensor::from_data(TensorData::new(ids, shape), on.0), probs)
    };
    [make(full), make(small)]
}

/// Gradients of the decoder's matrix and bias, those of all other parameters, and that of the hidden state. Gates of masked words
/// are left out, for which they must be 0.
fn gradients(head: &OutputHead, hidden: &Tensor<2>, loss: Tensor<1>) -> [Vec<f64>; 3] {
    let store = loss.backward();
    // The small head has no gates of masked words.
    let frequent = match &head.context {
        Context::Mixtape(mixtape) if head.decoder.vocab == VOCAB => mixtape.frequent,
        _ => 0,
    };
    let of = |parameters: Vec<Parameter>| {
        let mut kept: Vec<f64> = vec![];
        for (_, gradient) in parameters {
            let gradient = gradient.expect("a gradient of each parameter");
            let is_of_gates =
                matches!(gradient.shape()[..], [rows, _] if frequent > 0 && rows == frequent + 1);
            let of_word = *gradient.shape().last().expect("a dimension");
            let numbers: Vec<f64> = gradient.iter::<f64>().collect();
            for (word, row) in numbers.chunks(of_word).enumerate() {
                match is_of_gates && word < frequent && is_masked(word) {
                    true => assert!(row.iter().all(|g| *g == 0.0), "the gate of word {word}"),
                    false => kept.extend(row),
                }
            }
        }
        kept
    };
    let decoder = of(parameters(&head.decoder, Some(&store)));
    let of_context = parameters(&head.context, Some(&store)).into_iter();
    let others = of(of_context.chain(parameters(&head.logit_map, Some(&store))).collect());
    let hidden = values(hidden.grad(&store).expect("a gradient of the hidden state"));
    [decoder, others, hidden]
}

/// Checks a loss and its gradients against those of the head without the masked words.
fn compare(
    [full, small]: &[OutputHead; 2],
    width: usize,
    on: On<'_>,
    what: &str,
    loss: impl Fn(&OutputHead, Tensor<2>, bool) -> Tensor<1>,
) {
    let run = |head: &OutputHead, is_full: bool| {
        let hidden = tensor([TOKENS, width], 1, on).require_grad();
        let loss = loss(head, hidden.clone(), is_full);
        (values(loss.clone()), gradients(head, &hidden, loss.sum()))
    };
    let (loss, [decoder, others, hidden]) = run(full, true);
    let (want_loss, [want_decoder, want_others, want_hidden]) = run(small, false);
    assert_close(&loss, &want_loss, 1e-12, &format!("loss of {what}"));
    assert_close(&others, &want_others, 1e-12, &format!("gradients of {what}"));
    assert_close(&hidden, &want_hidden, 1e-12, &format!("gradients of hidden states, {what}"));
    let (matrix, bias) = decoder.split_at(VOCAB * EMBEDDING);
    let rows = matrix.chunks(EMBEDDING).zip(bias).enumerate();
    let mut left = (vec![], vec![]);
    for (word, (row, bias)) in rows {
        match is_masked(word) {
            true => assert!(row.iter().chain([bias]).all(|x| *x == 0.0), "{what}: {row:?}, {bias} of {word}"),
            false => {
                left.0.extend_from_slice(row);
                left.1.push(*bias);
            }
        }
    }
    assert_close(&[left.0, left.1].concat(), &want_decoder, 1e-12, &format!("decoder of {what}"));
}

#[test]
fn every_loss_is_that_of_the_head_without_the_words() {
    everywhere(|config, by, on| {
        let heads = heads(config, by, on);
        let [words, places] = words(on.0);
        let [full_teacher, small_teacher] = teachers(on);
        let check = |name: &str, loss: &dyn Fn(&OutputHead, Tensor<2>, bool) -> Tensor<1>| {
            compare(&heads, config.d_hidden, on, &format!("{name}, {config:?}, {by:?}"), loss);
        };
        let targets = |is_full: bool| if is_full { words.clone() } else { places.clone() };
        let upstream = || tensor([TOKENS], 2, on);
        check("nll", &|head, hidden, is_full| head.nll(hidden, targets(is_full)) * upstream());
        check("mean", &|head, hidden, is_full| head.loss(hidden, targets(is_full)));
        let all = || LossOptions::new().with_label_smoothing(0.2).with_z_loss(0.05);
        // Options at another temperature.
        let loss_with = |head: &OutputHead, hidden: Tensor<2>, is_full: bool, options: &LossOptions| {
            head.at_temperature(0.8).loss_with(hidden, targets(is_full), options).value
        };
        for reduction in [Reduction::Mean, Reduction::Sum] {
            let options = all().with_reduction(reduction).with_statistics(true);
            check("loss with options", &|head, hidden, is_full| loss_with(head, hidden, is_full, &options));
            check("teacher", &|head, hidden, is_full| {
                let (ids, probs) = if is_full { full_teacher.clone() } else { small_teacher.clone() };
                loss_with(head, hidden, is_full, &options.clone().with_teacher(ids, probs))
            });
        }
        let distributions = |is_full: bool| {
            let left = tensor([TOKENS, LEFT], 4, on).add_scalar(1.0);
            let left = values(left.clone() / left.sum_dim(1));
            let of_word = |word: i64| kept().iter().position(|kept| *kept == word);
            let rows: Vec<f64> = (0..TOKENS * VOCAB)
                .map(|i| of_word((i % VOCAB) as i64).map_or(0.0, |place| left[i / VOCAB * LEFT + place]))
                .collect();
            match is_full {
                true => Tensor::<2>::from_data(TensorData::new(rows, [TOKENS, VOCAB]), on),
                false => Tensor::from_data(TensorData::new(left, [TOKENS, LEFT]), on),
            }
        };
        check("distributions", &|head, hidden, is_full| {
            let options = LossOptions::new().with_distributions(distributions(is_full));
            head.loss_with(hidden, targets(is_full), &options).value
        });
        check("distributions with options", &|head, hidden, is_full| {
            loss_with(head, hidden, is_full, &all().with_distributions(distributions(is_full)))
        });
        check("composed", &|head, hidden, is_full| {
            let log_probs = head.forward(hidden);
            -log_probs.gather(1, targets(is_full).reshape([TOKENS, 1])).squeeze_dim::<1>(1) * upstream()
        });
    });
}

#[test]
fn statistics_are_those_of_the_head_without_the_words() {
    everywhere(|config, by, on| {
        let [full, small] = heads(config, by, on);
        let [words, places] = words(on.0);
        let hidden = || tensor([TOKENS, config.d_hidden], 1, on);
        let options = LossOptions::new().with_statistics(true);
        let got = full.loss_with(hidden(), words, &options).statistics.unwrap();
        let want = small.loss_with(hidden(), places, &options).statistics.unwrap();
        let what = format!("{config:?}, {by:?}");
        for (got, want) in [
            (got.nll, want.nll),
            (got.entropy, want.entropy),
            (got.max_log_prob, want.max_log_prob),
            (got.z_term, want.z_term),
        ] {
            assert_close(&values(got), &values(want), 1e-12, &what);
        }
        let best: Vec<i64> = integers(want.argmax).iter().map(|place| kept()[*place as usize]).collect();
        assert_eq!(integers(got.argmax), best, "{what}");
    });
}

#[test]
fn predictions_are_those_of_the_head_without_the_words() {
    everywhere(|config, by, on| {
        let [full, small] = heads(config, by, on);
        let hidden = || tensor([TOKENS, config.d_hidden], 1, on);
        let what = format!("{config:?}, {by:?}");
        let rows_of = |head: &OutputHead| {
            let log_probs = [1.0, 0.7].map(|temperature| head.at_temperature(temperature).forward(hidden()));
            log_probs
                .into_iter()
                .chain(head.logit_blocks(hidden()))
                .chain(head.log_prob_blocks(hidden()))
                .flat_map(values)
                .collect::<Vec<_>>()
        };
        for (row, want) in rows_of(&full).chunks(VOCAB).zip(rows_of(&small).chunks(LEFT)) {
            assert!(MASKED.iter().all(|word| row[*word] == f64::NEG_INFINITY), "{what}: {row:?}");
            let left: Vec<f64> = kept().iter().map(|word| row[*word as usize]).collect();
            assert_close(&left, want, 1e-12, &format!("log-probabilities and logits of {what}"));
        }

        let (got, want) = (full.top_k(hidden(), LEFT), small.top_k(hidden(), LEFT));
        let want_words: Vec<i64> = integers(want.words).iter().map(|place| kept()[*place as usize]).collect();
        assert_eq!(integers(got.words), want_words, "{what}");
        assert_close(&values(got.log_probs), &values(want.log_probs), 1e-12, &what);
        let all = integers(full.top_k(hidden(), VOCAB).words);
        let masked: Vec<i64> = MASKED.iter().map(|word| *word as i64).collect();
        assert!(all.chunks(VOCAB).all(|row| row[LEFT..] == masked), "{what}: {all:?}");

        let kinds = [
            Sampling::default(),
            Sampling::new().with_temperature(0.0),
            Sampling::new().with_temperature(1.5),
            Sampling::new().with_top_k(Some(VOCAB)),
            Sampling::new().with_top_p(Some(0.999)),
        ];
        for sampling in kinds {
            let draw = |head: &OutputHead| drawn(head, hidden().repeat_dim(0, 4), &sampling, 7);
            let want: Vec<i64> = draw(&small).iter().map(|place| kept()[*place as usize]).collect();
            assert_eq!(draw(&full), want, "{what}");
        }
    });
}

#[test]
fn a_beam_search_never_takes_a_masked_word() {
    everywhere(|config, by, on| {
        let [full, small] = heads(config, by, on);
        // The hidden state of a step is that of the number of words before it.
        let run = |head: &OutputHead, eos: usize| {
            let search = BeamSearch::new(3, 4, eos).with_n_best(3);
            let step = |live: &LiveHypotheses, ()| {
                let before = live.rows[0].words.len();
                (tensor([1, config.d_hidden], 1 + before, on).repeat_dim(0, live.rows.len()), ())
            };
            head.beam_search(&search, 1, (), step).unwrap().remove(0)
        };
        let (got, want) = (run(&full, kept()[2] as usize), run(&small, 2));
        assert_eq!(got.len(), 3);
        for (got, want) in got.iter().zip(&want) {
            let words: Vec<usize> = want.words.iter().map(|place| kept()[*place] as usize).collect();
            assert_eq!(got.words, words, "{config:?}, {by:?}");
            assert!((got.log_prob - want.log_prob).abs() < 1e-12);
        }
    });
}

#[test]
fn a_masked_target_has_an_infinite_nll() {
    everywhere(|config, by, on| {
        let [full, _] = heads(config, by, on);
        let hidden = || tensor([TOKENS, config.d_hidden], 1, on);
        let [words, _] = words(on.0);
        let mut targets: Vec<i64> = words.to_data().iter::<i64>().collect();
        (targets[1], targets[4]) = (MASKED[0] as i64, MASKED[3] as i64);
        let targets = || Tensor::<1, Int>::from_data(targets.as_slice(), on.0);
        let plain = LossOptions::new().with_per_token(true);
        let choices = [
            (1.0, plain.clone()),
            (1.0, plain.clone().with_statistics(true)),
            (2.0, plain.with_label_smoothing(0.1).with_z_loss(0.1).with_statistics(true)),
        ];
        let what = format!("{config:?}, {by:?}");
        for (temperature, options) in choices {
            let full = full.at_temperature(temperature);
            let made = full.loss_with(hidden(), targets(), &options);
            let want = values(full.loss_with(hidden(), words.clone(), &options).per_token.unwrap());
            assert_eq!(values(made.value), [f64::INFINITY], "{what}");
            let losses = values(made.per_token.unwrap());
            let nll = made.statistics.map(|made| values(made.nll));
            for losses in std::iter::once(&losses).chain(&nll) {
                assert!([1, 4].iter().all(|n| losses[*n] == f64::INFINITY), "{what}: {losses:?}");
                assert!([0, 2, 3, 5].iter().all(|n| losses[*n].is_finite()), "{what}: {losses:?}");
            }
            let others = |losses: &[f64]| [0, 2, 3, 5].map(|n| losses[n]);
            assert_close(&others(&losses), &others(&want), 1e-13, &what);
        }
        let mean = values(full.loss(hidden(), targets()));
        assert_eq!(mean, [f64::INFINITY], "{what}");
        // Where the token is ignored, its word may be a masked one.
        let weights = Tensor::<1>::from_data([1.0, 0.0, 1.0, 1.0, 0.0, 1.0], on);
        let options = LossOptions::new().with_token_weights(weights);
        let mean = values(full.loss_with(hidden(), targets(), &options).value);
        assert!(mean[0].is_finite(), "{what}: {mean:?}");
    });
}

/// Of targets with weight 0 nothing counts, not even that they are masked; with any weight a masked one is impossible.
#[test]
fn a_masked_word_of_weight_0_is_as_good_as_any_other() {
    everywhere(|config, by, on| {
        let [full, _] = heads(config, by, on);
        let [words, _] = words(on.0);
        let words: Vec<i64> = words.to_data().iter::<i64>().collect();
        // A word that is not masked has no weight either.
        let other = kept()[2];
        let classes = |of_first_masked: f64| {
            let mut weights: Vec<f64> = (0..VOCAB).map(|word| 0.5 + word as f64 / 8.0).collect();
            MASKED.iter().for_each(|word| weights[*word] = 0.0);
            (weights[other as usize], weights[MASKED[0]]) = (0.0, of_first_masked);
            Tensor::<1>::from_data(TensorData::new(weights, [VOCAB]), on)
        };
        let run = |options: LossOptions, without: [i64; 2], of_first_masked: f64| {
            let mut words = words.clone();
            [words[1], words[4]] = without;
            let options = options.with_class_weights(classes(of_first_masked)).with_per_token(true);
            let hidden = tensor([TOKENS, config.d_hidden], 1, on).require_grad();
            let made = full.loss_with(hidden.clone(), ints(&words, [TOKENS], on.0), &options);
            let losses = [values(made.value.clone()), values(made.per_token.unwrap())].concat();
            [losses, gradients(&full, &hidden, made.value).concat()].concat()
        };
        // Half of a token's distribution is that of a word with weight, none is left to others.
        let teacher = |without: [i64; 2]| {
            let ids: Vec<i64> = (0..TOKENS).flat_map(|n| [kept()[0], without[n % 2]]).collect();
            let probs = Tensor::<2>::full([TOKENS, 2], 0.5, on);
            LossOptions::new().with_teacher(ints(&ids, [TOKENS, 2], on.0), probs)
        };
        let dense = |without: [i64; 2]| {
            let mut rows = vec![0.0; TOKENS * VOCAB];
            for (n, row) in rows.chunks_mut(VOCAB).enumerate() {
                row[kept()[0] as usize] = 0.5;
                row[without[n % 2] as usize] = 0.5;
            }
            let rows = Tensor::<2>::from_data(TensorData::new(rows, [TOKENS, VOCAB]), on);
            LossOptions::new().with_distributions(rows)
        };
        let (masked, others) = ([MASKED[0] as i64, MASKED[3] as i64], [other; 2]);
        for (kind, [got, want]) in [
            [masked, others].map(|_| LossOptions::new()),
            [masked, others].map(teacher),
            [masked, others].map(dense),
        ]
        .into_iter()
        .enumerate()
        {
            for more in [
                |options: LossOptions| options.with_label_smoothing(0.2),
                |options: LossOptions| options.with_z_loss(0.05),
                |options: LossOptions| options.with_entropy_bonus(0.1),
            ] {
                let impossible = run(more(got.clone()), masked, 0.5);
                let [got, want] = [(&got, masked), (&want, others)]
                    .map(|(options, without)| run(more(options.clone()), without, 0.0));
                let what = format!("{config:?}, {by:?}, targets {kind}");
                assert!(got.iter().all(|x| x.is_finite()), "{what}: {got:?}");
                assert_close(&got, &want, 1e-12, &what);
                for (n, loss) in impossible[1..=TOKENS].iter().enumerate() {
                    let has_it = if kind == 0 { n == 1 } else { n % 2 == 0 };
                    let is_right = if has_it { *loss == f64::INFINITY } else { loss.is_finite() };
                    assert!(is_right, "{what}: token {n} has {loss}");
                }
            }
        }
    });
}

/// The head after three steps.
fn stepped(
    mut head: OutputHead,
    mut optimiser: ModuleOptimizer,
    hidden: &Tensor<2>,
    options: &LossOptions,
) -> OutputHead {
    let [words, _] = words(&hidden.device());
    for _ in 0..3 {
        let loss = head.loss_with(hidden.clone(), words.clone(), options).value;
        let gradients = GradientsParams::from_grads(loss.backward(), &head);
        head = optimiser.step(0.05, head, gradients);
    }
    head
}

#[test]
fn a_step_with_weight_decay_keeps_masks_and_numbers() {
    let on = (&ad(), DType::F32);
    for config in all_heads(VOCAB) {
        for adaptive in [true, false] {
            let config = config.clone().with_masked_words(MASKED.to_vec()).with_vocab_multiple(8);
            let optimiser = match adaptive {
                true => AdamWConfig::new().with_weight_decay(0.1).init(),
                false => SgdConfig::new().with_weight_decay(Some(WeightDecayConfig::new(0.1))).init(),
            };
            let hidden = tensor([TOKENS, config.d_hidden], 1, on);
            let options =
                LossOptions::new().with_label_smoothing(0.1).with_z_loss(0.01).with_statistics(true);
            let head = stepped(head(&config, on), optimiser, &hidden, &options);
            let is_finite = |(value, _): &Parameter| value.iter::<f64>().all(f64::is_finite);
            assert!(parameters(&head, None).iter().all(is_finite), "{config:?}");
            for row in values(head.forward(hidden)).chunks(config.decoder_rows()) {
                for (word, log_prob) in row.iter().enumerate() {
                    let masked = word >= VOCAB || is_masked(word);
                    assert_eq!(*log_prob == f64::NEG_INFINITY, masked, "{config:?}: {log_prob} of {word}");
                    assert!(!log_prob.is_nan(), "{config:?}");
                }
            }
        }
    }
}

/// A bias of −∞ is a parameter: a step that adds no decay to it leaves it where it is.
#[test]
fn a_step_leaves_a_bias_of_minus_infinity_alone() {
    let on = (&ad(), DType::F32);
    for config in all_heads(VOCAB) {
        let [head, _] = heads(&config, By::Bias, on);
        let hidden = tensor([TOKENS, config.d_hidden], 1, on);
        let options = LossOptions::new().with_label_smoothing(0.1).with_z_loss(0.01);
        let head = stepped(head, SgdConfig::new().init(), &hidden, &options);
        let bias = values(head.decoder.bias.as_ref().unwrap().val());
        for (word, bias) in bias.iter().enumerate() {
            assert_eq!(*bias == f64::NEG_INFINITY, is_masked(word), "{config:?}: {bias} of {word}");
            assert!(!bias.is_nan(), "{config:?}");
        }
        let sums = values(head.forward(hidden).exp().sum_dim(1));
        assert_close(&sums, &[1.0; TOKENS], 1e-5, &format!("{config:?}"));
    }
}

#[test]
fn one_word_left_has_probability_one() {
    let all_but_three: Vec<usize> = (0..VOCAB).filter(|word| *word != 3).collect();
    let on = (&ad(), DType::F32);
    for config in all_heads(VOCAB) {
        let head = head(&config.clone().with_masked_words(all_but_three.clone()), on);
        let hidden = tensor([2, config.d_hidden], 1, on).require_grad();
        let words = Tensor::<1, Int>::from_data([3i64, 3], on.0);
        let options = LossOptions::new().with_label_smoothing(0.3).with_reduction(Reduction::Sum);
        for loss in
            [head.loss(hidden.clone(), words.clone()), head.loss_with(hidden.clone(), words, &options).value]
        {
            assert_close(&values(loss.clone()), &[0.0], 1e-6, &format!("{config:?}"));
            let gradients = all_gradients(&head, &hidden, loss);
            assert!(gradients.iter().all(|x| x.abs() < 1e-6), "{config:?}: {gradients:?}");
        }
    }
}

/// The lowest number of a type masks as −∞ does.
#[test]
fn a_bias_of_the_lowest_number_masks() {
    for device in cpus() {
        for config in all_heads(VOCAB) {
            let lowest = |device: &Device| {
                let head = head(&config, (device, DType::F32));
                let bias = head.decoder.bias.as_ref().unwrap().val();
                let bias = bias.slice_fill(5..6, f32::MIN).detach();
                let mut masked = head;
                masked.decoder.bias = Some(Param::from_tensor(bias));
                values(masked.forward(tensor::<2>([TOKENS, config.d_hidden], 1, (device, DType::F32))))
            };
            let (plain, tracked) = (lowest(&device), lowest(&device.clone().autodiff()));
            assert_close(&tracked, &plain, 1e-5, &format!("{config:?}"));
            assert!(plain.iter().skip(5).step_by(VOCAB).all(|log_prob| *log_prob == f64::NEG_INFINITY));
        }
    }
}
