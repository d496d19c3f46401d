//! The result of one run of a sweep.

use awd_lstm::train::RunConfig;
use awd_lstm::{HeadKind, ModelConfig, TrainConfig};
use runs::data::{Fingerprint, TextConfig};
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::commands::sweep::grid::number;
use crate::commands::sweep::planned::{Planned, Varying};
use crate::commands::sweep::rank::Rank;
use crate::training::Record;

/// The result of one run: a line of `results.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Name of its folder.
    #[serde(default)]
    pub run: String,
    /// The output layer.
    pub head: HeadKind,
    /// The seed of everything random.
    pub seed: u64,
    /// The settings that vary for this head.
    #[serde(default, serialize_with = "object", deserialize_with = "pairs")]
    pub settings: Varying,
    /// Number of parameters.
    pub parameters: usize,
    /// Width of the embedding.
    pub d_embedding: usize,
    /// Sizes of the LSTM layers.
    pub lstm_sizes: Vec<usize>,
    /// Components of a mixture.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub components: Option<usize>,
    /// What training came to; none if it failed.
    #[serde(flatten)]
    pub trained: Option<Trained>,
    /// What finetuning came to, if there is any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finetuned: Option<Trained>,
    /// Rank of the log-probabilities, if it is asked for.
    #[serde(flatten)]
    pub rank: Option<Rank>,
    /// Why training or finetuning was given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// All that makes the run; none in results of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exact: Option<Box<Exact>>,
}

/// All that makes a run, but for where its text is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Exact {
    /// The programs, as a run's `config.json` has them.
    pub versions: Value,
    /// The preset.
    pub preset: String,
    /// The device.
    pub device: String,
    /// How the text is read.
    pub text: TextConfig,
    /// Hashes of the text.
    pub corpus: Fingerprint,
    /// The model.
    pub model: ModelConfig,
    /// The procedure.
    pub train: TrainConfig,
    /// The procedure of finetuning, if there is any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finetuning: Option<TrainConfig>,
}

/// What a run that came to its end has reached.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Trained {
    /// Epochs trained.
    pub epochs: usize,
    /// The epoch of the best model.
    pub best_epoch: usize,
    /// Perplexity of the training text in that epoch, as met in training.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub train_ppl: Option<f64>,
    /// Perplexity of the validation text with the best model.
    pub valid_ppl: f64,
    /// Perplexity of the test text with the best model, if it was tested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test_ppl: Option<f64>,
    /// Training tokens a second: the median over epochs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
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
        let RunConfig { versions, preset, device, text, corpus, model, train, .. } = planned.config.clone();
        Self {
            run,
            head: model.head,
            seed: train.seed,
            settings: planned.settings.clone(),
            parameters: model.num_params(),
            d_embedding: model.d_embedding,
            lstm_sizes: model.lstm_sizes.clone(),
            components: model.head.is_mixture().then_some(model.components),
            trained: None,
            finetuned: None,
            rank: None,
            failed: None,
            exact: Some(Box::new(Exact {
                versions: serde_json::to_value(versions).unwrap_or_default(),
                preset,
                device,
                text,
                corpus,
                model,
                train,
                finetuning: planned.finetuning.clone(),
            })),
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

/// The settings of such an object, in its order.
fn pairs<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Varying, D::Error> {
    struct Pairs;
    impl<'de> Visitor<'de> for Pairs {
        type Value = Varying;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("an object of settings")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Varying, A::Error> {
            let mut pairs = vec![];
            while let Some((name, value)) = map.next_entry::<String, Value>()? {
                let text = match value {
                    Value::String(text) => text,
                    other => other.to_string(),
                };
                pairs.push((name, text));
            }
            Ok(pairs)
        }
    }
    deserializer.deserialize_map(Pairs)
}
