//! What heads predict: the most probable words and words drawn, with ties, masked words and rows that are no numbers.

use burn::module::{Module, Param};
use burn::tensor::{DType, Tensor};
use highrank::{HeadError, OutputHead, Sampling};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use crate::support::*;

const VOCAB: usize = 40;

/// A head that gives the words from `VOCAB / 2` on the same log-probabilities as those before.
fn doubled(mut head: OutputHead) -> OutputHead {
    fn twice<const D: usize>(param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        param.map(|rows| rows.slice(0..VOCAB / 2).repeat_dim(0, 2))
    }
    head.decoder.weight = head.decoder.weight.map(twice);
    head.decoder.bias = head.decoder.bias.map(twice);
    head
}

#[test]
fn top_k_is_a_full_sort_cut_off_in_every_head_and_type() {
    for device in cpus() {
        for config in all_heads(VOCAB) {
            for dtype in [DType::F32, DType::F64] {
                let on = (&device, dtype);
                // So small a budget makes a chunk of every token.
                let config = config.clone().with_memory_budget(Some(1));
                let head = doubled(head(&config, on)).mask_words(&[0, 3, 21]);
                let hidden = tensor([5, config.d_hidden], 1, on);
                let all = values(head.forward(hidden.clone()));
                for k in [1, 2, 7, VOCAB - 3, VOCAB] {
                    let top = head.top_k(hidden.clone(), k);
                    assert_eq!((top.words.dims(), top.log_probs.dims()), ([5, k], [5, k]));
                    let (got, log_probs) = (integers(top.words), values(top.log_probs));
                    for (n, row) in all.chunks(VOCAB).enumerate() {
                        let mut order: Vec<usize> = (0..VOCAB).collect();
                        // Stable: of equals the lowest word first.
                        order.sort_by(|&a, &b| row[b].total_cmp(&row[a]));
                        for i in 0..k {
                            let what = format!("{config:?} {dtype:?}: word {i} of {k} of token {n}");
                            assert_eq!(got[k * n + i], order[i] as i64, "{what}");
                            assert_eq!(log_probs[k * n + i], row[order[i]], "{what}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn top_k_is_differentiable() {
    let device = ad();
    let head = head(&mos(VOCAB), (&device, DType::F64));
    let hidden = || tensor([4, HIDDEN], 1, (&device, DType::F64)).require_grad();
    let (state, twin) = (hidden(), hidden());
    let top = head.top_k(state.clone(), 3);
    let composed = head.forward(twin.clone()).gather(1, top.words.clone());
    let got = state.grad(&top.log_probs.powi_scalar(2).sum().backward()).unwrap();
    let want = twin.grad(&composed.powi_scalar(2).sum().backward()).unwrap();
    assert_close(&values(got), &values(want), 1e-14, "gradient of the hidden state");
}

#[test]
fn constants_are_predicted_as_what_is_tracked() {
    for config in all_heads(VOCAB) {
        for dtype in [DType::F32, DType::F64] {
            let tolerance = if dtype == DType::F64 { 1e-12 } else { 4e-6 };
            let (plain, ad) = (cpu(), ad());
            let heads = [&plain, &ad].map(|device| head(&config, (device, dtype)).mask_words(&[1, 8]));
            let hidden = [&plain, &ad].map(|device| tensor::<2>([9, config.d_hidden], 1, (device, dtype)));
            let [constant, tracked] = [0, 1].map(|i| heads[i].forward(hidden[i].clone()));
            assert!(tracked.is_tracked(), "{config:?}");
            let close = |got: Tensor<2>, want: Tensor<2>, what: &str| {
                let what = format!("{config:?} {dtype:?}: {what}");
                assert_close(&values(got), &values(want), tolerance, &what);
            };
            close(constant.clone(), tracked, "log-probabilities");
            let [top, tracked] = [0, 1].map(|i| heads[i].top_k(hidden[i].clone(), 5));
            assert!(tracked.log_probs.is_tracked(), "{config:?}");
            close(top.log_probs, tracked.log_probs, "of the best words");
            let [blocks, tracked] = [0, 1].map(|i| {
                let blocks = heads[i].logit_blocks(hidden[i].clone());
                Tensor::cat(blocks.collect(), 0)
            });
            close(blocks, tracked, "logits");
            // Nothing is tracked, though the device could.
            let frozen = heads[1].clone().no_grad();
            let rows = frozen.forward(hidden[1].clone());
            assert!(rows.is_autodiff() && !rows.is_tracked());
            assert_eq!(values(rows), values(constant), "{config:?} {dtype:?}");
            for sampling in [Sampling::new(), Sampling::new().with_temperature(0.7).with_top_k(Some(9))] {
                let [got, tracked] = [0, 1].map(|i| drawn(&heads[i], hidden[i].clone(), &sampling, 3));
                assert_eq!(got, tracked, "{config:?} {dtype:?} {sampling:?}");
            }
        }
    }
}

#[test]
fn draws_take_one_number_a_token_after_one_for_each_component() {
    let device = cpu();
    for (config, each) in [(softmax(VOCAB), 1), (moc(VOCAB), 1), (mos(VOCAB), 2)] {
        let head = head(&config, (&device, DType::F64));
        let hidden = tensor::<2>([7, config.d_hidden], 1, (&device, DType::F64));
        let taken = |sampling: &Sampling| {
            let mut rng = Pcg64::seed_from_u64(9);
            head.sample::<2, 1>(hidden.clone(), sampling, &mut rng).unwrap();
            let mut other = Pcg64::seed_from_u64(9);
            (0..100).find(|_| {
                let same = other == rng;
                let _: f64 = other.random();
                same
            })
        };
        assert_eq!(taken(&Sampling::new()), Some(7 * each), "{config:?}");
        assert_eq!(taken(&Sampling::new().with_temperature(0.5)), Some(7), "{config:?}");
        assert_eq!(taken(&Sampling::new().with_temperature(0.0)), Some(0), "{config:?}");
    }
}

#[test]
fn padded_words_are_never_predicted() {
    let device = cpu();
    let config = mos(11).with_vocab_multiple(8);
    let head = head(&config, (&device, DType::F32));
    let hidden = tensor([20, HIDDEN], 2, (&device, DType::F32));
    assert_eq!(head.forward(hidden.clone()).dims(), [20, 16]);
    let top = integers(head.top_k(hidden.clone(), 11).words);
    assert!(top.iter().all(|&word| word < 11), "{top:?}");
    let refused = panic_of(|| drop(head.top_k(hidden.clone(), 12)));
    assert_eq!(refused, "top_k: k is 12, expected 1 to the vocabulary's 11");
    for sampling in [Sampling::new(), Sampling::new().with_top_k(Some(16))] {
        assert!(drawn(&head, hidden.clone(), &sampling, 1).iter().all(|&word| word < 11));
    }
}

#[test]
fn rows_that_are_no_numbers_are_refused_by_their_token() {
    let device = cpu();
    for config in all_heads(VOCAB) {
        for budget in [Some(1), None] {
            let head = head(&config.clone().with_memory_budget(budget), (&device, DType::F32));
            let hidden = tensor::<2>([6, config.d_hidden], 1, (&device, DType::F32));
            let hidden = hidden.slice_fill(4..5, f64::NAN).reshape([2, 3, config.d_hidden]);
            let error = HeadError::NotANumber { token: 4 };
            let refused = panic_of(|| drop(head.top_k(hidden.clone(), 3)));
            assert_eq!(refused, format!("top_k: {error}"), "{config:?}");
            for sampling in [Sampling::new(), Sampling::new().with_temperature(0.0)] {
                let mut rng = Pcg64::seed_from_u64(1);
                let drawn = head.sample::<3, 2>(hidden.clone(), &sampling, &mut rng);
                assert_eq!(drawn.unwrap_err(), error, "{config:?}");
            }
        }
    }
}

#[test]
fn misuse_is_told_in_a_line() {
    let device = cpu();
    let config = mos(VOCAB);
    let head = head(&config, (&device, DType::F32));
    let tied = config.with_tied(true).init(&device);
    let narrow = || tensor::<2>([2, HIDDEN - 1], 1, (&device, DType::F32));
    let good = || tensor::<2>([2, HIDDEN], 1, (&device, DType::F32));
    let narrow_line = "hidden has shape [2, 5], expected [.., 6] with at least one token";
    assert_eq!(panic_of(|| drop(head.forward(narrow()))), format!("forward: {narrow_line}"));
    assert_eq!(panic_of(|| drop(head.log_prob_blocks(narrow()))), format!("log_prob_blocks: {narrow_line}"));
    assert_eq!(panic_of(|| drop(head.logit_blocks(narrow()))), format!("logit_blocks: {narrow_line}"));
    assert_eq!(panic_of(|| drop(head.top_k(narrow(), 2))), format!("top_k: {narrow_line}"));
    assert_eq!(panic_of(|| drop(head.top_k(good(), 0))), "top_k: k is 0, expected 1 to the vocabulary's 40");
    assert_eq!(
        panic_of(|| drop(head.top_k(good() * f64::NAN, 2))),
        "top_k: a log-probability of token 0 is NaN or +∞: no word can be chosen by it"
    );
    assert_eq!(panic_of(|| drop(tied.forward(good()))), format!("forward: {}", HeadError::MissingDecoder));
    assert_eq!(panic_of(|| drop(tied.top_k(good(), 2))), format!("top_k: {}", HeadError::MissingDecoder));

    let shape = |error: HeadError| matches!(error, HeadError::Shape { .. });
    let mut rng = Pcg64::seed_from_u64(1);
    assert!(shape(head.sample::<2, 1>(narrow(), &Sampling::new(), &mut rng).unwrap_err()));
    assert!(shape(head.sample::<2, 2>(good(), &Sampling::new(), &mut rng).unwrap_err()));
    let wrong = Sampling::new().with_top_k(Some(0));
    let error = head.sample::<2, 1>(good(), &wrong, &mut rng).unwrap_err();
    assert!(matches!(error, HeadError::Range { name: "top_k", .. }));
}
