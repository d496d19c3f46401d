//! Padded vocabularies and masked words: probability 0, gradients of exactly 0, and nothing that training, a record or
//! another device could undo.

use burn::module::Module;
use burn::nn::EmbeddingConfig;
use burn::store::ModuleRecord;
use burn::tensor::{DType, Device, Int, Tensor};
use highrank::{HeadConfig, OutputHead};

use crate::support::*;

const VOCAB: usize = 11;
const ROWS: usize = 16;
const MASKED: [usize; 2] = [0, 7];

/// Five rows of padding and two masked words.
fn padded(config: HeadConfig) -> HeadConfig {
    config.with_vocab_multiple(8).with_masked_words(MASKED.to_vec())
}

fn is_masked(row: usize) -> bool {
    row >= VOCAB || MASKED.contains(&row)
}

/// Targets that are no masked words.
fn words(tokens: usize, device: &Device) -> Tensor<1, Int> {
    let words: Vec<i64> = (0..tokens).map(|i| [1, 2, 3, 4, 5, 6, 8, 9, 10][i * 5 % 9]).collect();
    Tensor::from_data(words.as_slice(), device)
}

/// Checks that exactly the masked words have probability 0, and that the others make 1.
#[track_caller]
fn check_masked(head: &OutputHead, hidden: Tensor<2>, what: &str) {
    let log_probs = head.forward(hidden);
    assert_eq!(log_probs.dims()[1], ROWS, "{what}");
    for row in values(log_probs).chunks(ROWS) {
        for (word, log_prob) in row.iter().enumerate() {
            assert!(!log_prob.is_nan(), "{what}: NaN at {word}");
            assert_eq!(*log_prob == f64::NEG_INFINITY, is_masked(word), "{what}: {log_prob} at {word}");
        }
        let sum: f64 = row.iter().map(|x| x.exp()).sum();
        assert!((sum - 1.0).abs() < 1e-5, "{what}: probabilities sum to {sum}");
    }
}

#[test]
fn masked_words_are_as_if_they_were_not_there() {
    let device = cpu();
    for config in all_heads(VOCAB) {
        for with_bias in [true, false] {
            let config = config.clone().with_bias(with_bias);
            let full = head(&padded(config.clone()), (&device, DType::F64));
            let unmasked: Vec<i64> =
                (0..VOCAB).filter(|row| !is_masked(*row)).map(|row| row as i64).collect();
            let rows = Tensor::<1, Int>::from_data(unmasked.as_slice(), &device);
            let small = with_words(&full, &config, &unmasked);

            let hidden = tensor([4, config.d_hidden], 1, (&device, DType::F64));
            check_masked(&full, hidden.clone(), &format!("{config:?}"));
            let got = values(full.forward(hidden.clone()).select(1, rows));
            let want = values(small.forward(hidden.clone()));
            assert_close(&got, &want, 1e-12, &format!("log-probabilities of {config:?}"));

            let small_words: Vec<i64> = values(words(4, &device).float())
                .iter()
                .map(|word| unmasked.iter().position(|x| *x as f64 == *word).unwrap() as i64)
                .collect();
            let small_words = Tensor::<1, Int>::from_data(small_words.as_slice(), &device);
            let want = values(small.nll(hidden.clone(), small_words));
            let got = values(full.nll(hidden, words(4, &device)));
            assert_close(&got, &want, 1e-12, &format!("nll of {config:?}"));
        }
    }
}

#[test]
fn masked_words_get_no_gradient() {
    let device = ad();
    for config in all_heads(VOCAB) {
        let head = head(&padded(config.clone()), (&device, DType::F32));
        let hidden = tensor([4, config.d_hidden], 1, (&device, DType::F32)).require_grad();
        for fused in [true, false] {
            let words = words(4, &device);
            let loss = match fused {
                true => head.loss(hidden.clone(), words),
                false => head.nll(hidden.clone(), words).mean(),
            };
            let store = loss.backward();
            let weight = values(head.decoder.weight.as_ref().unwrap().val().grad(&store).unwrap());
            let bias = values(head.decoder.bias.as_ref().unwrap().val().grad(&store).unwrap());
            for row in 0..ROWS {
                let gradients =
                    [&weight[row * EMBEDDING..(row + 1) * EMBEDDING], &bias[row..row + 1]].concat();
                let zero = gradients.iter().all(|x| *x == 0.0);
                assert_eq!(zero, is_masked(row), "{gradients:?} of row {row}, {config:?}");
            }
            assert!(values(hidden.grad(&store).unwrap()).iter().all(|x| x.is_finite()));
        }
    }
}

