//! Whole language models in evaluation: a folder of `NAME.safetensors` (a PyTorch state dict) and `NAME.json`.

use std::path::{Path, PathBuf};

use awd_lstm::weights::{Noted, StateDict};
use awd_lstm::{LanguageModel, ModelConfig};
use burn::tensor::{Int, Tensor, TensorData};
use highrank_tests::entries;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::backends::Setting;
use crate::case::{Entry, from_json, home};
use crate::compare::{Report, Tolerance, values};

/// A folder of whole models, the project's own unless `HIGHRANK_GOLDEN_MODEL_DIR` names another.
pub fn folder() -> PathBuf {
    match std::env::var_os("HIGHRANK_GOLDEN_MODEL_DIR") {
        Some(dir) => PathBuf::from(dir),
        None => own(),
    }
}

/// The project's own.
pub fn own() -> PathBuf {
    home().join("../crates/awd-lstm/tests/models")
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Reference {
    config: Sizes,
    tokens: Vec<i64>,
    batch: usize,
    bptt: usize,
    nll: Vec<f64>,
    perplexity: f64,
    final_hidden: Vec<State>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Sizes {
    vocab: usize,
    emsize: usize,
    nhid: usize,
    nhidlast: usize,
    layers: usize,
    components: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct State {
    h: Vec<Vec<f64>>,
    c: Vec<Vec<f64>>,
}

/// A model with what a reference program says of it.
pub struct Model {
    name: String,
    state: StateDict,
    config: ModelConfig,
    reference: Reference,
}

/// All models of a folder, by name.
pub fn read(folder: &Path) -> Vec<Model> {
    let model = |(name, state, reference): (String, StateDict, Reference)| {
        let config = state.model_config(&Noted::default()).unwrap();
        Model { name, state, config, reference }
    };
    with_references(folder).into_iter().map(model).collect()
}

/// Each `NAME` of a folder in order, the state dict of `NAME.safetensors`, and what `NAME.json` says.
pub fn with_references<R: DeserializeOwned>(folder: &Path) -> Vec<(String, StateDict, R)> {
    let mut files = entries(folder);
    files.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    let of_file = |path: &PathBuf| {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        (name, StateDict::read(&path.with_extension("safetensors")).unwrap(), from_json(path))
    };
    files.iter().map(of_file).collect()
}

impl Model {
    /// Checks the model on a device without autodiff, in chunks of the reference's length, of a length that does not divide
    /// it, and of the whole text.
    pub fn check(&self, on: &Setting) -> Report {
        let mut report = Report::new(format!("model {} on {}", self.name, on.name));
        self.check_sizes(&mut report);
        let model = self.state.model_of_dtype(&self.config, &on.device, on.dtype);
        let model = model.unwrap_or_else(|error| panic!("{}: {error}", self.name));
        for length in [self.reference.bptt, 7, self.reference.tokens.len()] {
            self.check_outputs(&model, length, on, &mut report);
        }
        report
    }

    fn check_sizes(&self, report: &mut Report) {
        let Sizes { vocab, emsize, nhid, nhidlast, layers, components } = self.reference.config;
        let mut lstm_sizes = vec![nhid; layers - 1];
        lstm_sizes.push(nhidlast);
        let ModelConfig { vocab: v, d_embedding, components: k, .. } = self.config;
        if (v, d_embedding, k) != (vocab, emsize, components) || self.config.lstm_sizes != lstm_sizes {
            report.fail(format!("its shapes suggest {:?}", self.config));
        }
    }

    fn check_outputs(&self, model: &LanguageModel, length: usize, on: &Setting, report: &mut Report) {
        let Reference { tokens, batch, nll, perplexity, final_hidden, .. } = &self.reference;
        let rows = tokens.len() / batch;
        let window = |start: usize, length: usize| -> Tensor<2, Int> {
            let ids: Vec<i64> = (start..start + length)
                .flat_map(|row| (0..*batch).map(move |column| tokens[column * rows + row]))
                .collect();
            Tensor::from_data(TensorData::new(ids, [length, *batch]), &on.device)
        };
        let (mut fused, mut composed) = (vec![vec![]; *batch], vec![vec![]; *batch]);
        let mut state = model.zero_state(*batch);
        for start in (0..rows - 1).step_by(length) {
            let length = length.min(rows - 1 - start);
            let (inputs, targets) = (window(start, length), window(start + 1, length));
            let (log_probs, _) = model.log_probs(inputs.clone(), state.clone());
            let picked = log_probs.gather(2, targets.clone().reshape([length, *batch, 1])).neg();
            let (nll, next) = model.nll(inputs, targets, state);
            state = next;
            for (columns, all) in [(&mut fused, values(nll)), (&mut composed, values(picked))] {
                all.chunks(*batch).for_each(|row| columns.iter_mut().zip(row).for_each(|(c, x)| c.push(*x)));
            }
        }

        // No deviations are known of these models: the rounding unit stands for them.
        let entry = Entry::default();
        let tolerance = Tolerance::new(&entry, on);
        for (path, columns, tolerance) in
            [("fused", fused, tolerance.value("nll")), ("composed", composed, tolerance.composed("nll"))]
        {
            let got = columns.concat();
            report.compare(&format!("{path} nll"), &got, nll, tolerance);
            let got = (got.iter().sum::<f64>() / got.len() as f64).exp();
            report.compare(&format!("{path} perplexity"), &[got], &[*perplexity], tolerance);
        }
        for (layer, (got, want)) in state.layers.into_iter().zip(final_hidden).enumerate() {
            for (name, got, want) in [("h", got.hidden, &want.h), ("c", got.cell, &want.c)] {
                let name = format!("final {name} of layer {layer}");
                report.compare(&name, &values(got), &want.concat(), tolerance.value("hidden"));
            }
        }
    }

    /// Moves one expected value a little, for a test of the test.
    pub fn damage(&mut self) {
        self.reference.nll[3] += 1e-4;
    }
}
