//! The head as its users see it: shapes, sampling, records, and the messages of misuse.

use burn::module::Module;
use burn::nn::EmbeddingConfig;
use burn::store::ModuleRecord;
use burn::tensor::{DType, Int, Tensor};
use highrank::context::DirectConfig;
use highrank::{ContextConfig, HeadConfig, LogitMapConfig, LossOptions, Sampling, TimeAxis};
use rand::SeedableRng;
use rand_pcg::Pcg64;

use crate::support::*;

const VOCAB: usize = 11;

#[test]
fn leading_dimensions_of_any_rank_are_accepted() {
    let device = cpu();
    let head = head(&mos(VOCAB), (&device, DType::F32));
    let flat = tensor([12, HIDDEN], 1, (&device, DType::F32));
    let words = targets(12, VOCAB, &device);
    let cube = flat.clone().reshape([3, 2, 2, HIDDEN]);
    assert_eq!(head.forward(cube.clone()).dims(), [3, 2, 2, VOCAB]);
    let nll: Tensor<3> = head.nll(cube.clone(), words.clone().reshape([3, 2, 2]));
    assert_eq!(nll.dims(), [3, 2, 2]);
    let want = values(head.nll(flat.clone(), words.clone()));
    assert_close(&values(nll), &want, 0.0, "nll of a cube");
    let loss = values(head.loss(cube.clone(), words.reshape([3, 2, 2])));
    assert_close(&loss, &[want.iter().sum::<f64>() / 12.0], 1e-6, "loss of a cube");
    let top = head.top_k(cube.clone(), 4);
    assert_eq!((top.log_probs.dims(), top.words.dims()), ([3, 2, 2, 4], [3, 2, 2, 4]));
    let mut rng = Pcg64::seed_from_u64(1);
    let drawn: Tensor<3, Int> = head.sample(cube, &Sampling::default(), &mut rng).unwrap();
    assert_eq!(drawn.dims(), [3, 2, 2]);
}

#[test]
fn drawn_words_follow_the_distribution() {
    const DRAWS: usize = 20_000;
    let on = (&cpu(), DType::F64);
    for config in adaptive_heads(VOCAB).into_iter().chain([mos(VOCAB)]) {
        let head = head(&config, on);
        let row = tensor([1, config.d_hidden], 1, on);
        let probs: Vec<f64> = values(head.forward(row.clone())).into_iter().map(f64::exp).collect();
        let rows = row.repeat_dim(0, DRAWS);
        for sampling in [
            Sampling::new(),
            // Of the mixture itself, by a truncation that truncates nothing.
            Sampling::new().with_top_k(Some(VOCAB)),
            Sampling::new().with_temperature(1.5),
            Sampling::new().with_top_k(Some(6)).with_temperature(0.7),
            Sampling::new().with_top_p(Some(0.8)),
        ] {
            // What the options make of the distribution, by its definition.
            let mut order: Vec<usize> = (0..VOCAB).collect();
            order.sort_by(|a, b| probs[*b].total_cmp(&probs[*a]));
            order.truncate(sampling.top_k.unwrap_or(VOCAB));
            if let Some(p) = sampling.top_p {
                let mut sum = 0.0;
                let enough = order.iter().position(|word| {
                    sum += probs[*word];
                    sum >= p
                });
                order.truncate(enough.unwrap() + 1);
            }
            let mut want = [0.0; VOCAB];
            order.iter().for_each(|word| want[*word] = probs[*word].powf(1.0 / sampling.temperature));
            let total: f64 = want.iter().sum();
            let mut counts = [0.0; VOCAB];
            let words = drawn(&head, rows.clone(), &sampling, 11);
            words.into_iter().for_each(|word| counts[word as usize] += 1.0 / DRAWS as f64);
            for (word, (got, want)) in counts.iter().zip(&want).enumerate() {
                // Four standard deviations of a frequency of 20,000 draws are at most 0.0142.
                assert!((got - want / total).abs() < 0.015, "{sampling:?}: {got} of word {word}, {want}");
                assert!(*want > 0.0 || *got == 0.0, "{sampling:?}: word {word}");
            }
        }
        let (greedy, mut rng) = (Sampling::new().with_temperature(0.0), Pcg64::seed_from_u64(11));
        let words = head.sample::<2, 1>(rows, &greedy, &mut rng).unwrap();
        let best = (0..VOCAB).max_by(|a, b| probs[*a].total_cmp(&probs[*b])).unwrap() as i64;
        assert!(integers(words).iter().all(|word| *word == best));
        assert_eq!(rng, Pcg64::seed_from_u64(11));
    }
}

