mod published;

use super::*;
use published::{PUBLISHED_SIZES, PublishedSize, published_table};

/// The four models of table 1 of LMS-PLIF, the five of table 12 of the mixtures' paper, and every other number.
#[test]
fn the_presets_have_the_papers_numbers_of_parameters() {
    let count = |size: &PublishedSize| size.model().num_params();
    for size in PUBLISHED_SIZES {
        let (parameters, case) = (count(size), format!("{} {}", size.preset, size.head));
        assert_eq!(size.rounds_to_printed(parameters), size.remark.is_empty(), "{case}: {parameters}");
        if size.preset.name().starts_with("text8") {
            assert!(size.deviation().abs() < 0.01, "{case}: {parameters}");
        }
    }
    let of = |preset| PUBLISHED_SIZES.iter().filter(move |size| size.preset == preset);
    let lms: Vec<usize> = of(Preset::LmsPlif).map(count).collect();
    assert_eq!(lms, [24_221_600, 24_321_601, 26_633_600, 27_633_601]);
    // A second number for every knot brings both to the printed digits.
    for size in of(Preset::LmsPlif).filter(|size| size.head.has_plif()) {
        assert!(size.rounds_to_printed(count(size) + size.model().knots - 1));
    }
    let text8: Vec<usize> = PUBLISHED_SIZES.iter().filter(|size| size.vocab == 27).map(count).collect();
    assert_eq!(text8, [8_424_475, 8_448_517, 8_474_277, 8_432_711, 8_434_394]);
    let cut = of(Preset::AwdLstmWikitext2).map(count).next().unwrap();
    assert_eq!(cut / 1_000_000, 33);
}

#[test]
fn the_documented_table_is_that_of_the_presets() {
    let page = include_str!("../../README.md");
    for line in published_table().lines() {
        assert!(page.lines().any(|of_page| of_page == line), "README.md lacks the line\n{line}");
    }
}

#[test]
fn presets_are_trained_and_read_as_the_papers_say() {
    use runs::data::TextConfig;
    let table_1 = Preset::LmsPlif;
    assert_eq!((table_1.train().lr, table_1.finetune_lr()), (20.0, 20.0));
    for (head, knots) in [(HeadKind::Plif, 100_000), (HeadKind::MosPlif, 1_000_000)] {
        let model = table_1.model(head, 10_000);
        assert_eq!((model.d_embedding, model.knots), (400, knots), "{head}");
    }
    let billion = Preset::BillionWord;
    let train = billion.train();
    assert_eq!((train.alpha, train.beta, train.batch, train.bptt), (0.0, 0.0, 60, 35));
    assert_eq!(billion.model(HeadKind::Mos, 9).dropouts, Dropouts::NONE);
    let words = TextConfig { lower_case: true, vocab_size: Some(100_000), characters: false };
    assert_eq!(billion.text(), words);
    assert_eq!(Preset::Wikitext2.train().max_seq_len_delta, 20);
    assert_eq!(Preset::Paper.train().max_seq_len_delta, 40);
    let baseline = Preset::AwdLstm.train();
    assert_eq!((baseline.batch, baseline.lr, baseline.seed), (20, 30.0, 141));
    let baseline = Preset::AwdLstmWikitext2.train();
    assert_eq!((baseline.batch, baseline.lr, baseline.seed), (80, 30.0, 1882));
    for (doc, mos) in [(Preset::Doc, Preset::Paper), (Preset::DocWikitext2, Preset::Wikitext2)] {
        let (train, of_mos) = (doc.train(), mos.train());
        assert_eq!(
            (train.nonmono, train.prior_cv, train.epochs, doc.finetune_lr()),
            (60, 0.001, 500, of_mos.lr)
        );
        assert_eq!((train.batch, train.lr, train.seed), (of_mos.batch, of_mos.lr, of_mos.seed));
        assert_eq!((train.max_seq_len_delta, of_mos.prior_cv), (of_mos.max_seq_len_delta, 0.0));
        let (model, of_mos) = (doc.model(HeadKind::Doc, 9), mos.model(HeadKind::Mos, 9));
        assert_eq!((model.components, model.lower_components.as_slice()), (15, [5].as_slice()));
        assert_eq!((model.dropouts.latent, of_mos.dropouts.latent), (0.6, 0.29));
        let dropouts = Dropouts { latent: 0.29, ..model.dropouts };
        let same = ModelConfig { dropouts, head: HeadKind::Mos, lower_components: vec![], ..model };
        assert_eq!(same, of_mos);
    }
    for preset in Preset::ALL {
        assert_eq!(preset.text().characters, preset.name().starts_with("text8"), "{preset}");
    }
}

