//! Heads with clusters against their definition, on the CPU in f64.

use burn::module::{Module, Param};
use burn::nn::{Linear, LinearConfig};
use burn::tensor::activation::log_softmax;
use burn::tensor::{DType, Distribution, Tensor};
use highrank::{AdaptiveConfig, BeamSearch, HeadConfig, HeadError, LogProbOptions};

use crate::support::*;

pub const VOCAB: usize = 23;
const CUTOFFS: [usize; 3] = [4, 9, 16];
/// All of the cluster 4 .. 9, one word of the shortlist and one of another cluster.
pub const MASKED: [usize; 7] = [1, 4, 5, 6, 7, 8, 10];

fn adaptive() -> AdaptiveConfig {
    AdaptiveConfig { cutoffs: CUTOFFS.to_vec(), division: 2.0 }
}

/// A softmax and a mixture in the head cluster.
pub fn configs() -> [HeadConfig; 2] {
    [softmax(VOCAB), mos(VOCAB)].map(|config| config.with_adaptive(adaptive()))
}

#[test]
fn blocks_keep_to_the_memory_budget() {
    let on = (&cpu(), DType::F64);
    let head = head(&configs()[1].clone().with_memory_budget(Some(2 * VOCAB * 8)), on);
    let hidden = tensor([7, HIDDEN], 1, on);
    let blocks_of = |hidden| head.log_prob_blocks(hidden).collect::<Vec<Tensor<2>>>();
    let blocks = blocks_of(hidden.clone());
    // States of a shorter type make rows of the same.
    for blocks in [&blocks, &blocks_of(hidden.clone().cast(DType::F32))] {
        assert!(blocks.iter().all(|block| block.dims()[0] <= 2), "{}", blocks.len());
    }
    let (got, want) = (values(Tensor::cat(blocks, 0)), values(head.forward(hidden)));
    assert_close(&got, &want, 1e-12, "log-probabilities");
}

/// One sweep of each part makes them; of one cluster all words are masked.
#[test]
fn words_and_entropies_are_those_of_all_log_probabilities() {
    let on = (&cpu(), DType::F64);
    let masked: Vec<usize> = (CUTOFFS[1]..CUTOFFS[2]).chain([0, 20]).collect();
    let words: Vec<i64> =
        (0..8).flat_map(|n| [0, 5, 11].map(|more| (7 * n + 3 + more) % VOCAB as i64)).collect();
    let words = ints(&words, [8, 3], on.0);
    for config in configs() {
        let head = head(&config, on).mask_words(&masked);
        let state = tensor([8, config.d_hidden], 1, on);
        let options = LogProbOptions { entropy: true, ..Default::default() };
        let made = head.token_log_probs(state.clone(), words.clone(), &options);
        let all = head.forward(state);
        let log_probs = values(made.log_probs);
        assert!(log_probs.contains(&f64::NEG_INFINITY));
        assert_close(&log_probs, &values(all.clone().gather(1, words.clone())), 1e-12, "log-probabilities");
        let counted = all.clone().mask_fill(all.clone().is_inf(), 0.0);
        let entropy = -(all.exp() * counted).sum_dim(1);
        assert_close(&values(made.entropy.expect("it is asked for")), &values(entropy), 1e-12, "entropies");
    }
}

#[test]
fn the_most_probable_words_are_exact_for_every_k() {
    let on = (&cpu(), DType::F64);
    for config in configs() {
        let plain = head(&config, on);
        // With a whole cluster and parts of others out of the game.
        let masked = plain.clone().mask_words(&MASKED);
        for head in [plain, masked] {
            let hidden = tensor([15, config.d_hidden], 1, on);
            let rows = values(head.forward(hidden.clone()));
            for k in 1..=VOCAB {
                let top = head.top_k(hidden.clone().reshape([3, 5, config.d_hidden]), k);
                assert_eq!(top.words.dims(), [3, 5, k]);
                let (words, log_probs) = (integers(top.words), values(top.log_probs));
                for (token, row) in rows.chunks(VOCAB).enumerate() {
                    let mut order: Vec<usize> = (0..VOCAB).collect();
                    order.sort_by(|a, b| row[*b].total_cmp(&row[*a]));
                    let of_token = token * k..(token + 1) * k;
                    let got: Vec<usize> = words[of_token.clone()].iter().map(|word| *word as usize).collect();
                    assert_eq!(got, order[..k], "{k} of {row:?}");
                    let want: Vec<f64> = order[..k].iter().map(|word| row[*word]).collect();
                    assert_close(&log_probs[of_token], &want, 1e-12, "log-probabilities");
                }
            }
        }
    }
}

