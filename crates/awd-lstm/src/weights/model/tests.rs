use super::*;
use std::collections::BTreeMap;
use std::fs;

use burn::tensor::Distribution;

use crate::config::{Dropouts, HeadKind};
use crate::weights::Noted;

fn config(head: HeadKind) -> ModelConfig {
    ModelConfig {
        d_embedding: 4,
        lstm_sizes: vec![6, if head.has_contexts() { 5 } else { 4 }],
        components: if head.is_mixture() { 3 } else { 1 },
        // Two from the first LSTM, one from the embedding.
        lower_components: if head.reads_layers() { vec![2, 1] } else { vec![] },
        frequent: (head == HeadKind::Mixtape).then_some(4),
        d_gate: if head == HeadKind::Mixtape { 3 } else { ModelConfig::D_GATE },
        knots: if head.has_plif() { 8 } else { 1 },
        plif_bound: 7.0,
        dropouts: Dropouts { weight: 0.5, ..Dropouts::NONE },
        ..ModelConfig::tiny(head, 11)
    }
}

fn model(config: &ModelConfig) -> LanguageModel {
    config.try_init(&Device::flex()).unwrap()
}

/// Every parameter's path and bytes.
fn bits(model: &LanguageModel) -> Vec<(String, Vec<u8>)> {
    let parameters = parameters(model).into_iter();
    parameters.map(|parameter| (parameter.name.clone(), values(&parameter).as_bytes().to_vec())).collect()
}

/// The configuration that tensors have if all of `config` but them and the dropouts is told.
fn told(state: &StateDict, config: &ModelConfig) -> ModelConfig {
    let plif_bound = Some(config.plif_bound);
    let model = state.model_config(&Noted { plif_bound, ..Noted::of(config) }).unwrap();
    ModelConfig { dropouts: config.dropouts, ..model }
}

#[test]
fn every_model_goes_out_and_comes_back_bit_for_bit() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    for head in HeadKind::ALL {
        for (tied, weight_dropout) in [(true, true), (false, false)] {
            let mut config = ModelConfig { tied, ..config(*head) };
            if !tied {
                // No width that a decoder of its own has to share with the embedding.
                config.lstm_sizes = vec![6, 7];
            }
            let model = model(&config);
            StateDict::of_model(&model).write(&path, weight_dropout).unwrap();
            let state = StateDict::read(&path).unwrap();
            assert_eq!(told(&state, &config), config);
            let back = state.model(&config, &Device::flex()).unwrap();
            assert_eq!(bits(&back), bits(&model), "{head}, tied {tied}");
            // The same weights make the same file.
            let bytes = fs::read(&path).unwrap();
            StateDict::of_model(&back).write(&path, weight_dropout).unwrap();
            assert_eq!(fs::read(&path).unwrap(), bytes);
        }
    }
}

#[test]
fn clusters_go_out_under_pytorchs_names_and_come_back() {
    for head in [HeadKind::Adaptive, HeadKind::Mos] {
        for tied in [true, false] {
            let config = ModelConfig { tied, cutoffs: vec![3, 6, 9], ..config(head) };
            let model = model(&config);
            let mut state = StateDict::of_model(&model);
            let shape = |name: &str| state.tensors[name].shape().to_vec();
            assert_eq!(shape("decoder.weight"), if tied { [3, 4] } else { [6, 4] });
            assert_eq!(shape("decoder.bias"), [6]);
            let width = config.last_lstm();
            assert_eq!((shape("tail.0.0.weight"), shape("tail.1.1.weight")), (vec![1, width], vec![3, 1]));
            assert_eq!(told(&state, &config), config);
            assert_eq!(bits(&state.model(&config, &Device::flex()).unwrap()), bits(&model));
            // A tail that belongs to other clusters.
            state.tensors.insert("tail.2.1.weight".into(), TensorData::zeros::<f32, _>([5, 1]));
            let message = state.model(&config, &Device::flex()).unwrap_err().to_string();
            assert!(message.contains("tail.2.1.weight is [5, 1], but should be [2, 1]"), "{message}");
        }
    }
}

