//! Adaptive heads against their definition, on the CPU in f64.

use burn::module::{Module, Param};
use burn::nn::{Linear, LinearConfig};
use burn::tensor::{DType, Device, Distribution, Int, Tensor};
use rand::SeedableRng;
use rand_pcg::Pcg64;

use crate::parameters::changed;
use crate::{
    AdaptiveConfig, BeamSearch, HeadConfig, HeadError, LogProbOptions, LossOptions, OutputHead, Sampling,
    cast_parameters,
};

mod losses;

const V: usize = 23;
const H: usize = 8;
const CUTOFFS: [usize; 3] = [4, 9, 16];

fn adaptive() -> AdaptiveConfig {
    AdaptiveConfig { cutoffs: CUTOFFS.to_vec(), division: 2.0 }
}

/// A softmax and a mixture in the head cluster.
fn configs() -> [HeadConfig; 2] {
    [HeadConfig::softmax(H, V), HeadConfig::mos(H, 5, V, 3)].map(|config| config.with_adaptive(adaptive()))
}

/// With logits of order 1, so that no cluster is like another.
fn wide(config: &HeadConfig, device: &Device) -> OutputHead {
    device.seed(3);
    struct Larger;
    impl burn::module::ModuleMapper for Larger {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            changed(&param, |tensor| tensor * 6.0)
        }
    }
    cast_parameters(config.init(device).map(&mut Larger), DType::F64)
}

fn hidden(tokens: usize, device: &Device) -> Tensor<2> {
    Tensor::random([tokens, H], Distribution::Normal(0.0, 1.0), (device, DType::F64))
}

/// Words of every cluster.
fn targets(tokens: usize, device: &Device) -> Tensor<1, Int> {
    let words: Vec<i64> = (0..tokens as i64).map(|token| (token * 7 + 3) % V as i64).collect();
    Tensor::from_data(words.as_slice(), device)
}

fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
    tensor.into_data().iter::<f64>().collect()
}

#[track_caller]
fn assert_close(got: &[f64], want: &[f64]) {
    assert_eq!(got.len(), want.len());
    let close = |(a, b): (&f64, &f64)| a == b || (a - b).abs() < 1e-11 * b.abs().max(1.0);
    assert!(got.iter().zip(want).all(close), "{got:?} against {want:?}");
}

#[test]
fn blocks_keep_to_the_memory_budget() {
    let device = Device::flex();
    let head = wide(&configs()[1].clone().with_memory_budget(Some(2 * V * 8)), &device);
    let hidden = hidden(7, &device);
    let blocks: Vec<Tensor<2>> = head.log_prob_blocks(hidden.clone()).collect();
    assert!(blocks.iter().all(|block| block.dims()[0] <= 2), "{}", blocks.len());
    assert_close(&values(Tensor::cat(blocks, 0)), &values(head.forward(hidden)));
}

/// One sweep of each part makes them; of one cluster all words are masked.
#[test]
fn words_and_entropies_are_those_of_all_log_probabilities() {
    let device = Device::flex();
    let masked: Vec<usize> = (CUTOFFS[1]..CUTOFFS[2]).chain([0, 20]).collect();
    for config in configs() {
        let head = wide(&config, &device).mask_words(&masked);
        let state = hidden(8, &device);
        let words = Tensor::cat((0..3).map(|_| targets(8, &device).reshape([8, 1])).collect(), 1);
        let words = words + Tensor::<2, Int>::from_data([[0, 5, 11]], &device);
        let words = words.remainder_scalar(V as i64);
        let options = LogProbOptions { entropy: true, ..Default::default() };
        let made = head.token_log_probs(state.clone(), words.clone(), &options);
        let all = head.forward(state);
        let log_probs = values(made.log_probs);
        assert!(log_probs.contains(&f64::NEG_INFINITY));
        assert_close(&log_probs, &values(all.clone().gather(1, words)));
        let counted = all.clone().mask_fill(all.clone().is_inf(), 0.0);
        let entropy = -(all.exp() * counted).sum_dim(1);
        assert_close(&values(made.entropy.expect("it is asked for")), &values(entropy));
    }
}