#[test]
fn masked_words_have_no_probability_and_their_gradients_are_zero() {
    let on = (&ad(), DType::F64);
    for config in configs() {
        let plain = head(&config, on);
        // Some before, some after; the cluster of 4 .. 9 is left without a word.
        let head = plain.clone().mask_words(&MASKED[4..]).mask_words(&MASKED[..4]);
        assert_eq!(head.masked_words(), MASKED);
        let hidden = tensor([3, config.d_hidden], 1, on);
        for row in values(head.forward(hidden.clone())).chunks(VOCAB) {
            for (word, log_prob) in row.iter().enumerate() {
                assert_eq!(*log_prob == f64::NEG_INFINITY, MASKED.contains(&word), "{word}");
            }
            assert!((row.iter().map(|x| x.exp()).sum::<f64>() - 1.0).abs() < 1e-12);
        }
        let gradients = head.loss(hidden.clone(), ints(&[0, 12, 20], [3], on.0)).backward();
        let tails = &head.clusters.as_ref().unwrap().tails;
        let gradient = values(tails[1].decoder.weight.as_ref().unwrap().val().grad(&gradients).unwrap());
        let width = gradient.len() / 7;
        assert!(gradient[width..2 * width].iter().all(|x| *x == 0.0) && gradient.iter().any(|x| *x != 0.0));
        let nll = values(head.nll(hidden, ints(&[0, 4, 10], [3], on.0)));
        assert!(nll[0].is_finite() && nll[1..] == [f64::INFINITY; 2], "{nll:?}");
        let all: Vec<usize> = (0..VOCAB).collect();
        let error = HeadError::NoWordLeft { vocab: VOCAB };
        assert_eq!(panic_of(|| drop(plain.mask_words(&all))), format!("OutputHead::mask_words: {error}"));
    }
    let head = configs()[0].clone().with_masked_words(MASKED.to_vec()).init(on.0);
    assert_eq!(head.masked_words(), MASKED);
}

#[test]
fn a_beam_search_finds_words_of_clusters() {
    let on = (&cpu(), DType::F64);
    let head = head(&configs()[1], on);
    let state = tensor([2, HIDDEN], 1, on);
    let search = BeamSearch::new(VOCAB, 1, 0).with_n_best(VOCAB);
    let found = head.beam_search(&search, 2, state.clone(), |_, state| (state.clone(), state)).unwrap();
    let rows = values(head.forward(state));
    for (found, row) in found.iter().zip(rows.chunks(VOCAB)) {
        assert_eq!(found.len(), VOCAB);
        let got: Vec<f64> = found.iter().map(|found| found.log_prob).collect();
        let want: Vec<f64> = found.iter().map(|found| row[found.words[0]]).collect();
        assert_close(&got, &want, 1e-12, "log-probabilities");
    }
}

