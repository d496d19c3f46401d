//! The result of one run of a sweep.

use std::path::Path;

use awd_lstm::train::RunConfig;
use awd_lstm::{HeadKind, ModelConfig, TrainConfig};
use program::files::read_json_lines;
use runs::Error;
use runs::data::{Fingerprint, TextConfig};
use runs::text::comma_list;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::commands::sweep::grid::{Varying, number};
use crate::commands::sweep::plan::Planned;
use crate::training::Record;

/// The file of results in a sweep's folder.
pub const RESULTS: &str = "results.jsonl";

/// The result of one run: a line of [`RESULTS`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Name of its folder.
    #[serde(default)]
    pub run: String,
    pub head: HeadKind,
    pub seed: u64,
    /// The settings that vary for this head.
    #[serde(default, serialize_with = "object", deserialize_with = "pairs")]
    pub settings: Varying,
    pub parameters: usize,
    pub d_embedding: usize,
    pub lstm_sizes: Vec<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub components: Option<usize>,
    /// What training came to; none if it failed.
    #[serde(flatten)]
    pub trained: Option<Trained>,
    /// What finetuning came to, if there is any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finetuned: Option<Trained>,
    #[serde(flatten)]
    pub rank: Option<Rank>,
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
    pub preset: String,
    pub device: String,
    pub text: TextConfig,
    pub corpus: Fingerprint,
    pub model: ModelConfig,
    pub train: TrainConfig,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finetuning: Option<TrainConfig>,
}

/// What a run that came to its end has reached.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Trained {
    pub epochs: usize,
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

/// A rank: the number of singular values above the roundoff of the float type that they were computed in.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rank {
    /// The rank of the matrix of contexts by words.
    pub rank: usize,
    pub rank_contexts: usize,
    pub rank_precision: String,
}

impl Outcome {
    /// The results in a file, or in the [`RESULTS`] of a folder.
    pub fn read_all(path: &Path) -> Result<Vec<Self>, Error> {
        let file = if path.is_dir() { path.join(RESULTS) } else { path.to_path_buf() };
        read_json_lines(&file, "result of a sweep")
    }

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

    /// Its sizes as text.
    pub fn sizes(&self) -> String {
        let components = self.components.map_or(String::new(), |components| format!(", K {components}"));
        format!("d {}, LSTM {}{components}", self.d_embedding, comma_list(&self.lstm_sizes))
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
                pairs.push((name, value.as_str().map_or_else(|| value.to_string(), String::from)));
            }
            Ok(pairs)
        }
    }
    deserializer.deserialize_map(Pairs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::sweep::grid::Axis;
    use crate::commands::sweep::table::tests::outcome;

    #[test]
    fn what_is_written_is_read_back() {
        let plain = outcome(HeadKind::Softmax, &[], 28, 20.0);
        let settings = [("lstm", "9,8"), ("lr", "0.5"), ("components", "5")];
        let rich = Outcome {
            rank: Some(Rank { rank: 40, rank_contexts: 1200, rank_precision: "f64".into() }),
            finetuned: plain.trained.clone(),
            ..outcome(HeadKind::Mos, &settings, 29, 10.0)
        };
        let failed = Outcome { trained: None, failed: Some("too hot".into()), ..plain.clone() };
        let all = [plain, rich, failed];
        let folder = tempfile::tempdir().unwrap();
        let lines: Vec<String> = all.iter().map(|outcome| serde_json::to_string(outcome).unwrap()).collect();
        std::fs::write(folder.path().join(RESULTS), lines.join("\n") + "\n\n").unwrap();
        assert_eq!(Outcome::read_all(folder.path()).unwrap(), all);
        assert_eq!(Outcome::read_all(&folder.path().join(RESULTS)).unwrap(), all);
        let axes = Axis::all(all.iter().flat_map(|outcome| &outcome.settings));
        let flags: Vec<&str> = axes.iter().map(|axis| axis.flag.as_str()).collect();
        assert_eq!(flags, ["lstm", "lr", "components"]);
    }

    #[test]
    fn lines_of_earlier_versions_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("old.jsonl");
        let line = r#"{"head":"mos","seed":28,"parameters":9,"d_embedding":2,"lstm_sizes":[3,2],"components":5,"epochs":4,
            "best_epoch":4,"valid_ppl":134.5,"test_ppl":131.9,"tokens_per_s":2.5,"seconds":176.2}"#;
        std::fs::write(&file, line.replace('\n', " ")).unwrap();
        let read_back = &Outcome::read_all(&file).unwrap()[0];
        assert_eq!((read_back.components, &read_back.exact, read_back.run.as_str()), (Some(5), &None, ""));
        assert_eq!(read_back.trained.as_ref().unwrap().valid_ppl, 134.5);
        for (text, expected) in
            [("", "it has no result"), ("{\"head\":\"mos\"}", "line 1: no result of a sweep")]
        {
            std::fs::write(&file, text).unwrap();
            let message = Outcome::read_all(&file).unwrap_err().to_string();
            assert!(message.contains(expected) && !message.contains('\n'), "{message}");
            assert!(!message.contains("at line 1"), "{message}");
        }
    }
}