#[test]
fn tokens_that_do_not_count_add_nothing_whatever_they_hold() {
    let device = Device::flex().autodiff();
    for config in configs() {
        let head = wide(&config, &device);
        let clean = hidden(6, &device);
        // 10 is a word of a cluster, and 5 the head cluster's word for the second one.
        for ignored in [-100, 10, 5, 99] {
            let words = Tensor::<1, Int>::from_data([2, ignored, 17, ignored, 3, 22], &device);
            let dirty = clean
                .clone()
                .slice_assign([1..2, 0..H], Tensor::<2>::full([1, H], f64::NAN, (&device, DType::F64)));
            let dirty = dirty.detach().require_grad();
            let options = LossOptions::new().with_ignore_index(ignored);
            let made = head.loss_with(dirty.clone(), words, &options).value;
            let rows = Tensor::<1, Int>::from_data([0, 2, 4, 5], &device);
            let kept = head
                .loss(clean.clone().select(0, rows), Tensor::<1, Int>::from_data([2, 17, 3, 22], &device));
            assert_close(&values(made.clone()), &values(kept));
            let gradient = values(dirty.grad(&made.backward()).unwrap());
            assert!(gradient.iter().all(|x| x.is_finite()) && gradient[H..2 * H].iter().all(|x| *x == 0.0));
        }
    }
}

#[test]
fn the_most_probable_words_are_exact_for_every_k() {
    let device = Device::flex();
    for config in configs() {
        let plain = wide(&config, &device);
        // With a whole cluster and parts of others out of the game.
        let masked = plain.clone().mask_words(&[1, 10, 4, 5, 6, 7, 8]);
        for head in [plain, masked] {
            let hidden = hidden(15, &device);
            let rows = values(head.forward(hidden.clone()));
            for k in 1..=V {
                let top = head.top_k(hidden.clone().reshape([3, 5, H]), k);
                assert_eq!(top.words.dims(), [3, 5, k]);
                let words: Vec<i64> = top.words.into_data().iter::<i64>().collect();
                let log_probs = values(top.log_probs);
                for (token, row) in rows.chunks(V).enumerate() {
                    let mut order: Vec<usize> = (0..V).collect();
                    order.sort_by(|a, b| row[*b].total_cmp(&row[*a]));
                    let got: Vec<usize> =
                        words[token * k..(token + 1) * k].iter().map(|word| *word as usize).collect();
                    assert_eq!(got, order[..k], "{k} of {row:?}");
                    let want: Vec<f64> = order[..k].iter().map(|word| row[*word]).collect();
                    assert_close(&log_probs[token * k..(token + 1) * k], &want);
                }
            }
        }
    }
}

#[test]
fn drawn_words_follow_the_distribution() {
    let device = Device::flex();
    for config in configs() {
        let head = wide(&config, &device);
        let draws = 20_000;
        let hidden = hidden(1, &device);
        let probs: Vec<f64> = values(head.forward(hidden.clone())).into_iter().map(f64::exp).collect();
        let rows = hidden.expand([draws, H]);
        let (neutral, hot) = (Sampling::new(), Sampling::new().with_temperature(1.5));
        let best = Sampling::new().with_top_k(Some(6)).with_temperature(0.7);
        for sampling in [neutral, hot, best, Sampling::new().with_top_p(Some(0.8))] {
            // What the options make of the distribution, by its definition.
            let mut order: Vec<usize> = (0..V).collect();
            order.sort_by(|a, b| probs[*b].total_cmp(&probs[*a]));
            order.truncate(sampling.top_k.unwrap_or(V));
            if let Some(p) = sampling.top_p {
                let mut sum = 0.0;
                let enough = order.iter().position(|word| {
                    sum += probs[*word];
                    sum >= p
                });
                order.truncate(enough.unwrap() + 1);
            }
            let mut want = vec![0.0; V];
            order.iter().for_each(|word| want[*word] = probs[*word].powf(1.0 / sampling.temperature));
            let total: f64 = want.iter().sum();
            let mut rng = Pcg64::seed_from_u64(11);
            let words: Tensor<1, Int> = head.sample(rows.clone(), &sampling, &mut rng).unwrap();
            let mut counts = [0.0; V];
            words.into_data().iter::<i64>().for_each(|word| counts[word as usize] += 1.0 / draws as f64);
            for (word, (got, want)) in counts.iter().zip(&want).enumerate() {
                // Four standard deviations of a frequency of 20,000 draws are at most 0.0142.
                assert!((got - want / total).abs() < 0.015, "{sampling:?}: {got} of word {word}, {want}");
                assert!(*want > 0.0 || *got == 0.0, "{sampling:?}: word {word}");
            }
        }
        let greedy = Sampling::new().with_temperature(0.0);
        let mut rng = Pcg64::seed_from_u64(11);
        let words: Tensor<1, Int> = head.sample(rows, &greedy, &mut rng).unwrap();
        let best = (0..V).max_by(|a, b| probs[*a].total_cmp(&probs[*b])).unwrap() as i64;
        assert!(words.into_data().iter::<i64>().all(|word| word == best));
        assert_eq!(rng, Pcg64::seed_from_u64(11));
    }
}