#[test]
fn records_round_trip() {
    let device = cpu();
    for config in all_heads(VOCAB) {
        let saved = head(&config, (&device, DType::F32));
        let bytes = saved.clone().into_record().into_bytes().unwrap();
        let record = ModuleRecord::from_bytes(bytes).unwrap();
        let loaded = config.init(&device).load_record(record);
        let hidden = || tensor([3, config.d_hidden], 1, (&device, DType::F32));
        let want = values(saved.forward(hidden()));
        assert_close(&values(loaded.forward(hidden())), &want, 0.0, &format!("{config:?}"));
        assert_eq!(saved.num_params(), loaded.num_params());
    }
}

#[test]
fn parameters_are_counted() {
    let device = cpu();
    let count = |config: HeadConfig| config.init(&device).num_params();
    let (h, d, v, k) = (HIDDEN, EMBEDDING, VOCAB, 3);
    assert_eq!(count(HeadConfig::softmax(d, v)), v * d + v);
    assert_eq!(count(HeadConfig::softmax(d, v).with_bias(false).with_tied(true)), 0);
    assert_eq!(count(HeadConfig::mos(h, d, v, k)), v * d + v + k * h + k * d * h + k * d);
    assert_eq!(count(HeadConfig::plif(d, v, 100)), v * d + v + 100 + 1);
    assert_eq!(count(HeadConfig::generalised_sigsoftmax(d, v)), v * d + v + 2);
    assert_eq!(count(HeadConfig::monotonic_net(d, v, 4)), v * d + v + 13);
}

#[test]
fn configurations_survive_json() {
    for config in all_heads(VOCAB) {
        let config = match config.context {
            ContextConfig::Direct(_) => config,
            _ => config.with_latent_dropout(0.29, TimeAxis::Second),
        };
        let text = serde_json::to_string(&config).unwrap();
        assert_eq!(serde_json::from_str::<HeadConfig>(&text).unwrap(), config);
    }
}

#[test]
fn invalid_configurations_say_what_is_wrong() {
    let device = cpu();
    let cases = [
        (HeadConfig::mos(0, 4, 10, 2), "d_hidden is 0, expected at least 1"),
        (HeadConfig::mos(6, 0, 10, 2), "d_embedding is 0, expected at least 1"),
        (HeadConfig::mos(6, 4, 0, 2), "vocab is 0, expected at least 1"),
        (HeadConfig::mos(6, 4, 10, 0), "components is 0, expected at least 1"),
        (HeadConfig::plif(4, 10, 0), "knots is 0, expected 1 to 1,000,000"),
        (HeadConfig::plif(4, 10, 1_000_001), "knots is 1000001, expected 1 to 1,000,000"),
        (
            HeadConfig::softmax(4, 10).with_logit_map(LogitMapConfig::Plif { knots: 8, bound: -1.0 }),
            "PLIF's bound T is -1, expected a positive number of at most 10,000",
        ),
        (
            HeadConfig::softmax(4, 10).with_logit_map(LogitMapConfig::Plif { knots: 8, bound: 1e7 }),
            "PLIF's bound T is 10000000, expected a positive number of at most 10,000",
        ),
        (
            HeadConfig::softmax(4, 10).with_logit_map(LogitMapConfig::Plif { knots: 8, bound: 1e308 }),
            "PLIF's bound T is 1e308, expected a positive number of at most 10,000",
        ),
        (HeadConfig::soft_cap(4, 10, f64::NAN), "cap is NaN, expected a positive finite number"),
        (HeadConfig::monotonic_net(4, 10, 0), "units is 0, expected 1 to 1,000,000"),
        (
            HeadConfig::mos(6, 4, 10, 2).with_latent_dropout(1.0, TimeAxis::First),
            "latent dropout is 1, expected a probability in [0, 1)",
        ),
    ];
    for (config, message) in cases {
        assert_eq!(config.validate().unwrap_err().to_string(), message);
        let panic = panic_of(|| drop(config.init(&device)));
        assert_eq!(panic, format!("HeadConfig::init: {message}"));
    }
    let direct = HeadConfig::new(6, 4, 10);
    assert_eq!(direct.context, ContextConfig::Direct(DirectConfig));
    assert_eq!(direct.logit_map, LogitMapConfig::Identity);
    let message = direct.validate().unwrap_err().to_string();
    assert!(
        message.starts_with("d_hidden is 6, expected d_embedding, 4: a head without mixture"),
        "{message}"
    );
}

