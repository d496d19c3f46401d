//! The commands `import` and `export`.

use std::fs;
use std::path::Path;

use safetensors::SafeTensors;
use safetensors::tensor::TensorView;
use serde_json::{Value, json};

use super::{SMALL, config, edit, folder, objects, refused};
use crate::harness::{Folder, stderr};

/// The project's own whole model of 53 words, and a folder of text in exactly those words.
fn reference_model() -> (Folder, String, Value) {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../awd-lstm/tests/models");
    let reference = fs::read(models.join("awd_lstm_mos_tiny.json")).unwrap();
    let reference: Value = serde_json::from_slice(&reference).unwrap();
    let folder = Folder::empty();
    let data = folder.join("data");
    fs::create_dir(&data).unwrap();
    // Token n is the word `wn`, but the last one ends a line: 52 words in order of their numbers, then `<eos>`.
    let words: Vec<String> = (0..52).map(|id| format!("w{id}")).collect();
    fs::write(data.join("train.txt"), words.join(" ")).unwrap();
    let tokens = reference["tokens"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap());
    let text: Vec<String> = tokens.map(|id| if id == 52 { "\n".into() } else { format!("w{id}") }).collect();
    fs::write(data.join("valid.txt"), text.join(" ")).unwrap();
    fs::write(data.join("test.txt"), text.join(" ")).unwrap();
    let weights = models.join("awd_lstm_mos_tiny.safetensors").display().to_string();
    (folder, weights, reference)
}

/// The perplexities of a run, which other settings of training do not change.
fn scores(path: &Path, run: &str) -> [Value; 2] {
    let printed = objects(path, &format!("eval --run {run} --json")).remove(0);
    ["valid_ppl", "test_ppl"].map(|key| {
        assert!(printed[key].is_f64(), "{printed}");
        printed[key].clone()
    })
}

#[test]
fn an_imported_model_has_the_reference_perplexity() {
    let (path, weights, reference) = &reference_model();
    let output = super::run(path, &format!("import --weights {weights} --data data --out run --json"));
    let lines = crate::harness::parsed(str::from_utf8(&output.stdout).unwrap());
    // The program that wrote it says nothing of its model.
    let errors = crate::harness::stderr(&output, 0);
    assert!(
        errors.contains("head taken from the tensors: mos; moc has the same ones, see --head"),
        "{errors}"
    );
    assert_eq!((&lines[0]["head"], &lines[0]["vocab"]), (&"mos".into(), &53.into()));
    assert_eq!(lines[0]["lstm_sizes"], json!([9, 9, 7]));
    // The reference reads its stream in three columns; ours ends it with one more `<eos>`, dropped as a remainder.
    let config = fs::read_to_string(path.join("run/config.json")).unwrap();
    edit(&path.join("run"), "config.json", config.replace("\"eval_batch\": 10", "\"eval_batch\": 3"));
    let eval = objects(path, "eval --run run --json");
    let (got, want) = (eval[0]["valid_ppl"].as_f64().unwrap(), reference["perplexity"].as_f64().unwrap());
    assert!((got / want - 1.0).abs() < 1e-5, "{got} {want}");
}

/// Name, element type, shape and bytes of a tensor.
type Tensor = (String, String, Vec<usize>, Vec<u8>);

/// Every tensor in a safetensors file, by name.
pub fn tensors(file: &Path) -> Vec<Tensor> {
    let bytes = fs::read(file).unwrap();
    let found = SafeTensors::deserialize(&bytes).unwrap();
    let tensor = |(name, view): (&str, TensorView)| {
        (name.to_string(), view.dtype().to_string(), view.shape().to_vec(), view.data().to_vec())
    };
    let mut tensors: Vec<_> = found.iter().map(tensor).collect();
    tensors.sort();
    tensors
}