#[test]
fn every_preset_is_valid_with_every_head() {
    for preset in Preset::ALL {
        preset.train().validate().unwrap();
        for head in HeadKind::ALL {
            let config = preset.model(*head, 10_000);
            config.validate().unwrap();
            config.head_config().validate().unwrap();
        }
    }
}

#[test]
fn names_round_trip_and_unknown_ones_list_the_known() {
    for head in HeadKind::ALL {
        assert_eq!(head.to_string().parse::<HeadKind>().unwrap(), *head);
        assert_eq!(serde_json::to_string(head).unwrap(), format!("\"{head}\""));
    }
    for preset in Preset::ALL {
        assert_eq!(preset.to_string().parse::<Preset>().unwrap(), *preset);
    }
    let message = "mso".parse::<HeadKind>().unwrap_err().to_string();
    assert!(message.contains("mso") && message.contains("mos-plif"), "{message}");
    let message = "huge".parse::<Preset>().unwrap_err().to_string();
    assert!(
        message.contains("huge") && message.contains("small, paper, doc, awd-lstm, lms-plif, wikitext2"),
        "{message}"
    );
}

fn model_error(edit: impl Fn(&mut ModelConfig)) -> String {
    let mut config = Preset::Small.model(HeadKind::MosPlif, 100);
    edit(&mut config);
    let message = config.validate().unwrap_err().to_string();
    assert!(!message.contains('\n'), "{message}");
    message
}

#[test]
fn bad_model_settings_are_named() {
    assert!(model_error(|c| c.vocab = 0).contains("vocab"));
    assert!(model_error(|c| c.d_embedding = 0).contains("d_embedding"));
    assert!(model_error(|c| c.lstm_sizes.clear()).contains("lstm_sizes"));
    assert!(model_error(|c| c.lstm_sizes[0] = 0).contains("lstm_sizes"));
    assert!(model_error(|c| c.components = 0).contains("components"));
    assert!(model_error(|c| c.knots = 0).contains("knots"));
    assert!(model_error(|c| c.plif_bound = 0.0).contains("plif_bound"));
    assert!(model_error(|c| c.plif_bound = f64::NAN).contains("plif_bound"));
    // What f32 cannot compute with, and pieces too narrow for it.
    for bound in [1e308, 1e39, 1e38, 1e-46, 1e-37] {
        assert!(model_error(|c| (c.plif_bound, c.knots) = (bound, 1_000_000)).contains("PLIF"), "{bound}");
    }
    for cutoffs in [vec![0], vec![50, 20], vec![5, 5]] {
        let message = model_error(|c| c.cutoffs = cutoffs.clone());
        assert!(message.contains("cutoffs is [") && message.contains("in ascending order"), "{message}");
        assert!(!message.contains("vocabulary"), "{message}");
    }
    assert!(model_error(|c| c.cutoffs = vec![100]).contains("vocabulary"));
    assert!(model_error(|c| c.start_spread = Some(-0.1)).contains("start_spread"));
    assert!(model_error(|c| c.start_spread = Some(f64::NAN)).contains("start_spread"));
    assert!(
        model_error(|c| (c.head, c.start_spread) = (HeadKind::Mixtape, Some(0.0)))
            .contains("moc, mos and mos-plif")
    );
    assert!(model_error(|c| c.dropouts.output = 1.0).contains("dropout.output"));
    assert!(model_error(|c| c.dropouts.hidden = -0.1).contains("dropout.hidden"));
    assert!(model_error(|c| c.dropouts.input = f64::NAN).contains("dropout.input"));
    assert!(model_error(|c| c.dropouts.latent = 2.0).contains("dropout.latent"));
    assert!(model_error(|c| c.dropouts.embedding = 1.0).contains("dropout.embedding"));
    assert!(model_error(|c| c.dropouts.weight = 1.0).contains("dropout.weight"));
}