#[test]
fn masked_words_have_no_probability_and_their_gradients_are_zero() {
    let device = Device::flex().autodiff();
    let masked = [1, 10, 4, 5, 6, 7, 8];
    for config in configs() {
        let plain = wide(&config, &device);
        // Some before, some after; the cluster of 4 .. 9 is left without a word.
        let head = plain.clone().mask_words(&masked[..4]).mask_words(&masked[4..]);
        assert_eq!(head.masked_words(), [1, 4, 5, 6, 7, 8, 10]);
        let hidden = hidden(3, &device);
        for row in values(head.forward(hidden.clone())).chunks(V) {
            for (word, log_prob) in row.iter().enumerate() {
                assert_eq!(*log_prob == f64::NEG_INFINITY, masked.contains(&word), "{word}");
            }
            assert!((row.iter().map(|x| x.exp()).sum::<f64>() - 1.0).abs() < 1e-12);
        }
        let words = Tensor::<1, Int>::from_data([0, 12, 20], &device);
        let gradients = head.loss(hidden.clone(), words).backward();
        let tails = &head.clusters.as_ref().unwrap().tails;
        let gradient = values(tails[1].decoder.weight.as_ref().unwrap().val().grad(&gradients).unwrap());
        let width = gradient.len() / 7;
        assert!(gradient[width..2 * width].iter().all(|x| *x == 0.0) && gradient.iter().any(|x| *x != 0.0));
        let nll = values(head.nll(hidden, Tensor::<1, Int>::from_data([0, 4, 10], &device)));
        assert!(nll[0].is_finite() && nll[1..] == [f64::INFINITY; 2], "{nll:?}");
        let all: Vec<usize> = (0..V).collect();
        assert_eq!(plain.masking(&all).unwrap_err(), HeadError::NoWordLeft { vocab: V });
    }
    let config = configs()[0].clone().with_masked_words(masked.to_vec());
    let head = config.init(&Device::flex());
    assert_eq!(head.masked_words(), [1, 4, 5, 6, 7, 8, 10]);
}

#[test]
fn a_padded_head_computes_the_same() {
    let device = Device::flex();
    let padded = wide(&configs()[0].clone().with_vocab_multiple(8), &device);
    assert_eq!(padded.decoder.rows(), 8);
    let log_probs = padded.forward(hidden(5, &device));
    assert_eq!(log_probs.dims(), [5, V]);
    assert_close(&values(log_probs.exp().sum_dim(1)), &[1.0; 5]);
}

#[test]
fn a_beam_search_finds_words_of_clusters() {
    let device = Device::flex();
    let head = wide(&configs()[1], &device);
    let state = hidden(2, &device);
    let search = BeamSearch::new(V, 1, 0).with_n_best(V);
    let found = head.beam_search(&search, 2, state.clone(), |_, state| (state.clone(), state)).unwrap();
    let rows = values(head.forward(state));
    for (found, row) in found.iter().zip(rows.chunks(V)) {
        assert_eq!(found.len(), V);
        let got: Vec<f64> = found.iter().map(|found| found.log_prob).collect();
        let want: Vec<f64> = found.iter().map(|found| row[found.words[0]]).collect();
        assert_close(&got, &want);
    }
}

