use awd_lstm::HeadKind;

use super::*;

/// V of Switchboard: 10,000 tokens, `<pad>` and `<unk>`.
const VOCAB: usize = 10_002;

#[test]
fn presets_have_the_documented_numbers_of_parameters() {
    for (preset, head, parameters, of_head, latent) in [
        (Preset::Paper, HeadKind::Softmax, 11_309_202, 4_010_802, 400),
        (Preset::Paper, HeadKind::Moc, 11_305_822, 4_007_422, 285),
        (Preset::Paper, HeadKind::Mos, 11_305_822, 4_007_422, 285),
        (Preset::Small, HeadKind::Softmax, 3_496_114, 2_010_402, 200),
        (Preset::Small, HeadKind::Moc, 3_488_981, 2_003_269, 181),
        (Preset::Small, HeadKind::Mos, 3_488_981, 2_003_269, 181),
    ] {
        let model = preset.model(head, VOCAB);
        let counts = (model.num_params(), model.head_params(), model.d_latent());
        assert_eq!(counts, (parameters, of_head, latent), "{preset} {head}");
    }
}

#[test]
fn other_heads_add_the_parameters_of_their_maps() {
    let params = |head| Preset::Small.model(head, VOCAB).num_params();
    let (softmax, mos) = (params(HeadKind::Softmax), params(HeadKind::Mos));
    assert_eq!(params(HeadKind::Sigsoftmax), softmax);
    assert_eq!(params(HeadKind::Gss), softmax + 2);
    assert_eq!(params(HeadKind::Plif), softmax + 100_001);
    assert_eq!(params(HeadKind::MosPlif), mos + 100_001);
}

#[test]
fn a_mixture_is_no_larger_than_a_softmax_and_with_one_more_feature_it_is() {
    for vocab in [6, 30, 999, 10_002] {
        for hidden in [1, 2, 17, 200] {
            let softmax = head_params(vocab, hidden, hidden, 0);
            for components in [1, 2, 5, 15, 40] {
                let latent = largest_latent(vocab, hidden, components);
                let size = |latent| head_params(vocab, hidden, latent, components);
                assert!(latent == 0 || size(latent) <= softmax, "{vocab} {hidden} {components}");
                assert!(size(latent + 1) > softmax, "{vocab} {hidden} {components}");
                assert!(latent < hidden);
            }
        }
    }
}

#[test]
fn no_size_overflows() {
    let most = usize::MAX;
    for sizes in
        [[0, 0, 0], [most, most, most], [most, most, 1], [most, 1, most], [1, most, most], [0, most, 1]]
    {
        let [vocab, hidden, components] = sizes;
        let latent = largest_latent(vocab, hidden, components);
        assert!(latent <= hidden);
        assert!(head_params(vocab, hidden, latent, components) <= most);
    }
    let huge = ModelConfig { d_context: most, ..Preset::Small.model(HeadKind::Mos, VOCAB) };
    assert_eq!(huge.num_params(), most);
    let message = huge.validate().unwrap_err().to_string();
    assert!(message.starts_with("parameters is"), "{message}");
}

#[test]
fn every_preset_is_valid_with_every_head() {
    for preset in Preset::ALL {
        preset.train().validate().unwrap();
        for &head in HeadKind::ALL {
            let checked = preset.model(head, VOCAB).validate();
            let refused = matches!(head, HeadKind::Doc | HeadKind::Adaptive | HeadKind::Mixtape);
            assert_eq!(checked.is_ok(), !refused, "{head}");
        }
        assert_eq!(preset.to_string().parse::<Preset>().unwrap(), *preset);
    }
    let message = "huge".parse::<Preset>().unwrap_err().to_string();
    assert_eq!(message, "unknown preset `huge`; known: small, paper");
}

#[test]
fn configurations_survive_serialisation_and_refuse_unknown_fields() {
    let (model, train) = (Preset::Paper.model(HeadKind::MosPlif, VOCAB), Preset::Paper.train());
    let text = serde_json::to_string(&model).unwrap();
    assert_eq!(serde_json::from_str::<ModelConfig>(&text).unwrap(), model);
    assert!(serde_json::from_str::<ModelConfig>(&text.replacen('{', "{\"x\": 1,", 1)).is_err());
    let text = serde_json::to_string(&train).unwrap();
    assert_eq!(serde_json::from_str::<TrainConfig>(&text).unwrap(), train);
    assert!(serde_json::from_str::<TrainConfig>(&text.replacen("clip", "clop", 1)).is_err());
}

#[test]
fn the_first_wrong_setting_is_named() {
    type Model = fn(&mut ModelConfig);
    let wrong: [(Model, &str); 18] = [
        (|model| model.head = HeadKind::Mixtape, "head is mixtape, but must be one without gates for words"),
        (|model| model.head = HeadKind::Doc, "head is doc, but must be one that reads the last layer alone"),
        (
            |model| model.head = HeadKind::Adaptive,
            "head is adaptive, but must be one over all words together",
        ),
        (|model| model.vocab = 5, "vocab is 5, but must be at least 6"),
        (|model| model.d_embedding = 0, "d_embedding is 0"),
        (|model| model.d_utterance = 0, "d_utterance is 0"),
        (|model| model.d_context = 0, "d_context is 0"),
        (|model| model.d_decoder = 0, "d_decoder is 0"),
        (|model| model.window = 0, "window is 0"),
        (|model| model.components = 0, "components is 0"),
        (|model| model.components = VOCAB, "components is 10002, but must be at least 1, and so few"),
        (|model| model.knots = 0, "knots is 0"),
        (|model| model.plif_bound = f64::INFINITY, "plif_bound is inf"),
        (|model| model.plif_bound = 1e308, "PLIF's bound T is 1e308"),
        (|model| model.dropout = 1.0, "dropout is 1, but must be in [0, 1)"),
        (|model| model.dropout = f64::NAN, "dropout is NaN"),
        (|model| model.init = 0.0, "init is 0"),
        (|model| model.init = f64::NAN, "init is NaN"),
    ];
    for (edit, expected) in wrong {
        let mut model = Preset::Small.model(HeadKind::MosPlif, VOCAB);
        edit(&mut model);
        let message = model.validate().unwrap_err().to_string();
        assert!(message.starts_with(expected), "{message}");
    }
    type Train = fn(&mut TrainConfig);
    let wrong: [(Train, &str); 10] = [
        (|train| train.run = 0, "run is 0"),
        (|train| train.batch = 0, "batch is 0, but must be a multiple of run"),
        (|train| train.batch = 31, "batch is 31, but must be a multiple of run"),
        (|train| train.updates = 0, "updates is 0"),
        (|train| train.epochs = 0, "epochs is 0"),
        (|train| train.lr = 0.0, "lr is 0"),
        (|train| train.clip = f64::NAN, "clip is NaN"),
        (|train| train.stop.patience = 0, "stop.patience is 0"),
        (|train| train.stop.improvement = 1.1, "stop.improvement is 1.1"),
        (|train| train.stop.increase = 0, "stop.increase is 0"),
    ];
    for (edit, expected) in wrong {
        let mut train = Preset::Small.train();
        edit(&mut train);
        let message = train.validate().unwrap_err().to_string();
        assert!(message.starts_with(expected), "{message}");
    }
}