#[test]
fn components_from_below_need_a_layer_each_and_are_some() {
    let with = |lower: &[usize]| ModelConfig {
        lower_components: lower.to_vec(),
        ..Preset::Paper.model(HeadKind::Doc, 100)
    };
    // Three LSTMs: two below the last, and the embedding.
    for lower in [[5].as_slice(), &[0, 5], &[1, 2, 3], &[0, 0, 1]] {
        with(lower).validate().unwrap();
    }
    let error = |lower: &[usize]| with(lower).validate().unwrap_err().to_string();
    assert_eq!(
        error(&[1, 1, 1, 1]),
        "lower_components is [1, 1, 1, 1], but must be one number for each layer below the last LSTM, the embedding \
         included, at most"
    );
    for none in [[].as_slice(), &[0, 0]] {
        let message = error(none);
        assert!(
            message.contains("above 0 for at least one layer; without any, it is the head mos"),
            "{message}"
        );
    }
    // Other heads do not read them.
    ModelConfig { head: HeadKind::Mos, ..with(&[]) }.validate().unwrap();
}

#[test]
fn connections_go_from_the_lowest_layer_to_the_last() {
    let config = ModelConfig { lower_components: vec![5, 0, 2], ..Preset::Paper.model(HeadKind::Doc, 100) };
    let layers: Vec<[usize; 3]> =
        config.connections().iter().map(|of| [of.layer, of.d_hidden, of.components]).collect();
    assert_eq!(layers, [[0, 280, 2], [2, 960, 5], [3, 620, 15]]);
    assert_eq!(config.head_config().d_hidden, 280 + 960 + 620);
    assert_eq!(config.mixture_params(), (22 * 620, 280 * (2 * 281 + 5 * 961 + 15 * 621)));
    let mos = ModelConfig { head: HeadKind::Mos, ..config };
    assert_eq!(mos.connections().iter().map(|of| of.layer).collect::<Vec<_>>(), [3]);
    assert_eq!(mos.mixture_params(), (15 * 620, 15 * 280 * 621));
}

#[test]
fn sizes_beyond_every_memory_are_refused() {
    for edit in [
        (|c: &mut ModelConfig| c.vocab = usize::MAX) as fn(&mut ModelConfig),
        |c| c.d_embedding = usize::MAX / 2,
        |c| c.lstm_sizes[0] = usize::MAX - 1,
        |c| c.components = 1 << 40,
    ] {
        let message = model_error(edit);
        assert!(message.contains("parameters is ") && message.contains("at most 2^40"), "{message}");
    }
}

#[test]
fn the_last_lstm_of_a_head_without_mixture_has_the_width_of_the_embedding() {
    let mut config = Preset::Paper.model(HeadKind::Softmax, 100);
    assert_eq!(config.lstm_sizes, [960, 960, 280]);
    config.lstm_sizes[2] = 620;
    let message = config.validate().unwrap_err().to_string();
    assert!(message.contains("620") && message.contains("280"), "{message}");
}