#[test]
fn parameters_of_linear_layers_are_those_of_the_clusters() {
    let device = Device::flex();
    let linear = |from, to, bias| LinearConfig::new(from, to).with_bias(bias).init(&device);
    let adaptive = AdaptiveConfig { cutoffs: vec![3, 7], division: 2.0 };
    let config = HeadConfig::softmax(8, 12).with_adaptive(adaptive).with_bias(false);
    let (short, near, far) = (
        linear(8, 5, false),
        [linear(8, 4, false), linear(4, 4, false)],
        [linear(8, 2, false), linear(2, 5, false)],
    );
    let mut head = config.init(&device);
    let rows = |linear: &Linear| Some(Param::from_tensor(linear.weight.val().transpose()));
    head.decoder.weight = rows(&short);
    for (tail, [projection, decoder]) in head.clusters.as_mut().unwrap().tails.iter_mut().zip([&near, &far]) {
        tail.projection = projection.weight.clone();
        tail.decoder.weight = rows(decoder);
    }
    assert_eq!(head.num_params(), 8 * 5 + 8 * 4 + 4 * 4 + 8 * 2 + 2 * 5);
    let tails: Vec<_> = config.adaptive.as_ref().unwrap().tails(8, 12).collect();
    assert_eq!(tails, [(3..7, 4), (7..12, 2)]);
    let x = Tensor::<2>::random([4, 8], Distribution::Default, &device);
    let log_softmax = |x: Tensor<2>| burn::tensor::activation::log_softmax(x, 1);
    let of_head = log_softmax(short.forward(x.clone()));
    let tail = |[projection, decoder]: &[Linear; 2], cluster: usize| {
        log_softmax(decoder.forward(projection.forward(x.clone())))
            + of_head.clone().narrow(1, 3 + cluster, 1)
    };
    let want = Tensor::cat(vec![of_head.clone().narrow(1, 0, 3), tail(&near, 0), tail(&far, 1)], 1);
    let (got, want) = (values(head.forward(x.clone())), values(want));
    assert!(got.iter().zip(&want).all(|(a, b)| (a - b).abs() < 1e-5), "{got:?} against {want:?}");

    let message = config.checked_init_from_linear(short).unwrap_err().to_string();
    assert!(message.contains("then set the parameters of the head and its tails"), "{message}");
    let [first, second] = &mut head.clusters.as_mut().unwrap().tails[..] else { panic!("two tails") };
    second.projection = first.projection.clone();
    let targets = Tensor::<1, Int>::zeros([4], &device);
    let message = head.try_loss_with(x, targets, &LossOptions::new()).unwrap_err().to_string();
    assert!(message.contains("a tail's projection has shape [8, 4], expected [8, 2]"), "{message}");
}

#[test]
fn a_tied_head_is_given_the_matrix_of_its_head_cluster() {
    let device = Device::flex();
    let config = configs()[0].clone().with_tied(true);
    assert_eq!(config.decoder_rows(), 7);
    let head = config.init(&device);
    let matrix = |rows| Tensor::<2>::random([rows, H], Distribution::Default, &device);
    assert_eq!(head.tied_to(matrix(7)).forward(Tensor::<2>::ones([2, H], &device)).dims(), [2, V]);
    assert!(matches!(
        head.decoder.tied_to(Param::from_tensor(matrix(V))).unwrap_err(),
        HeadError::Shape { .. }
    ));
    assert_eq!((head.vocab(), head.rows()), (V, V));
}

#[test]
fn bad_cutoffs_and_divisions_are_refused() {
    for cutoffs in [vec![], vec![0], vec![V], vec![5, 5], vec![9, 4], vec![4, V + 1]] {
        let config = HeadConfig::softmax(H, V).with_adaptive(AdaptiveConfig::new(cutoffs.clone()));
        assert_eq!(config.validate(), Err(HeadError::Cutoffs { cutoffs, vocab: V }));
    }
    let message = AdaptiveConfig::new(vec![9, 4]).validate(V).unwrap_err().to_string();
    assert!(
        message.contains("[9, 4]") && message.contains("from 1 to 22, below the vocabulary's 23"),
        "{message}"
    );
    for value in [0.5, 0.0, f64::INFINITY, f64::NAN] {
        let error = AdaptiveConfig { division: value, ..adaptive() }.validate(V).unwrap_err();
        assert!(matches!(error, HeadError::Range { .. }), "{error}");
    }
    assert!(AdaptiveConfig::for_vocab(V).validate(V).is_ok());
}

#[test]
fn what_a_head_with_clusters_does_not_have_is_refused() {
    let device = Device::flex();
    let head = wide(&configs()[0], &device);
    let hidden = hidden(3, &device);
    let error = head.try_logit_blocks(hidden.clone()).err().unwrap();
    assert_eq!(error, HeadError::NoCommonLogits { what: "logit_blocks" });
    assert!(error.to_string().contains("one for each of its softmaxes: use `forward`"), "{error}");
    // What every head refuses.
    let outside = Tensor::<1, Int>::from_data([0, V as i64, 1], &device);
    let error = head.try_loss_with(hidden.clone(), outside, &LossOptions::new()).unwrap_err();
    assert_eq!(error, HeadError::Target { target: V as i64, token: 1, vocab: V });
    assert_eq!(head.try_top_k(hidden.clone(), V + 1).unwrap_err(), HeadError::TopK { k: V + 1, vocab: V });
    let nan = hidden.slice_assign([2..3, 0..1], Tensor::<2>::full([1, 1], f64::NAN, (&device, DType::F64)));
    assert_eq!(head.try_top_k(nan, 2).unwrap_err(), HeadError::NotANumber { token: 2 });
}