#[test]
fn what_is_imported_is_exported_tensor_by_tensor() {
    let (path, weights, _) = &reference_model();
    // As PyTorch's own LSTMs call them.
    let wrapped = tensors(Path::new(weights));
    let plain: Vec<_> = wrapped
        .iter()
        .cloned()
        .map(|(name, dtype, shape, bytes)| {
            (name.replace("module.", "").replace("_raw", ""), dtype, shape, bytes)
        })
        .collect();
    assert!(plain.iter().any(|tensor| tensor.0 == "rnns.0.weight_hh_l0"));
    fn view((name, _, shape, bytes): &Tensor) -> (&str, TensorView<'_>) {
        (name, TensorView::new(safetensors::Dtype::F32, shape.clone(), bytes).unwrap())
    }
    let views: Vec<_> = plain.iter().map(view).collect();
    fs::write(path.join("plain.safetensors"), safetensors::serialize(views, None).unwrap()).unwrap();
    for (file, names, expected) in
        [("plain.safetensors", "", &plain), (weights.as_str(), "--names wrapped", &wrapped)]
    {
        let run = if names.is_empty() { "plain" } else { "wrapped" };
        objects(path, &format!("import --weights {file} --data data --out {run} --json"));
        objects(path, &format!("export --run {run} --out {run}-again.safetensors {names} --json"));
        let mut expected = expected.clone();
        expected.sort();
        assert!(tensors(&path.join(format!("{run}-again.safetensors"))) == expected, "{run}");
    }
    refused(path, "export --run plain --out x.safetensors --names short", &["'short'", "plain, wrapped"]);
}

#[test]
fn a_trained_model_goes_out_and_comes_back() {
    let path = &folder();
    objects(path, &format!("train {SMALL} --epochs 1 --out first --json"));
    let out = objects(path, "export --run first --out model.safetensors --json");
    assert_eq!(out[0]["tensors"], 14);
    // Whoever may read other new files may read it.
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        fs::write(path.join("plain"), "").unwrap();
        let mode = |name: &str| fs::metadata(path.join(name)).unwrap().permissions().mode();
        assert_eq!(mode("model.safetensors"), mode("plain"));
    }
    objects(path, "import --weights model.safetensors --data data --preset small --out run --json");
    let weights = |run: &str| fs::read(path.join(run).join("best/model.safetensors")).unwrap();
    assert!(weights("first") == weights("run"), "the weights changed on the way");
    assert_eq!(scores(path, "first"), scores(path, "run"));
    // The words alone do as well.
    objects(
        path,
        "import --weights model.safetensors --data data --vocab first/vocab.txt --out again --json",
    );
    assert!(weights("first") == weights("again"));
    let in_vain = "import --weights model.safetensors --data data --plif-bound 3 --out bounded";
    let errors = stderr(&super::run(path, in_vain), 0);
    assert_eq!(errors, "--plif-bound has no effect: the mos head has no PLIF\n");
    for line in [
        "train --resume again",
        "train --from again --out tuned",
        "eval again --split train",
        "eval again --dynamic",
    ] {
        let errors = stderr(&super::run(path, line), 2);
        let expected =
            "error: run `again` was imported with --vocab, without a training text: it is not trained\n";
        assert_eq!(errors, expected, "{line}");
    }
    assert!(!path.join("tuned").exists());
    let listed = super::text(path, "runs run");
    assert!(listed.ends_with("imported\n") && !listed.contains("-0"), "{listed}");
    // An imported model can be trained on.
    let tuned = objects(path, "finetune --run run --epochs 1 --lr 1 --out tuned --json");
    assert!(tuned.last().unwrap()["test_ppl"].as_f64().is_some_and(f64::is_finite), "{tuned:?}");
    // What is printed for people; the parameters of 36 words by the closed form.
    let text = super::text(path, "export --run run --out again.safetensors");
    assert_eq!(text, "14 tensors of 4,332 parameters written to again.safetensors\n");
    assert!(
        fs::read(path.join("again.safetensors")).unwrap()
            == fs::read(path.join("model.safetensors")).unwrap()
    );
    // It can be trained in its own folder too: a step on, the model is still as good, not a fresh one.
    let ppl = |line: &str| objects(path, line).last().unwrap()["valid_ppl"].as_f64().unwrap();
    let imported = ppl("eval --run run --json");
    let ppl = ppl("train --resume run --max-time 0.001s --json");
    assert!(ppl <= imported * 1.000_001 && imported < 30.0, "{ppl} after {imported}");
}