#[test]
fn parameters_of_linear_layers_are_those_of_the_clusters() {
    let device = cpu();
    let linear = |from, to| LinearConfig::new(from, to).with_bias(false).init(&device);
    let adaptive = AdaptiveConfig { cutoffs: vec![3, 7], division: 2.0 };
    let config = HeadConfig::softmax(8, 12).with_adaptive(adaptive).with_bias(false);
    let (short, near, far) = (linear(8, 5), [linear(8, 4), linear(4, 4)], [linear(8, 2), linear(2, 5)]);
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
    let of_head = log_softmax(short.forward(x.clone()), 1);
    let tail = |[projection, decoder]: &[Linear; 2], cluster: usize| {
        log_softmax(decoder.forward(projection.forward(x.clone())), 1)
            + of_head.clone().narrow(1, 3 + cluster, 1)
    };
    let want = Tensor::cat(vec![of_head.clone().narrow(1, 0, 3), tail(&near, 0), tail(&far, 1)], 1);
    let (got, want) = (values(head.forward(x.clone())), values(want));
    assert!(got.iter().zip(&want).all(|(a, b)| (a - b).abs() < 1e-5), "{got:?} against {want:?}");

    let message = panic_of(|| drop(config.init_from_linear(short)));
    assert!(message.contains("then set the parameters of the head and its tails"), "{message}");
    let [first, second] = &mut head.clusters.as_mut().unwrap().tails[..] else { panic!("two tails") };
    second.projection = first.projection.clone();
    let message = panic_of(|| drop(head.loss(x, targets(4, 12, &device))));
    assert!(message.contains("a tail's projection has shape [8, 4], expected [8, 2]"), "{message}");
}

#[test]
fn a_tied_head_is_given_the_matrix_of_its_head_cluster() {
    let on = (&cpu(), DType::F32);
    let config = configs()[0].clone().with_tied(true);
    assert_eq!([1, 8].map(|n| config.clone().with_vocab_multiple(n).decoder_rows()), [7, 8]);
    let padded = config.clone().with_vocab_multiple(8).init(on.0).clusters.unwrap();
    assert_eq!(padded.tails.iter().map(|tail| tail.decoder.rows()).collect::<Vec<_>>(), [8; 3]);
    let head = config.init(on.0);
    let matrix = |rows| tensor::<2>([rows, EMBEDDING], 2, on);
    let log_probs = head.tied_to(matrix(7)).forward(tensor::<2>([2, EMBEDDING], 1, on));
    assert_eq!((log_probs.dims(), head.vocab()), ([2, VOCAB], VOCAB));
    let message = panic_of(|| drop(head.tied_to(matrix(VOCAB))));
    assert!(message.contains("matrix has shape [23, 5], expected [7, 5]"), "{message}");
}

#[test]
fn bad_cutoffs_and_divisions_are_refused() {
    let validated = |adaptive: AdaptiveConfig| softmax(VOCAB).with_adaptive(adaptive).validate();
    for cutoffs in [vec![], vec![0], vec![VOCAB], vec![5, 5], vec![9, 4], vec![4, VOCAB + 1]] {
        let made = validated(AdaptiveConfig::new(cutoffs.clone()));
        assert_eq!(made, Err(HeadError::Cutoffs { cutoffs, vocab: VOCAB }));
    }
    let message = validated(AdaptiveConfig::new(vec![9, 4])).unwrap_err().to_string();
    assert!(
        message.contains("[9, 4]") && message.contains("each at least 1 and below the vocabulary's 23"),
        "{message}"
    );
    for value in [0.5, 0.0, f64::INFINITY, f64::NAN] {
        let error = validated(AdaptiveConfig { division: value, ..adaptive() }).unwrap_err();
        assert!(matches!(error, HeadError::Range { .. }), "{error}");
    }
    assert!(validated(AdaptiveConfig::for_vocab(VOCAB)).is_ok());
}

#[test]
fn what_a_head_with_clusters_does_not_have_is_refused() {
    let on = (&cpu(), DType::F64);
    let head = head(&configs()[0], on);
    let hidden = tensor::<2>([3, EMBEDDING], 1, on);
    let message = panic_of(|| drop(head.logit_blocks(hidden.clone())));
    assert!(message.starts_with("logit_blocks: "), "{message}");
    assert!(message.contains("one for each of its softmaxes: use `forward`"), "{message}");
    let refused = |hidden: Tensor<2>, k| panic_of(|| drop(head.top_k(hidden, k)));
    let error = format!("k is {}, expected 1 to the vocabulary's {VOCAB}", VOCAB + 1);
    assert_eq!(refused(hidden.clone(), VOCAB + 1), format!("top_k: {error}"));
    let nan = hidden.slice_fill([2..3, 0..1], f64::NAN);
    assert_eq!(refused(nan, 2), format!("top_k: {}", HeadError::NotANumber { token: 2 }));
}