#[test]
fn the_tensors_suggest_the_head() {
    for &head in HeadKind::ALL {
        let suggested = match head {
            HeadKind::Sigsoftmax => HeadKind::Softmax,
            HeadKind::Moc => HeadKind::Mos,
            other => other,
        };
        let state = StateDict::of_model(&model(&config(head)));
        assert_eq!(state.model_config(&Noted::default()).unwrap().head, suggested);
    }
}

/// Names and shapes of the tensors.
fn listed(state: &StateDict) -> Vec<String> {
    state.shapes().map(|(name, shape)| format!("{name} {shape:?}")).collect()
}

#[test]
fn names_and_orientation_are_pytorchs() {
    assert_eq!(
        listed(&StateDict::of_model(&model(&config(HeadKind::Mos)))),
        [
            "decoder.bias [11]",
            "decoder.weight [11, 4]",
            "encoder.weight [11, 4]",
            "latent.0.bias [12]",
            "latent.0.weight [12, 5]",
            "prior.weight [3, 5]",
            "rnns.0.bias_hh_l0 [24]",
            "rnns.0.bias_ih_l0 [24]",
            "rnns.0.weight_hh_l0 [24, 6]",
            "rnns.0.weight_ih_l0 [24, 4]",
            "rnns.1.bias_hh_l0 [20]",
            "rnns.1.bias_ih_l0 [20]",
            "rnns.1.weight_hh_l0 [20, 5]",
            "rnns.1.weight_ih_l0 [20, 6]",
        ]
    );
    let of_contexts = |lstm_sizes: Vec<usize>, lower_components: Vec<usize>| -> Vec<String> {
        let config = ModelConfig { lstm_sizes, lower_components, ..config(HeadKind::Doc) };
        let state = StateDict::of_model(&model(&config));
        assert_eq!(told(&state, &config), config);
        let is_of_contexts = |line: &String| line.starts_with("latent") || line.starts_with("weight4");
        listed(&state).into_iter().filter(is_of_contexts).collect()
    };
    // d is 4 and K of the last LSTM 3.
    assert_eq!(
        of_contexts(vec![6, 7, 5], vec![2, 0, 1]),
        [
            "latent.bias [12]",
            "latent.weight [12, 5]",
            "weight4embed.bias [4]",
            "weight4embed.weight [4, 4]",
            "weight4second.bias [8]",
            "weight4second.weight [8, 7]",
        ]
    );
    assert_eq!(
        of_contexts(vec![6, 7, 8, 5], vec![1, 0, 2]),
        [
            "latent.bias [12]",
            "latent.weight [12, 5]",
            "weight4first.bias [8]",
            "weight4first.weight [8, 6]",
            "weight4layer3.bias [4]",
            "weight4layer3.weight [4, 8]",
        ]
    );
    // A PyTorch linear layer multiplies by its matrix's transpose, Burn's by the matrix.
    let matrix = Tensor::<2>::random([11, 7], Distribution::Default, &Device::flex());
    assert_eq!(transpose(&matrix.to_data()), matrix.transpose().to_data());
}

/// A state dict of a small model, changed.
fn changed(change: impl Fn(&mut BTreeMap<String, TensorData>)) -> StateDict {
    let mut state = StateDict::of_model(&model(&config(HeadKind::Mos)));
    change(&mut state.tensors);
    state
}

fn refused(state: &StateDict) -> String {
    let config = state.model_config(&Noted::default());
    let result = config.and_then(|config| state.model(&config, &Device::flex()));
    let message = result.map(|_| ()).unwrap_err().to_string();
    assert!(!message.contains('\n'), "{message}");
    message
}

