//! The result of one run of a sweep.

use awd_lstm::HeadKind;
use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::commands::sweep::grid::number;
use crate::commands::sweep::plan::Planned;
use crate::commands::sweep::rank::Rank;
use crate::training::Record;

/// The result of one run: a line of `results.jsonl`.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    /// Name of its folder.
    pub run: String,
    /// The output layer.
    pub head: HeadKind,
    /// The seed of everything random.
    pub seed: u64,
    /// The settings that vary for this head.
    #[serde(serialize_with = "object")]
    pub settings: Vec<(String, String)>,
    /// Number of parameters.
    pub parameters: usize,
    /// Width of the embedding.
    pub d_embedding: usize,
    /// Sizes of the LSTM layers.
    pub lstm_sizes: Vec<usize>,
    /// Components of a mixture.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub components: Option<usize>,
    /// What training came to; none if it failed.
    #[serde(flatten)]
    pub trained: Option<Trained>,
    /// What finetuning came to, if there is any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finetuned: Option<Trained>,
    /// Rank of the log-probabilities, if it is asked for.
    #[serde(flatten)]
    pub rank: Option<Rank>,
    /// Why training or finetuning was given up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

/// What a run that came to its end has reached.
#[derive(Debug, Clone, Serialize)]
pub struct Trained {
    /// Epochs trained.
    pub epochs: usize,
    /// The epoch of the best model.
    pub best_epoch: usize,
    /// Perplexity of the training text in that epoch, as met in training.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub train_ppl: Option<f64>,
    /// Perplexity of the validation text with the best model.
    pub valid_ppl: f64,
    /// Perplexity of the test text with the best model, if it was tested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_ppl: Option<f64>,
    /// Training tokens a second: the median over epochs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens_per_s: Option<f64>,
    /// Wall-clock time of training.
    pub seconds: f64,
}

impl Trained {
    /// The result of a run; none before its end.
    pub fn of(record: &Record) -> Option<Self> {
        let last = record.last.as_ref()?;
        Some(Self {
            epochs: record.epochs_done(),
            best_epoch: last.best_epoch,
            train_ppl: record.train_ppl(),
            valid_ppl: last.valid_ppl,
            test_ppl: record.test_ppl(),
            tokens_per_s: record.tokens_per_s(),
            seconds: record.seconds(),
        })
    }
}

impl Outcome {
    /// A run of which nothing is known yet but its settings.
    pub fn of(planned: &Planned, run: String) -> Self {
        let model = &planned.config.model;
        Self {
            run,
            head: model.head,
            seed: planned.config.train.seed,
            settings: planned.settings.clone(),
            parameters: model.num_params(),
            d_embedding: model.d_embedding,
            lstm_sizes: model.lstm_sizes.clone(),
            components: model.head.is_mixture().then_some(model.components),
            trained: None,
            finetuned: None,
            rank: None,
            failed: None,
        }
    }

    /// The value of a setting, if it varies for this head.
    pub fn setting(&self, flag: &str) -> Option<&str> {
        self.settings.iter().find(|(name, _)| name == flag).map(|(_, value)| value.as_str())
    }
}

/// Settings as one object, numbers as numbers.
fn object<S: Serializer>(settings: &[(String, String)], serializer: S) -> Result<S::Ok, S::Error> {
    let value = |value: &str| match (value.parse::<u64>(), number(value)) {
        (Ok(whole), _) => Value::from(whole),
        (_, Some(number)) => Value::from(number),
        _ => Value::from(value),
    };
    serializer.collect_map(settings.iter().map(|(name, text)| (name, value(text))))
}