#[test]
fn masks_follow_the_head() {
    let config = padded(mos(VOCAB));
    let plain = |seed| tensor([4, HIDDEN], seed, (&cpu(), DType::F32));
    let tracked = |seed| tensor([4, HIDDEN], seed, (&ad(), DType::F32));
    let trained = head(&config, (&ad(), DType::F32));
    check_masked(&trained, tracked(1), "in training");
    check_masked(&trained.valid(), plain(1), "valid");
    check_masked(&trained.valid().train(), tracked(1), "train");
    check_masked(&trained.clone().fork(&ad()), tracked(1), "fork");
    check_masked(&trained.valid().to_device(&cpu()), plain(1), "to_device");
    let checkpointing = ad().gradient_checkpointing();
    let moved = config.init(&checkpointing);
    check_masked(&moved, tensor([4, HIDDEN], 1, (&checkpointing, DType::F32)), "gradient checkpointing");

    let bytes = trained.clone().into_record().into_bytes().unwrap();
    let loaded = config.init(&cpu()).load_record(ModuleRecord::from_bytes(bytes).unwrap());
    check_masked(&loaded, plain(1), "a record");
    let want = values(trained.forward(tracked(1)));
    for (got, want) in values(loaded.forward(plain(1))).iter().zip(want) {
        assert!(got == &want || (got - want).abs() < 1e-6);
    }

    // Masks are no parameters.
    let rows = mos(ROWS).init(&cpu());
    assert_eq!(trained.num_params(), rows.num_params());
    let other = head(
        &HeadConfig { vocab: ROWS, vocab_multiple: 1, masked_words: vec![], ..config },
        (&cpu(), DType::F32),
    );
    // Parameters of another device alone, as a mapper may leave them, meet the mask that stays behind.
    let mut mixed = trained.clone();
    (mixed.context, mixed.decoder.weight, mixed.decoder.bias) =
        (other.context, other.decoder.weight, other.decoder.bias);
    check_masked(&mixed, plain(1), "a mask left behind");
}

#[test]
fn words_are_masked_for_a_while() {
    let device = cpu();
    for with_bias in [true, false] {
        let config = mos(VOCAB).with_bias(with_bias).with_vocab_multiple(8);
        let head = head(&config, (&device, DType::F32));
        let hidden = || tensor([4, HIDDEN], 1, (&device, DType::F32));
        let before = values(head.forward(hidden()));
        let masked = head.clone().mask_words(&[7]).mask_words(&[0, 7]);
        assert_eq!(masked.masked_words(), MASKED);
        check_masked(&masked, hidden(), "masked for a while");
        assert_eq!(values(head.forward(hidden())), before);
        assert!(before[..VOCAB].iter().all(|x| x.is_finite()));
    }
}

#[test]
fn tied_heads_pad_the_embedding() {
    for device in [cpu(), ad()] {
        let embedding = EmbeddingConfig::new(ROWS, EMBEDDING).init(&device);
        let hidden = tensor([4, HIDDEN], 1, (&device, DType::F32));
        for with_bias in [true, false] {
            let config = padded(mos(VOCAB)).with_tied(true).with_bias(with_bias);
            let head = head(&config, (&device, DType::F32));
            let mut owned = head.clone();
            owned.decoder.weight = Some(embedding.weight.clone());
            check_masked(&owned, hidden.clone(), "owned");
            let got = values(head.tied_to(&embedding).forward(hidden.clone()));
            assert_eq!(got, values(owned.forward(hidden.clone())));
        }
    }
    // No tensor of this head says where it is.
    let config = softmax(VOCAB).with_tied(true).with_bias(false);
    let head = config.init(&cpu()).mask_words(&[3]);
    let embedding = EmbeddingConfig::new(VOCAB, EMBEDDING).init(&ad());
    let log_probs = head.tied_to(&embedding).forward(tensor([1, EMBEDDING], 1, (&ad(), DType::F32)));
    let masked: Vec<bool> = values(log_probs).iter().map(|x| *x == f64::NEG_INFINITY).collect();
    assert_eq!(masked, (0..VOCAB).map(|word| word == 3).collect::<Vec<_>>());

    let short = EmbeddingConfig::new(VOCAB, EMBEDDING).init(&cpu());
    let config = padded(softmax(VOCAB)).with_tied(true);
    let head = config.init(&cpu());
    let message = panic_of(|| drop(head.tied_to(&short)));
    assert_eq!(
        message,
        "OutputHead::tied_to: the tied embedding matrix has shape [11, 5], expected [16, 5], as the head's other \
         parameters say"
    );
}

#[test]
fn padding_is_no_target() {
    let nll = |word: i64| {
        let head = padded(mos(VOCAB)).init(&cpu());
        let hidden = tensor([1, HIDDEN], 1, (&cpu(), DType::F32));
        values(head.nll(hidden, Tensor::<1, Int>::from_data([word], &cpu())))[0]
    };
    assert!(nll(10).is_finite());
    let message = panic_of(|| {
        nll(11);
    });
    assert_eq!(message, "nll: target 11 at token 0 is outside the vocabulary 0..11");
}
