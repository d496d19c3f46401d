//! A run, or a damaged one, as a line.

use std::path::{Path, PathBuf};

use awd_lstm::train::AwdLstm;
use gpt::Transformer;
use highrank::ContextConfig;
use program::device::{self, DeviceName};
use program::failure::Failure;
use program::print::{path_text, shown};
use program::statistics::grouped;
use runs::{EndReason, Procedure, Record, RunState, Settings, kind_of_run};
use seq2seq::train::Dialogues;
use serde::Serialize;

/// A folder that holds a run, or should.
#[derive(Debug, Serialize)]
pub struct Listed {
    #[serde(serialize_with = "path_text")]
    pub run: PathBuf,
    #[serde(flatten)]
    pub content: Content,
}

/// What a folder holds.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Content {
    Run(Box<Summary>),
    /// Something that cannot be read.
    Damaged {
        state: &'static str,
        /// Why, in one line.
        reason: String,
    },
}

/// Settings and results of a run.
#[derive(Debug, Serialize)]
pub struct Summary {
    /// What it trains: language-model, dialogues or transformer.
    pub kind: &'static str,
    pub state: RunState,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<EndReason>,
    pub preset: String,
    pub head: String,
    pub parameters: usize,
    pub d_embedding: usize,
    /// Sizes of the LSTM layers; of a model of dialogues, the encoders of utterances and contexts and the decoder. A transformer has
    /// none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lstm_sizes: Vec<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub components: Option<usize>,
    pub seed: u64,
    pub finetunes: bool,
    pub device: String,
    pub epochs_done: usize,
    /// Epochs that it may have.
    pub epochs: usize,
    /// Perplexity of the training text in the epoch of the best model.
    pub train_ppl: Option<f64>,
    /// Perplexity of the validation text with the best model so far.
    pub valid_ppl: Option<f64>,
    pub test_ppl: Option<f64>,
    pub seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

impl Listed {
    pub fn read(path: &Path) -> Self {
        let content = match Summary::read(path) {
            Ok(summary) => Content::Run(Box::new(summary)),
            Err(error) => {
                let reason = error.to_string().replace('\n', " ");
                Content::Damaged { state: "damaged", reason }
            }
        };
        Self { run: path.to_path_buf(), content }
    }

    pub fn summary(&self) -> Option<&Summary> {
        match &self.content {
            Content::Run(summary) => Some(summary),
            Content::Damaged { .. } => None,
        }
    }

    /// The titles of the columns of [`line`](Self::line), after a name of this width.
    pub fn header(width: usize, narrow: bool) -> String {
        let end = if narrow { String::new() } else { format!(" {:>9}  {:<15}", "seconds", "ended") };
        format!(
            "{:<width$} {:<11} {:<13} {:>12} {:>5} {:>4} {:>11} {:>9} {:>9}{end} state",
            "run", "kind", "head", "parameters", "d", "K", "epochs", "valid", "test"
        )
    }

    /// The run in one line; a `narrow` one does not say how it ended and how long it took.
    pub fn line(&self, width: usize, narrow: bool) -> String {
        let name = shown(&self.run.display().to_string());
        match &self.content {
            Content::Damaged { reason, .. } => format!("{name:<width$} damaged: {reason}"),
            Content::Run(run) => {
                let number = |value: Option<f64>| value.map_or("-".into(), |value| format!("{value:.2}"));
                let ended = serde_json::to_value(run.ended).unwrap_or_default();
                let ended = ended.as_str().unwrap_or("-");
                let end = if narrow { String::new() } else { format!(" {:>9.0}  {ended:<15}", run.seconds) };
                let failed = run.failed.as_ref().map_or(String::new(), |reason| format!(": {reason}"));
                format!(
                    "{name:<width$} {:<11} {:<13} {:>12} {:>5} {:>4} {:>11} {:>9} {:>9}{end} {}{}{failed}",
                    // Short enough for its column.
                    run.kind.trim_end_matches("-model"),
                    run.head,
                    grouped(run.parameters),
                    run.d_embedding,
                    run.components.map_or("-".into(), |components| components.to_string()),
                    format!("{}/{}", run.epochs_done, run.epochs),
                    number(run.valid_ppl),
                    number(run.test_ppl),
                    run.state,
                    if run.finetunes { ", finetuning" } else { "" },
                )
            }
        }
    }
}

impl Summary {
    fn read(path: &Path) -> Result<Self, Failure> {
        match kind_of_run(path)?.as_str() {
            Dialogues::KIND => Ok(Self::of_dialogues(&Record::read(path)?)),
            Transformer::KIND => Self::of_transformer(&Record::read(path)?),
            // Whatever cannot be told is a language model, whose reader says what is wrong.
            _ => Ok(Self::of_language_model(&Record::read(path)?)),
        }
    }

    /// What every kind of run has.
    fn of<S: Settings>(kind: &'static str, record: &Record<S>) -> Self {
        let config = &record.config;
        Self {
            kind,
            state: record.state,
            ended: record.last.as_ref().map(|last| last.ended),
            preset: config.preset.clone(),
            head: String::new(),
            parameters: 0,
            d_embedding: 0,
            lstm_sizes: vec![],
            components: None,
            seed: config.train.seed(),
            finetunes: config.finetunes.is_some(),
            device: config.device.clone(),
            epochs_done: record.epochs_done(),
            epochs: config.train.epochs(),
            train_ppl: record.train_ppl(),
            valid_ppl: record.valid_ppl(),
            test_ppl: record.test_ppl(),
            seconds: record.seconds(),
            failed: record.failure.clone(),
        }
    }

    fn of_language_model(record: &Record<AwdLstm>) -> Self {
        let model = &record.config.model;
        Self {
            head: model.head.to_string(),
            parameters: model.num_params(),
            d_embedding: model.d_embedding,
            lstm_sizes: model.lstm_sizes.clone(),
            components: model.head.is_mixture().then_some(model.components),
            ..Self::of("language-model", record)
        }
    }

    fn of_dialogues(record: &Record<Dialogues>) -> Self {
        let model = &record.config.model;
        Self {
            head: model.head.to_string(),
            parameters: model.num_params(),
            d_embedding: model.d_embedding,
            lstm_sizes: vec![model.d_utterance, model.d_context, model.d_decoder],
            components: model.head.is_mixture().then_some(model.components),
            ..Self::of("dialogues", record)
        }
    }

    fn of_transformer(record: &Record<Transformer>) -> Result<Self, Failure> {
        let model = &record.config.model;
        Ok(Self {
            head: record.config.preset.clone(),
            // Parameters are created when they are first used: this allocates hardly any, wherever it is.
            parameters: model.num_params(&device::open(DeviceName::any_cpu())?)?,
            d_embedding: model.head.d_embedding,
            components: match model.head.context {
                ContextConfig::Direct(_) => None,
                _ => Some(model.head.context.components()),
            },
            ..Self::of("transformer", record)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_narrow_line_leaves_out_how_a_run_ended() {
        let [wide, narrow] = [false, true].map(|narrow| Listed::header(4, narrow));
        assert!(
            wide.contains("seconds  ended") && wide.len() > narrow.len() && narrow.ends_with("test state")
        );
        let content = Content::Damaged { state: "damaged", reason: "gone".into() };
        let listed = Listed { run: PathBuf::from("a\u{1b}b"), content };
        assert_eq!(listed.line(3, true), "a\\u{1b}b damaged: gone");
    }
}
