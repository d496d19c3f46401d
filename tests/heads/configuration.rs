//! What a configuration says: starting values, files without later fields, options without effect, parameters of a linear
//! layer, and how a head prints.

use burn::module::{Initializer, Module, Param};
use burn::nn::{EmbeddingConfig, Linear, LinearConfig, LinearLayout};
use burn::store::ModuleRecord;
use burn::tensor::activation::log_softmax;
use burn::tensor::{DType, Device, Tensor};
use highrank::context::{Context, MixtapeConfig, MixtureConfig};
use highrank::{
    AdaptiveConfig, BeamSearch, ContextConfig, FinishedHypotheses, HeadConfig, HeadError, LatentDropout,
    LogitMapConfig, LossOptions, OutputHead, Precision, Sampling, TimeAxis,
};

use crate::support::*;

const VOCAB: usize = 11;

fn weight(head: &OutputHead) -> Vec<f64> {
    values(head.decoder.weight.as_ref().unwrap().val())
}

fn bias(head: &OutputHead) -> Vec<f64> {
    values(head.decoder.bias.as_ref().unwrap().val())
}

/// Whether values fill the interval of that bound: none outside, and one beyond half of it.
fn is_uniform(values: &[f64], bound: f64) -> bool {
    let largest = values.iter().fold(0.0, |max: f64, x| max.max(x.abs()));
    largest <= bound * (1.0 + 1e-6) && largest > bound / 2.0
}

#[test]
fn parameters_start_from_their_initialisers() {
    let device = cpu();
    let head = mos(VOCAB).init(&device);
    let components = mos(VOCAB).context.components();
    assert_eq!(weight(&head).len(), VOCAB * EMBEDDING);
    assert!(is_uniform(&weight(&head), 0.1));
    assert!(bias(&head).iter().all(|x| *x == 0.0));
    let mixture = |head: &OutputHead| match &head.context {
        Context::MixtureOfSoftmaxes(mixture) => {
            let latent = values(mixture.latent.weight.val());
            [values(mixture.prior.weight.val()), latent, values(mixture.latent.bias.as_ref().unwrap().val())]
        }
        other => panic!("{other}"),
    };
    let [prior, latent, latent_bias] = mixture(&head);
    assert_eq!((prior.len(), latent_bias.len()), (HIDDEN * components, components * EMBEDDING));
    for values in [prior, latent, latent_bias] {
        assert!(is_uniform(&values, 1.0 / (HIDDEN as f64).sqrt()));
    }

    let constant = |value| Initializer::Constant { value };
    let mixture_config = MixtureConfig { initializer: constant(-0.5), ..MixtureConfig::new(3) };
    let context = ContextConfig::MixtureOfSoftmaxes(mixture_config);
    let head = mos(VOCAB).with_initializer(constant(0.25)).with_context(context).init(&device);
    assert!(weight(&head).iter().all(|x| *x == 0.25));
    assert!(bias(&head).iter().all(|x| *x == 0.0));
    assert!(mixture(&head).concat().iter().all(|x| *x == -0.5));

    // One that depends on the number of inputs, d, and one on that of outputs too.
    let kaiming = Initializer::KaimingUniform { gain: 1.0, fan_out_only: false };
    let bound = (3.0 / EMBEDDING as f64).sqrt();
    assert!(is_uniform(&weight(&softmax(VOCAB).with_initializer(kaiming).init(&device)), bound));
    let xavier = Initializer::XavierUniform { gain: 1.0 };
    let bound = (6.0 / (EMBEDDING + VOCAB) as f64).sqrt();
    assert!(is_uniform(&weight(&softmax(VOCAB).with_initializer(xavier).init(&device)), bound));
}