#[test]
fn bad_training_settings_are_named() {
    type Edit = fn(&mut TrainConfig);
    const fn decay(factor: f64, when: DecayWhen) -> Option<LrDecay> {
        Some(LrDecay { factor, when })
    }
    let edits: [(&str, Edit); 19] = [
        ("batch", |c| c.batch = 0),
        ("bptt", |c| c.bptt = 0),
        ("eval_batch", |c| c.eval_batch = 0),
        ("test_batch", |c| c.test_batch = 0),
        ("epochs", |c| c.epochs = 0),
        ("lr", |c| c.lr = f64::INFINITY),
        ("clip", |c| c.clip = 0.0),
        ("weight_decay", |c| c.weight_decay = -1.0),
        ("alpha", |c| c.alpha = f64::NAN),
        ("beta", |c| c.beta = -1.0),
        ("prior_cv is -1", |c| c.prior_cv = -1.0),
        ("prior_cv is inf", |c| c.prior_cv = f64::INFINITY),
        ("validate_every is 0", |c| c.validate_every = Some(0)),
        ("patience is 0", |c| c.patience = Some(0)),
        ("lr_decay.factor is 1", |c| c.lr_decay = decay(1.0, DecayWhen::Plateau)),
        ("lr_decay.factor is NaN", |c| c.lr_decay = decay(f64::NAN, DecayWhen::Plateau)),
        ("lr_decay.from.epoch is 0", |c| c.lr_decay = decay(0.5, DecayWhen::From { epoch: 0 })),
        ("max_minutes is 0", |c| c.max_minutes = Some(0.0)),
        ("max_minutes is inf", |c| c.max_minutes = Some(f64::INFINITY)),
    ];
    for (name, edit) in edits {
        let mut config = Preset::Small.train();
        edit(&mut config);
        let message = config.validate().unwrap_err().to_string();
        assert!(message.contains(name), "{message}");
    }
}

/// Runs of earlier versions lack what is optional, and what is not used is not written.
#[test]
fn optional_training_settings_are_read_and_written() {
    let plain = serde_json::to_value(Preset::Small.train()).unwrap();
    for key in ["validate_every", "patience", "lr_decay", "max_minutes", "test", "prior_cv"] {
        assert!(plain.get(key).is_none(), "{key}");
    }
    assert_eq!(serde_json::from_value::<TrainConfig>(plain).unwrap(), Preset::Small.train());
    for (when, json) in [
        (DecayWhen::Plateau, r#"{"factor":0.5,"when":"plateau"}"#),
        (DecayWhen::From { epoch: 7 }, r#"{"factor":0.5,"when":{"from":{"epoch":7}}}"#),
    ] {
        let lr_decay = Some(LrDecay { factor: 0.5, when });
        assert_eq!(serde_json::to_string(&lr_decay).unwrap(), json);
        let config = TrainConfig {
            validate_every: Some(100),
            patience: Some(3),
            lr_decay,
            max_minutes: Some(0.5),
            prior_cv: 0.001,
            test: false,
            ..Preset::Small.train()
        };
        config.validate().unwrap();
        let back: TrainConfig = serde_json::from_str(&serde_json::to_string(&config).unwrap()).unwrap();
        assert_eq!(back, config);
    }
}

#[test]
fn unknown_keys_are_refused() {
    let mut json = serde_json::to_value(Preset::Small.model(HeadKind::Mos, 10)).unwrap();
    let back: ModelConfig = serde_json::from_value(json.clone()).unwrap();
    assert_eq!(back, Preset::Small.model(HeadKind::Mos, 10));
    // Nor is what other heads alone have written.
    assert!(json.get("lower_components").is_none());
    let doc = Preset::Small.model(HeadKind::Doc, 10);
    assert_eq!(serde_json::from_value::<ModelConfig>(serde_json::to_value(&doc).unwrap()).unwrap(), doc);
    json["dropout"] = 0.5.into();
    assert!(serde_json::from_value::<ModelConfig>(json).unwrap_err().to_string().contains("dropout"));
}