#[test]
fn what_no_tensor_tells_is_noted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    for head in [HeadKind::Moc, HeadKind::Sigsoftmax, HeadKind::MosPlif] {
        let config = ModelConfig { start_spread: (head == HeadKind::Moc).then_some(0.02), ..config(head) };
        let state = StateDict::of_model(&model(&config)).with_notes(&Noted::of(&config));
        state.write(&path, true).unwrap();
        let read = StateDict::read(&path).unwrap();
        assert_eq!(read.noted().unwrap(), Noted::of(&config));
        assert!(read.tensors == state.tensors, "{head}");
        let bytes = fs::read(&path).unwrap();
        state.write(&path, true).unwrap();
        assert_eq!(fs::read(&path).unwrap(), bytes);
    }
    let mut state = StateDict::of_model(&model(&config(HeadKind::Softmax)));
    assert_eq!(state.noted().unwrap(), Noted::default());
    state.metadata.insert("highrank.head".into(), "mix".into());
    let message = state.noted().unwrap_err().to_string();
    assert!(message.contains("highrank.head in its metadata: unknown head `mix`"), "{message}");
}

#[test]
fn numbers_beyond_the_float_type_are_problems() {
    let state = changed(|tensors| {
        let wide = TensorData::new(vec![1e300_f64; 11], [11]);
        tensors.insert("decoder.bias".into(), wide);
    });
    assert!(refused(&state).contains("decoder.bias holds a number beyond f32"));
}

#[test]
fn everything_that_does_not_fit_is_listed_at_once() {
    let zeros = |shape: &[usize]| TensorData::zeros::<f32, _>(shape.to_vec());
    let message = refused(&changed(|tensors| {
        tensors.remove("rnns.1.bias_hh_l0");
        tensors.insert("latent.0.bias".into(), zeros(&[13]));
        tensors.insert("rnns.0.weight_ih_l0".into(), zeros(&[24, 5]));
        tensors.insert("decoder.extra".into(), zeros(&[2, 2]));
        tensors.insert("decoder.bias".into(), TensorData::zeros::<i64, _>([11]));
    }));
    for part in [
        "rnns.1.bias_hh_l0 is missing (it should be [20])",
        "latent.0.bias is [13], but should be [12]",
        "rnns.0.weight_ih_l0 is [24, 5], but should be [24, 4]",
        "decoder.extra ([2, 2]) is no tensor of a mos model",
        "decoder.bias holds I64 instead of real numbers",
    ] {
        assert!(message.contains(part), "`{part}` is not in {message}");
    }
    // Sizes that nothing tells.
    let message = refused(&changed(|tensors| {
        tensors.retain(|name, _| !name.starts_with("encoder") && !name.starts_with("decoder.weight"));
        tensors.retain(|name, _| !name.starts_with("rnns.0"));
    }));
    for part in ["encoder.weight or decoder.weight is missing", "rnns.0.weight_hh_l0 or"] {
        assert!(message.contains(part), "`{part}` is not in {message}");
    }
    let nothing = changed(BTreeMap::clear);
    assert!(refused(&nothing).contains("encoder.weight or decoder.weight or decoder.bias is missing"));
    // A tensor that would tell two sizes.
    let mixtape = Noted { head: Some(HeadKind::Mixtape), ..Noted::default() };
    let message = nothing.model_config(&mixtape).unwrap_err().to_string();
    assert_eq!(message.matches("gates.vectors is missing").count(), 1, "{message}");
}

#[test]
fn sizes_come_from_whatever_tensor_is_left() {
    let state = changed(|tensors| {
        tensors.remove("encoder.weight");
        tensors.remove("prior.weight");
        tensors.remove("rnns.1.weight_hh_l0");
    });
    let message = refused(&state);
    assert!(message.contains("encoder.weight is missing (it should be [11, 4])"), "{message}");
    assert!(message.contains("prior.weight is missing (it should be [3, 5])"), "{message}");
    assert!(message.contains("rnns.1.weight_hh_l0 is missing (it should be [20, 5])"), "{message}");
    // An odd name does not ask for a billion layers.
    for layer in [999_999_999, usize::MAX] {
        let message = refused(&changed(|tensors| {
            tensors.insert(format!("rnns.{layer}.bias_ih_l0"), TensorData::zeros::<f32, _>([4]));
        }));
        assert!(message.contains("rnns.2.weight_hh_l0 or"), "{message}");
    }
}