#[test]
fn files_may_lack_what_was_added_later() {
    let text = r#"{
        "d_hidden": 6, "d_embedding": 5, "vocab": 11,
        "context": {"MixtureOfSoftmaxes": {"components": 3}}, "logit_map": {"Plif": {"knots": 9, "bound": 7.0}},
        "bias": true, "tied": false, "memory_budget": null, "precision": "bf16"
    }"#;
    let plif = LogitMapConfig::Plif { knots: 9, bound: 7.0 };
    let want = mos(VOCAB).with_logit_map(plif).with_precision(Precision::Bf16);
    assert_eq!(serde_json::from_str::<HeadConfig>(text).unwrap(), want);
    // What is not known is not passed over.
    let text = text.replace(r#""bias": true"#, r#""latent_dropout": 0.29, "bias": true"#);
    let error = serde_json::from_str::<HeadConfig>(&text).unwrap_err().to_string();
    assert!(error.contains("unknown field `latent_dropout`"), "{error}");
}

#[test]
fn options_of_predictions_survive_json() {
    let sampling = Sampling::new().with_temperature(0.5).with_top_k(Some(3)).with_top_p(Some(0.9));
    let text = serde_json::to_string(&sampling).unwrap();
    assert_eq!(serde_json::from_str::<Sampling>(&text).unwrap(), sampling);
    let error = serde_json::from_str::<Sampling>(r#"{"topk": 3}"#).unwrap_err().to_string();
    assert!(error.contains("unknown field `topk`"), "{error}");
    assert_eq!(serde_json::from_str::<Sampling>("{}").unwrap(), Sampling::default());

    let plain = BeamSearch::new(3, 9, 1);
    let search = plain.clone().with_n_best(2).with_alpha(0.5).with_forbidden(vec![2]);
    let search = search.with_finished(FinishedHypotheses::KeepPlace);
    let text = serde_json::to_string(&search).unwrap();
    assert_eq!(serde_json::from_str::<BeamSearch>(&text).unwrap(), search);
    let text = r#"{"width": 3, "max_length": 9, "eos": 1}"#;
    assert_eq!(serde_json::from_str::<BeamSearch>(text).unwrap(), plain);
    let error = serde_json::from_str::<BeamSearch>(&text.replace("eos", "end")).unwrap_err().to_string();
    assert!(error.contains("unknown field `end`"), "{error}");
}

#[test]
fn dropout_set_by_its_field_is_checked() {
    let on = (&ad(), DType::F64);
    for config in every_head(VOCAB) {
        let mut head = head(&config, on);
        let dropout = Some(LatentDropout { probability: 1.0, time_axis: TimeAxis::First });
        match &mut head.context {
            Context::MixtureOfContexts(module) | Context::MixtureOfSoftmaxes(module) => {
                module.dropout = dropout
            }
            Context::DirectOutputConnection(module) => module.dropout = dropout,
            Context::Mixtape(module) => module.dropout = dropout,
            _ => continue,
        }
        let state = tensor::<2>([2, config.d_hidden], 1, on);
        let made = head.try_loss_with(state, targets(2, VOCAB, on.0), &LossOptions::new());
        let error = made.unwrap_err().to_string();
        assert_eq!(error, "latent dropout is 1, expected a probability in [0, 1)", "{config:?}");
    }
}

#[test]
fn a_bound_set_by_its_field_is_checked() {
    let on = (&cpu(), DType::F64);
    let mut head = head(&HeadConfig::plif(HIDDEN, VOCAB, 17), on);
    if let highrank::logit_map::LogitMap::Plif(map) = &mut head.logit_map {
        map.bound = 1e7;
    }
    let made =
        head.try_loss_with(tensor::<2>([2, HIDDEN], 1, on), targets(2, VOCAB, on.0), &LossOptions::new());
    let error = made.unwrap_err().to_string();
    assert_eq!(error, "PLIF's bound T is 10000000, expected a positive number of at most 10,000");
}

#[test]
fn every_option_survives_json() {
    let mixture = MixtureConfig { initializer: Initializer::Ones, ..MixtureConfig::new(3) };
    let config = HeadConfig::new(HIDDEN, EMBEDDING, VOCAB)
        .with_context(ContextConfig::MixtureOfSoftmaxes(mixture.clone()))
        .with_logit_map(LogitMapConfig::Plif { knots: 9, bound: 3.0 })
        .with_latent_dropout(0.29, TimeAxis::Second)
        .with_bias(false)
        .with_initializer(Initializer::Zeros)
        .with_vocab_multiple(64)
        .with_masked_words(vec![3, 1])
        .with_memory_budget(Some(1 << 20))
        .with_precision(Precision::Bf16);
    config.validate().unwrap();
    let dropout = Some(LatentDropout { probability: 0.29, time_axis: TimeAxis::Second });
    let mixture = MixtureConfig { dropout, ..mixture };
    assert_eq!(config.context, ContextConfig::MixtureOfSoftmaxes(mixture));
    let text = serde_json::to_string(&config).unwrap();
    assert_eq!(serde_json::from_str::<HeadConfig>(&text).unwrap(), config);
    assert_eq!(serde_json::from_str::<HeadConfig>(&config.to_string()).unwrap(), config);
}

#[test]
fn options_without_effect_are_errors() {
    let device = cpu();
    let zeros = Initializer::Zeros;
    let tied = mos(VOCAB).with_tied(true).with_initializer(zeros.clone());
    let error = tied.validate().unwrap_err();
    assert!(matches!(error, HeadError::Unused { option: "initializer", .. }));
    assert_eq!(
        error.to_string(),
        "initializer is set, but a tied head has no decoder matrix: initialise the embedding that it is tied to"
    );
    let panic = panic_of(|| drop(tied.init(&device)));
    assert_eq!(panic, format!("HeadConfig::init: {error}"));
    let panic = panic_of(|| drop(softmax(VOCAB).with_latent_dropout(0.3, TimeAxis::First)));
    assert_eq!(
        panic,
        "with_latent_dropout: a head without mixture has no latent features to drop: use a mixture, or drop hidden \
         features"
    );
    let used = [
        HeadConfig::moc(6, 5, 11, 3).with_latent_dropout(0.3, TimeAxis::First),
        softmax(VOCAB).with_latent_dropout(0.0, TimeAxis::Second),
        softmax(VOCAB).with_initializer(zeros),
    ];
    for config in used {
        config.validate().unwrap();
    }
    let plif = softmax(VOCAB).with_logit_map(LogitMapConfig::Plif { knots: 9, bound: 5.0 }).init(&device);
    assert!(matches!(plif.logit_map, highrank::logit_map::LogitMap::Plif(map) if map.bound == 5.0));
}

#[test]
fn sizes_that_no_memory_holds_are_errors() {
    let padded = |config: HeadConfig, multiple: usize| config.with_vocab_multiple(multiple);
    let cases = [
        (padded(HeadConfig::softmax(8, 10), usize::MAX), usize::MAX),
        (padded(HeadConfig::softmax(8, 10), 1 << 62), 1 << 62),
        (padded(HeadConfig::softmax(8, usize::MAX), 64), usize::MAX),
        (HeadConfig::softmax(8, 1 << 58), 1 << 58),
    ];
    for (config, rows) in cases {
        assert_eq!(config.decoder_rows(), rows);
        let error = config.validate().expect_err("too large");
        assert_eq!(error, HeadError::TooLarge { what: "the decoder's weight", shape: vec![rows, 8] });
        let panic = panic_of(|| drop(config.init(&cpu())));
        assert_eq!(panic, format!("HeadConfig::init: {error}"));
    }
    let error = HeadConfig::mos(1 << 40, 8, 10, 1 << 40).validate().expect_err("too large");
    assert!(matches!(error, HeadError::TooLarge { what: "the contexts' weight", .. }), "{error}");
    let gates = |frequent, d_gate| {
        let context = ContextConfig::Mixtape(MixtapeConfig::new(frequent, d_gate));
        HeadConfig::new(4, 2, VOCAB).with_context(context)
    };
    let layers = |layers: &[(usize, usize)]| HeadConfig::direct_output_connection(layers, 1, VOCAB);
    for config in [
        HeadConfig::monotonic_net(4, VOCAB, usize::MAX),
        gates(1, usize::MAX),
        gates(1, usize::MAX / 40),
        layers(&[(usize::MAX, 1), (2, 1)]),
        HeadConfig::softmax(8, 1 << 60).with_adaptive(AdaptiveConfig::new(vec![10])),
        padded(HeadConfig::softmax(8, usize::MAX), 64).with_adaptive(AdaptiveConfig::new(vec![10])),
        layers(&[(4, usize::MAX), (4, 2)]),
    ] {
        config.validate().expect_err(&format!("{config:?}"));
    }
}

#[test]
fn numbers_that_a_head_in_f32_cannot_hold_are_errors() {
    for value in [1e308, 1e39, 1e38, 1e-39, 1e-300] {
        let error = HeadConfig::soft_cap(4, VOCAB, value).validate().unwrap_err();
        assert!(error.to_string().ends_with("which the type of sums holds"), "{error}");
        // A PLIF's bound ends long before.
        let error = softmax_plif(value).validate().unwrap_err();
        let end = if value > 1.0 { "at most 10,000" } else { "which the type of sums holds" };
        assert!(error.to_string().ends_with(end), "{error}");
    }
}

fn softmax_plif(bound: f64) -> HeadConfig {
    softmax(VOCAB).with_logit_map(LogitMapConfig::Plif { knots: 10, bound })
}

#[test]
fn wrong_masks_and_multiples_are_errors() {
    let cases = [
        (softmax(VOCAB).with_vocab_multiple(0), "vocab_multiple is 0, expected at least 1"),
        (
            softmax(VOCAB).with_masked_words(vec![2, 11]),
            "a masked word is 11, expected a word of the vocabulary 0..11",
        ),
        (
            softmax(VOCAB).with_masked_words((0..VOCAB).collect()),
            "all 11 words are masked, but a distribution needs at least one",
        ),
    ];
    for (config, message) in cases {
        assert_eq!(config.validate().unwrap_err().to_string(), message);
    }
    // A word that is named twice counts once.
    softmax(VOCAB).with_masked_words(vec![3; VOCAB]).validate().unwrap();
    let head = softmax(VOCAB).with_vocab_multiple(8).init(&cpu());
    let masking = |head: OutputHead, words: &[usize]| panic_of(|| drop(head.mask_words(words)));
    let wrong = "OutputHead::mask_words: a masked word is 11, expected a word of the vocabulary 0..11";
    assert_eq!(masking(head.clone(), &[11]), wrong);
    let rest: Vec<usize> = (1..VOCAB).collect();
    let none_left = HeadError::NoWordLeft { vocab: VOCAB };
    assert_eq!(masking(head.mask_words(&rest), &[0]), format!("OutputHead::mask_words: {none_left}"));
}

fn linear(device: &Device) -> Linear {
    LinearConfig::new(EMBEDDING, VOCAB).init(device)
}

#[test]
fn a_head_takes_over_a_linear_layer() {
    for device in [cpu(), ad()] {
        let hidden = tensor([4, EMBEDDING], 1, (&device, DType::F32));
        for with_bias in [true, false] {
            for layout in [LinearLayout::Row, LinearLayout::Col] {
                let config = LinearConfig::new(EMBEDDING, VOCAB).with_bias(with_bias).with_layout(layout);
                let linear = config.init(&device);
                let want = values(log_softmax(linear.forward(hidden.clone()), 1));
                let plain = OutputHead::from(linear.clone());
                assert_close(&values(plain.forward(hidden.clone())), &want, 1e-6, "the layer's softmax");

                // The layer's parameter may transpose itself when it is saved; the decoder's does not.
                let record = plain.clone().into_record().into_bytes().unwrap();
                let record = ModuleRecord::from_bytes(record).unwrap();
                let loaded = softmax(VOCAB).with_bias(with_bias).init(&device).load_record(record);
                assert_close(&values(loaded.forward(hidden.clone())), &want, 1e-6, "after a record");

                // Whatever the head, with the padding masked.
                let padded =
                    HeadConfig::plif(EMBEDDING, VOCAB, 9).with_bias(with_bias).with_vocab_multiple(8);
                let padded = padded.init_from_linear(linear);
                let log_probs = padded.forward(hidden.clone());
                assert_eq!(log_probs.dims(), [4, 16]);
                let words = values(log_probs.clone().slice([0..4, 0..VOCAB]));
                assert_close(&words, &want, 1e-5, "a padded PLIF");
                let rest = values(log_probs.slice([0..4, VOCAB..16]));
                assert!(rest.iter().all(|x| *x == f64::NEG_INFINITY), "{rest:?}");
            }
        }
    }
}

#[test]
fn a_linear_layer_that_is_padded_already_fits() {
    let device = cpu();
    let linear = LinearConfig::new(EMBEDDING, 16).init(&device);
    let hidden = tensor([4, EMBEDDING], 1, (&device, DType::F32));
    let words = linear.forward(hidden.clone()).slice([0..4, 0..VOCAB]);
    let want = values(log_softmax(words, 1));
    let head = softmax(VOCAB).with_vocab_multiple(8).init_from_linear(linear);
    assert_close(&values(head.forward(hidden).slice([0..4, 0..VOCAB])), &want, 1e-6, "of the words");
}

#[test]
fn parameters_of_a_linear_layer_keep_what_can_be_kept() {
    for device in [cpu(), ad()] {
        let layer = linear(&device);
        let head = softmax(VOCAB).init_from_linear(layer.clone());
        let (weight, bias) = (head.decoder.weight.unwrap(), head.decoder.bias.unwrap());
        assert_ne!(weight.id, layer.weight.id);
        assert_eq!(bias.id, layer.bias.as_ref().unwrap().id);
        let padded = softmax(VOCAB).with_vocab_multiple(8).init_from_linear(layer.clone());
        assert_ne!(padded.decoder.bias.unwrap().id, layer.bias.as_ref().unwrap().id);
        let trained = |param: Param<Tensor<2>>| param.train().val().is_require_grad();
        assert!(trained(weight));

        let frozen = Linear { weight: layer.weight.set_require_grad(false), bias: layer.bias };
        for multiple in [1, 8] {
            let head = softmax(VOCAB).with_vocab_multiple(multiple).init_from_linear(frozen.clone());
            assert!(!trained(head.decoder.weight.unwrap()));
            assert!(head.decoder.bias.unwrap().train().val().is_require_grad());
        }
    }
}

#[test]
fn a_head_takes_the_type_of_its_linear_layer() {
    for device in [cpu(), ad()] {
        let weight = tensor([EMBEDDING, VOCAB], 1, (&device, DType::F64));
        let bias = tensor([VOCAB], 2, (&device, DType::F64));
        let layer = Linear { weight: Param::from_tensor(weight), bias: Some(Param::from_tensor(bias)) };
        let head = HeadConfig::mos_plif(HIDDEN, EMBEDDING, VOCAB, 3, 9).init_from_linear(layer);
        let types: Vec<DType> = parameters(&head, None).iter().map(|(value, _)| value.dtype()).collect();
        assert_eq!(types, [DType::F64; 7]);
        assert_eq!(head.forward(tensor([2, HIDDEN], 1, (&device, DType::F64))).dtype(), DType::F64);
        let trained = head.clone().train();
        assert_eq!(trained.num_params(), head.num_params());
    }
}

#[test]
fn a_linear_layer_that_does_not_fit_is_refused() {
    let refused = |config: HeadConfig, layer: Linear| {
        let panic = panic_of(|| drop(config.init_from_linear(layer)));
        panic.strip_prefix("HeadConfig::init_from_linear: ").expect("the method's name").to_string()
    };
    let layer = || linear(&cpu());
    assert_eq!(
        refused(softmax(12), layer()),
        "the linear layer's weight has shape [5, 11], expected [5, 12], [d_embedding, vocabulary] of the head"
    );
    assert_eq!(
        refused(HeadConfig::softmax(4, VOCAB).with_vocab_multiple(8), layer()),
        "the linear layer's weight has shape [5, 11], expected [4, 11] or, padded, [4, 16], [d_embedding, vocabulary] \
         of the head"
    );
    assert_eq!(
        refused(softmax(VOCAB).with_bias(false), layer()),
        "the linear layer and the head must both have a bias, or neither: set `with_bias(true)`"
    );
    let bare = LinearConfig::new(EMBEDDING, VOCAB).with_bias(false).init(&cpu());
    assert_eq!(
        refused(softmax(VOCAB), bare),
        "the linear layer and the head must both have a bias, or neither: set `with_bias(false)`"
    );
    let uneven = Linear { weight: layer().weight, bias: LinearConfig::new(1, 4).init(&cpu()).bias };
    assert_eq!(
        refused(softmax(VOCAB), uneven),
        "the linear layer's bias has shape [4], expected [11], as its weight says"
    );
    assert_eq!(
        refused(softmax(VOCAB).with_tied(true), layer()),
        "tied is set, but the decoder is made from a linear layer: use `init`, or a head that is not tied"
    );
    assert_eq!(
        refused(mos(VOCAB).with_latent_dropout(2.0, TimeAxis::First), layer()),
        "latent dropout is 2, expected a probability in [0, 1)"
    );
}

#[test]
fn a_head_is_tied_to_an_embedding_layer() {
    let device = ad();
    let embedding = EmbeddingConfig::new(VOCAB, EMBEDDING).init(&device);
    let head = head(&mos(VOCAB).with_tied(true), (&device, DType::F32));
    let made = |tied: OutputHead| {
        let hidden = tensor([4, HIDDEN], 1, (&device, DType::F32));
        let nll = tied.nll(hidden, targets(4, VOCAB, &device));
        let store = nll.clone().sum().backward();
        let gradient = embedding.weight.val().grad(&store).expect("a gradient of the embedding");
        [values(nll), values(gradient)]
    };
    let by_layer = made(head.tied_to(&embedding));
    assert!(by_layer[1].iter().any(|x| x.abs() > 1e-3), "{:?}", by_layer[1]);
    assert_eq!(made(head.tied_to(&embedding.weight)), by_layer);
    assert_eq!(made(head.tied_to(embedding.weight.val())), by_layer);
}

#[test]
fn heads_print_as_burns_modules_do() {
    let device = cpu();
    let printed = |config: HeadConfig| config.init(&device).to_string();
    assert_eq!(
        printed(softmax(VOCAB)),
        "OutputHead {
  context: Direct
  logit_map: Identity
  decoder: Decoder {d_embedding: 5, vocab: 11, bias: true, tied: false, params: 66}
  precision: Full
  params: 66
}"
    );
    let full = mos_plif(VOCAB)
        .with_latent_dropout(0.29, TimeAxis::First)
        .with_vocab_multiple(8)
        .with_masked_words(vec![4])
        .with_memory_budget(Some(1000))
        .with_precision(Precision::Bf16);
    assert_eq!(
        printed(full),
        "OutputHead {
  context: MixtureOfSoftmaxes {d_hidden: 6, d_embedding: 5, components: 3, dropout: 0.29, time_axis: First, params: 123}
  logit_map: Plif {knots: 17, bound: 20, params: 18}
  decoder: Decoder {d_embedding: 5, vocab: 11, padding: 5, masked_words: 1, bias: true, tied: false, params: 96}
  precision: Bf16
  memory_budget: 1000
  params: 237
}"
    );
    let moc = moc(VOCAB).with_tied(true).with_bias(false);
    assert_eq!(
        printed(moc.with_logit_map(LogitMapConfig::SoftCap { cap: 2.5 })),
        "OutputHead {
  context: MixtureOfContexts {d_hidden: 6, d_embedding: 5, components: 3, params: 123}
  logit_map: SoftCap {cap: 2.5}
  decoder: Decoder {d_embedding: 5, vocab: 11, bias: false, tied: true}
  precision: Full
  params: 123
}"
    );
    for (config, line) in [
        (HeadConfig::sigsoftmax(5, 11), "  logit_map: Sigsoftmax\n"),
        (HeadConfig::generalised_sigsoftmax(5, 11), "  logit_map: Gss\n"),
        (HeadConfig::monotonic_net(5, 11, 4), "  logit_map: MonotonicNet {units: 4, params: 13}\n"),
    ] {
        let text = printed(config);
        assert!(text.contains(line), "no `{line}` in\n{text}");
    }
}
