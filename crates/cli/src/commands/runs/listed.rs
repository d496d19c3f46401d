//! A run, or a damaged one, as a line.

use std::path::{Path, PathBuf};

use awd_lstm::{Error, HeadKind};
use serde::Serialize;

use crate::statistics::grouped;
use crate::training::{Record, State};

/// A folder that holds a run, or should.
#[derive(Debug, Serialize)]
pub struct Listed {
    /// The folder.
    pub run: PathBuf,
    /// What it holds.
    #[serde(flatten)]
    pub content: Content,
}

/// What a folder holds.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Content {
    /// A run.
    Run(Box<Summary>),
    /// Something that cannot be read.
    Damaged {
        /// Always `damaged`.
        state: &'static str,
        /// Why, in one line.
        reason: String,
    },
}

/// Settings and results of a run.
#[derive(Debug, Serialize)]
pub struct Summary {
    /// Where it stands.
    pub state: State,
    /// The preset it started from.
    pub preset: String,
    /// The output layer.
    pub head: HeadKind,
    /// Number of parameters.
    pub parameters: usize,
    /// Width of the embedding.
    pub d_embedding: usize,
    /// Sizes of the LSTM layers.
    pub lstm_sizes: Vec<usize>,
    /// Components of a mixture.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub components: Option<usize>,
    /// The seed.
    pub seed: u64,
    /// Whether it finetunes another run.
    pub finetunes: bool,
    /// The device.
    pub device: String,
    /// Epochs done.
    pub epochs_done: usize,
    /// Epochs that it may have.
    pub epochs: usize,
    /// Perplexity of the training text in the epoch of the best model.
    pub train_ppl: Option<f64>,
    /// Perplexity of the validation text with the best model so far.
    pub valid_ppl: Option<f64>,
    /// Perplexity of the test text, after the end.
    pub test_ppl: Option<f64>,
    /// Wall-clock time of training so far.
    pub seconds: f64,
    /// Why it was given up, if it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

impl Listed {
    /// Reads the run in a folder.
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

    /// The run, unless it is damaged.
    pub fn summary(&self) -> Option<&Summary> {
        match &self.content {
            Content::Run(summary) => Some(summary),
            Content::Damaged { .. } => None,
        }
    }

    /// The titles of the columns of [`line`](Self::line), after a name of this width.
    pub fn header(width: usize) -> String {
        format!(
            "{:<width$} {:<10} {:>12} {:>5} {:>4} {:>11} {:>9} {:>9} {:>9}  state",
            "run", "head", "parameters", "d", "K", "epochs", "valid", "test", "seconds"
        )
    }

    /// The run in one line.
    pub fn line(&self, width: usize) -> String {
        let name = self.run.display().to_string();
        match &self.content {
            Content::Damaged { reason, .. } => format!("{name:<width$} damaged: {reason}"),
            Content::Run(run) => {
                let number = |value: Option<f64>| value.map_or("-".into(), |value| format!("{value:.2}"));
                let failed = run.failed.as_ref().map_or(String::new(), |reason| format!(": {reason}"));
                format!(
                    "{name:<width$} {:<10} {:>12} {:>5} {:>4} {:>11} {:>9} {:>9} {:>9.0}  {}{}{failed}",
                    run.head,
                    grouped(run.parameters),
                    run.d_embedding,
                    run.components.map_or("-".into(), |components| components.to_string()),
                    format!("{}/{}", run.epochs_done, run.epochs),
                    number(run.valid_ppl),
                    number(run.test_ppl),
                    run.seconds,
                    run.state,
                    if run.finetunes { ", finetuning" } else { "" },
                )
            }
        }
    }
}

impl Summary {
    fn read(path: &Path) -> Result<Self, Error> {
        let record = Record::read(path)?;
        let (model, train) = (&record.config.model, &record.config.train);
        Ok(Self {
            state: record.state()?,
            preset: record.config.preset.clone(),
            head: model.head,
            parameters: model.num_params(),
            d_embedding: model.d_embedding,
            lstm_sizes: model.lstm_sizes.clone(),
            components: model.head.is_mixture().then_some(model.components),
            seed: train.seed,
            finetunes: record.config.finetunes.is_some(),
            device: record.config.device.clone(),
            epochs_done: record.epochs_done(),
            epochs: train.epochs,
            train_ppl: record.train_ppl(),
            valid_ppl: record.valid_ppl(),
            test_ppl: record.test_ppl(),
            seconds: record.seconds(),
            failed: record.failure(),
        })
    }
}