#[test]
fn shapes_without_numbers_do_not_ask_for_a_large_model() {
    let wide = |size: usize| {
        refused(&changed(|tensors| {
            tensors.insert("rnns.0.weight_hh_l0".into(), TensorData::zeros::<f32, _>([0, size]));
        }))
    };
    let message = wide(1 << 17);
    assert!(message.contains("parameters, but the file holds"), "{message}");
    let message = wide(usize::MAX);
    assert!(message.contains("parameters is 18446744073709551615, but must be at most 2^40"), "{message}");
    // Nor do shapes without dimensions say how many words a cluster has.
    for names in [&["tail.0.1.weight"][..], &["tail.0.1.weight", "decoder.weight"]] {
        refused(&changed(|tensors| {
            for name in names {
                tensors.insert((*name).into(), TensorData::zeros::<f32, _>([0usize; 0]));
            }
        }));
    }
}

/// Writes the tensors under other names and reads them back.
fn reread(state: &StateDict, rename: impl Fn(&str) -> Vec<String>) -> Result<StateDict> {
    let mut renamed = BTreeMap::new();
    for (name, tensor) in &state.tensors {
        renamed.extend(rename(name).into_iter().map(|name| (name, tensor.clone())));
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    StateDict { tensors: renamed, ..state.clone() }.write(&path, false)?;
    StateDict::read(&path)
}

#[test]
fn names_are_read_with_and_without_the_levels_around_them() {
    let state = StateDict::of_model(&model(&config(HeadKind::Mos)));
    type Rename = fn(&str) -> Vec<String>;
    let renames: [Rename; 4] = [
        |name| vec![name.into()],
        |name| vec![names::under_weight_dropout(name)],
        // A data-parallel model, and a program that saved the dropped matrix beside the raw one.
        |name| vec![format!("module.{}", names::under_weight_dropout(name))],
        |name| match name.ends_with("weight_hh_l0") {
            true => vec![names::under_weight_dropout(name), name.replace("weight", "module.weight")],
            false => vec![name.to_string()],
        },
    ];
    for rename in renames {
        assert_eq!(reread(&state, rename).unwrap().tensors, state.tensors);
    }
    let twice = reread(&state, |name| vec![name.into(), name.replace("rnns.0.b", "rnns.0.module.b")]);
    let message = twice.unwrap_err().to_string();
    let expected = "the tensors rnns.0.bias_hh_l0 and rnns.0.module.bias_hh_l0 are the same parameter";
    assert!(message.contains(expected), "{message}");
}

#[test]
fn tied_and_untied_models_are_told_apart() {
    let tied = |change: fn(&mut BTreeMap<String, TensorData>)| {
        changed(change).model_config(&Noted::default()).unwrap().tied
    };
    assert!(tied(|_| ()));
    assert!(tied(|tensors| drop(tensors.remove("decoder.weight"))));
    assert!(!tied(|tensors| drop(
        tensors.insert("decoder.weight".into(), TensorData::zeros::<f32, _>([11, 4]))
    )));
}

#[test]
fn files_that_are_no_weights_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.bin");
    let message = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        StateDict::read(&path).unwrap_err().to_string()
    };
    assert!(message(b"hello there").contains("neither a safetensors file"));
    assert!(message(b"PK\x03\x04nothing").contains("not a whole zip archive"));
    assert!(message(b"\x80\x02N.").contains("not from `torch.save`"));
    let whole = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/models/whole.pt");
    let text = StateDict::read(&whole).unwrap_err().to_string();
    assert!(text.contains("a whole pickled object (torch.nn") && text.contains(".state_dict()"), "{text}");

    let mut state = StateDict::of_model(&model(&config(HeadKind::Softmax)));
    state.tensors.insert("decoder.bias".into(), TensorData::from([0.0, f32::NAN]));
    state.write(&path, false).unwrap();
    let text = StateDict::read(&path).unwrap_err().to_string();
    assert!(text.contains("tensor decoder.bias holds a value that is not finite"), "{text}");
    assert!(matches!(StateDict::read(&folder.path().join("nowhere")), Err(Error::Io { action: "read", .. })));
    let nowhere = folder.path().join("no/folder.safetensors");
    assert!(matches!(state.write(&nowhere, false), Err(Error::Io { action: "write", .. })));
}