#[test]
fn misuse_panics_with_both_shapes() {
    let check = |run: &dyn Fn(), message: &str| assert_eq!(panic_of(run), message);
    let state = || tensor::<2>([3, HIDDEN], 1, (&cpu(), DType::F32));
    let words = |words: [i64; 3]| Tensor::<1, Int>::from_data(words, &cpu());
    let owned = || head(&mos(VOCAB), (&cpu(), DType::F32));
    let tied = || head(&mos(VOCAB).with_tied(true), (&cpu(), DType::F32));
    check(
        &|| drop(owned().nll(state(), targets(4, VOCAB, &cpu()))),
        "nll: targets has shape [4], expected [3], as the hidden state says",
    );
    check(
        &|| drop(owned().nll(state(), words([0, 11, 2]))),
        "nll: target 11 at token 1 is outside the vocabulary 0..11",
    );
    check(
        &|| drop(owned().loss(state(), words([0, 1, -1]))),
        "loss: target -1 at token 2 is outside the vocabulary 0..11",
    );
    check(
        &|| drop(tied().forward(state())),
        "forward: this head has no decoder matrix of its own: call `head.tied_to(embedding)` first",
    );
    check(
        &|| drop(owned().tied_to(tensor([VOCAB, EMBEDDING], 1, (&cpu(), DType::F32)))),
        "OutputHead::tied_to: this head owns its decoder matrix: configure it `with_tied(true)` to use another",
    );
}

#[test]
fn tracked_target_distributions_are_constants() {
    let on = (&ad(), DType::F32);
    let leaf = tensor([3, VOCAB], 2, on).abs().detach().require_grad();
    let hidden = tensor([3, HIDDEN], 1, on).detach().require_grad();
    let head = head(&mos(VOCAB), on);
    let loss = |rows: Tensor<2>| {
        let options = LossOptions::new().with_distributions(rows);
        head.loss_with(hidden.clone(), targets(3, VOCAB, on.0), &options).value
    };
    let tracked = loss(leaf.clone().mul_scalar(0.5));
    tracked.clone().into_data().assert_eq(&loss(leaf.clone().detach().mul_scalar(0.5)).into_data(), true);
    let grads = tracked.backward();
    assert!(leaf.grad(&grads).is_none() && hidden.grad(&grads).is_some());
}

#[test]
fn blocks_are_the_rows_of_the_whole() {
    let device = cpu();
    let hidden = || tensor([5, 2, HIDDEN], 4, (&device, DType::F64));
    // Room for the logits of three tokens of three components.
    let head = head(&mos(VOCAB).with_memory_budget(Some(3 * 3 * VOCAB * 8)), (&device, DType::F64));
    let blocks: Vec<_> = head.log_prob_blocks(hidden()).collect();
    assert_eq!(blocks.iter().map(|block| block.dims()).collect::<Vec<_>>(), [3, 3, 3, 1].map(|n| [n, VOCAB]));
    let whole = head.forward(hidden()).reshape([10, VOCAB]);
    Tensor::cat(blocks, 0).into_data().assert_approx_eq::<f64>(&whole.into_data(), Default::default());

    let rows: Vec<usize> = head.logit_blocks(hidden()).map(|block| block.dims()[0]).collect();
    assert_eq!(rows, [9, 9, 9, 3]);

    // Without mixture or map, the log-probabilities are the normalised logits.
    let head = crate::support::head(&softmax(VOCAB), (&device, DType::F64));
    let hidden = tensor([4, EMBEDDING], 4, (&device, DType::F64));
    let logits = Tensor::cat(head.logit_blocks(hidden.clone()).collect(), 0);
    let got = burn::tensor::activation::log_softmax(logits, 1);
    got.into_data().assert_approx_eq::<f64>(&head.forward(hidden).into_data(), Default::default());
}

#[test]
fn a_lent_matrix_is_trained_if_the_embedding_is() {
    for frozen in [false, true] {
        let embedding = EmbeddingConfig::new(VOCAB, EMBEDDING).init(&cpu());
        let embedding = if frozen { embedding.freeze() } else { embedding };
        let tied = mos(VOCAB).with_tied(true).init(&cpu()).tied_to(&embedding).train();
        let hidden = tensor::<2>([4, HIDDEN], 1, (&ad(), DType::F32));
        let gradients = tied.loss(hidden, targets(4, VOCAB, &ad())).backward();
        let matrix = tied.decoder.weight.as_ref().unwrap().val();
        assert_eq!(matrix.grad(&gradients).is_none(), frozen);
    }
}
