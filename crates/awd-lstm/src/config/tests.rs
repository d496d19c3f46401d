use super::*;

#[test]
fn parameter_counts_of_the_presets() {
    let count = |preset: Preset, head, vocab| preset.model(head, vocab).num_params();
    assert_eq!(count(Preset::Paper, HeadKind::Mos, 10_000), 21_500_620);
    assert_eq!(count(Preset::Small, HeadKind::Mos, 10_000), 1_966_096);
    assert_eq!(count(Preset::Small, HeadKind::Softmax, 10_000), 1_882_896);
    // What the papers print, in millions, rounded.
    let published = [
        (Preset::Paper, HeadKind::Mos, 10_000, 22),
        (Preset::AwdLstm, HeadKind::Softmax, 10_000, 24),
        (Preset::Wikitext2, HeadKind::Mos, 33_278, 35),
        (Preset::BillionWord, HeadKind::Softmax, 100_000, 119),
        (Preset::BillionWord, HeadKind::Mos, 100_000, 113),
    ];
    for (preset, head, vocab, millions) in published {
        assert_eq!((count(preset, head, vocab) as f64 / 1e6).round(), f64::from(millions), "{preset} {head}");
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
    assert!(message.contains("huge") && message.contains("small, paper, awd-lstm, wikitext2"), "{message}");
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
    assert!(model_error(|c| c.dropouts.output = 1.0).contains("dropout.output"));
    assert!(model_error(|c| c.dropouts.hidden = -0.1).contains("dropout.hidden"));
    assert!(model_error(|c| c.dropouts.input = f64::NAN).contains("dropout.input"));
    assert!(model_error(|c| c.dropouts.latent = 2.0).contains("dropout.latent"));
    assert!(model_error(|c| c.dropouts.embedding = 1.0).contains("dropout.embedding"));
    assert!(model_error(|c| c.dropouts.weight = 1.0).contains("dropout.weight"));
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
    let edits: [(&str, Edit); 10] = [
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
    ];
    for (name, edit) in edits {
        let mut config = Preset::Small.train();
        edit(&mut config);
        let message = config.validate().unwrap_err().to_string();
        assert!(message.contains(name), "{message}");
    }
}

#[test]
fn unknown_keys_are_refused() {
    let mut json = serde_json::to_value(Preset::Small.model(HeadKind::Mos, 10)).unwrap();
    let back: ModelConfig = serde_json::from_value(json.clone()).unwrap();
    assert_eq!(back, Preset::Small.model(HeadKind::Mos, 10));
    json["dropout"] = 0.5.into();
    assert!(serde_json::from_value::<ModelConfig>(json).unwrap_err().to_string().contains("dropout"));
}