#[test]
fn models_with_parts_of_their_own_are_trained_go_out_and_come_back() {
    // Connected: two components from the first LSTM, one from the embedding; with gates; with clusters. What the configuration says, the
    // tensors that go out, if they are counted, and what is found in them.
    for (options, model, tensors, found) in [
        (
            "--head doc --lower-components 2,1 --prior-cv 0.01",
            json!({"lower_components": [2, 1]}),
            // Those of a mixture, with the contexts of two more layers.
            Some(14 + 4),
            json!({"head": "doc", "components": 3, "lower_components": [2, 1]}),
        ),
        (
            "--head mixtape --frequent 6 --d-gate 3",
            json!({"frequent": 6, "d_gate": 3}),
            // Those of a softmax, contexts with their bias, features, base, vectors and biases of the gates.
            Some(11 + 6),
            json!({"head": "mixtape", "frequent": 6}),
        ),
        ("--head adaptive --cutoffs 3,7", json!({"cutoffs": [3, 7]}), None, json!({"head": "adaptive"})),
        // Nothing of this is in the tensors.
        (
            "--head moc --set model.start_spread=0.02",
            json!({"start_spread": 0.02}),
            Some(14),
            json!({"head": "moc", "start_spread": 0.02}),
        ),
        (
            "--head mos-plif --plif-bound 7 --knots 9",
            json!({"plif_bound": 7.0}),
            None,
            json!({"head": "mos-plif", "plif_bound": 7.0}),
        ),
    ] {
        let holds = |object: &Value, expected: &Value| {
            let expected = expected.as_object().unwrap();
            assert!(expected.iter().all(|(key, value)| object[key] == *value), "{options}: {object}");
        };
        let path = &folder();
        let small = match options.contains("mixtape") || options.contains("adaptive") {
            true => SMALL.replace(" --components 3", ""),
            false => SMALL.into(),
        };
        let printed = objects(path, &format!("train {small} {options} --epochs 1 --out first --json"));
        assert!(printed.last().unwrap()["test_ppl"].as_f64().is_some_and(f64::is_finite), "{printed:?}");
        let config = config(path, "first");
        holds(&config["model"], &model);
        let out = objects(path, "export --run first --out model.safetensors --json").remove(0);
        assert!(tensors.is_none_or(|tensors| out["tensors"] == tensors), "{options}: {out}");
        let import = "import --weights model.safetensors --data data";
        holds(&objects(path, &format!("{import} --preset small --out run --json"))[0], &found);
        assert_eq!(scores(path, "first"), scores(path, "run"));
        super::text(path, "generate --run run --tokens 5 --seed 1");
        if options.contains("doc") {
            assert_eq!(config["train"]["prior_cv"], 0.01);
            let text = super::text(path, &format!("{import} --out again"));
            assert!(text.contains("LSTMs [16, 12], 6 components"));
        }
        if options.contains("adaptive") {
            super::text(path, "rank --run run");
        }
    }
}

#[test]
fn weights_that_cannot_be_used() {
    let (path, weights, _) = &reference_model();
    let no_import = |options: &str, expected: &[&str]| {
        refused(path, &format!("import --data data --out run --weights {options}"), expected);
    };
    no_import("nothing.pt", &["cannot read `nothing.pt`"]);
    no_import("data/train.txt", &["data/train.txt` is damaged", "neither a safetensors file"]);
    let whole = weights.replace("awd_lstm_mos_tiny.safetensors", "whole.pt");
    no_import(&whole, &["a whole pickled object (torch.nn", "torch.save(", ".state_dict()"]);
    let with = |more: &str| format!("{weights} {more}");
    no_import(&with("--plif-bound -1 --head mos-plif"), &["plif.raw_slopes is missing"]);
    no_import(&with("--head softmax"), &["last LSTM has size 7", "needs d_embedding = 6"]);
    no_import(&with("--head mos-plif"), &["does not fit the model: plif.raw_slopes is missing"]);
    let untrained = weights.replace("awd_lstm_mos_tiny.safetensors", "awd_lstm_mos_one_layer.legacy.pt");
    no_import(&format!("{untrained} --head gss --preset huge"), &["unknown preset `huge`"]);
    fs::write(path.join("data/train.txt"), "one more word\n").unwrap();
    no_import(weights, &["`data` has 5", "words, but the model in", "has 53"]);
    no_import(&with("--vocab data/train.txt"), &["data/train.txt` is damaged: line 1 is not one word"]);

    refused(path, "export --run nowhere --out x.safetensors", &["`nowhere` is not a run folder"]);
    refused(path, "export --run nowhere --out x.pt", &["`x.pt` would not be a safetensors file"]);
    fs::write(path.join("x.safetensors"), "kept").unwrap();
    refused(path, "export --run nowhere --out x.safetensors", &["`x.safetensors` exists already"]);
    assert_eq!(fs::read(path.join("x.safetensors")).unwrap(), b"kept");
}
