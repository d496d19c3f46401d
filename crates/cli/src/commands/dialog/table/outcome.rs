//! What a run of the table came to.

use std::collections::BTreeMap;
use std::path::PathBuf;

use awd_lstm::HeadKind;
use runs::EndReason;
use seq2seq::train::RunConfig;
use serde::Serialize;
use serde_json::{Value, json};

use crate::commands::dialog::DialogRecord;
use crate::commands::dialog::held_out::{Perplexities, Searched};

/// What a run came to: an object of `--json`.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    /// The folder.
    pub run: PathBuf,
    /// The preset it started from.
    pub preset: String,
    /// The line of the table that it belongs to.
    #[serde(flatten)]
    pub line: Line,
    /// Width of the head's decoder matrix.
    pub d_latent: usize,
    /// Number of parameters.
    pub parameters: usize,
    /// The seed of everything random.
    pub seed: u64,
    /// The device that it was trained on.
    pub device: String,
    /// Epochs done.
    pub epochs_done: usize,
    /// Why training ended; none before the end.
    pub ended: Option<EndReason>,
    /// Wall-clock time of training.
    pub train_seconds: f64,
    /// Response tokens a second in training: the median over epochs.
    pub train_tokens_per_s: Option<f64>,
    /// Of the best model.
    #[serde(flatten)]
    pub perplexities: Perplexities,
    /// The responses of the best model.
    #[serde(flatten)]
    pub searched: Searched,
    /// Those of a search that divides log-probabilities by a power of the length, if it is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by_length: Option<Searched>,
}

/// What tells lines of the table apart.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Line {
    /// The output layer.
    pub head: HeadKind,
    /// Components of a mixture.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub components: Option<usize>,
    /// Every other setting that matters for the head, but the seed.
    #[serde(skip)]
    pub settings: BTreeMap<String, Value>,
}

impl Line {
    /// The line of a run.
    pub fn of(config: &RunConfig) -> Self {
        let model = &config.model;
        let components = model.head.is_mixture().then_some(model.components);
        Self { head: model.head, components, settings: settings(config) }
    }
}

impl Outcome {
    /// A run with what its best model came to.
    pub fn new(
        record: &DialogRecord,
        perplexities: Perplexities,
        searched: Searched,
        by_length: Option<Searched>,
    ) -> Self {
        let RunConfig { model, train, preset, device, .. } = &record.config;
        Self {
            run: record.path.clone(),
            preset: preset.clone(),
            line: Line::of(&record.config),
            d_latent: model.d_latent(),
            parameters: model.num_params(),
            seed: train.seed,
            device: device.clone(),
            epochs_done: record.epochs_done(),
            ended: record.last.as_ref().map(|last| last.ended),
            train_seconds: record.seconds(),
            train_tokens_per_s: record.tokens_per_s(),
            perplexities,
            searched,
            by_length,
        }
    }
}

fn settings(config: &RunConfig) -> BTreeMap<String, Value> {
    let RunConfig { device, text, model, train, .. } = config;
    let mut settings = BTreeMap::from([("device".to_string(), json!(device))]);
    for part in [json!(text), json!(model), json!(train)] {
        flatten("", &part, &mut settings);
    }
    for name in ["head", "components", "seed"] {
        settings.remove(name);
    }
    if !model.head.has_plif() {
        for name in ["knots", "plif_bound"] {
            settings.remove(name);
        }
    }
    settings
}

/// Adds the leaves of an object with their paths.
fn flatten(path: &str, value: &Value, to: &mut BTreeMap<String, Value>) {
    let Value::Object(object) = value else {
        to.insert(path.to_string(), value.clone());
        return;
    };
    for (name, value) in object {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        flatten(&path, value, to);
    }
}
