//! What a run consists of, and its procedure as a trainer knows it.

use runs::data::TextConfig;
use runs::error::Result;
use runs::{Common, EndReason, Extension, Folder, Procedure, Settings, TrainerState};
use serde::{Deserialize, Serialize};

use crate::config::{GptConfig, TrainConfig};

/// Runs of transformers, the kind `gpt`. Their `preset` is the name of the output layer, an epoch is a round, and a `checkpoint/` also
/// holds the optimiser's state in `optimiser.bpk`.
#[derive(Debug, Clone, PartialEq)]
pub enum Transformer {}

/// Everything that defines a run.
pub type RunConfig = runs::RunConfig<Transformer>;

/// The folder of a run.
pub type RunFolder = Folder<Transformer>;

/// The state of a transformer's trainer: there is nothing besides what every trainer keeps.
pub type GptState = TrainerState<Nothing>;

/// Nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nothing {}

impl Settings for Transformer {
    const KIND: &'static str = "gpt";
    const TRAINS: &'static str = "transformer";

    type Text = TextConfig;
    type Model = GptConfig;
    type Train = TrainConfig;

    fn validate(text: &TextConfig, model: &GptConfig) -> Result<()> {
        text.validate()?;
        model.validate()
    }

    fn vocab(model: &GptConfig) -> usize {
        model.head.vocab
    }
}

/// A run cannot be extended: the learning rate of every step depends on the number of all steps.
impl Procedure for TrainConfig {
    type State = Nothing;

    const CHANGEABLE: &'static [&'static str] = &[];

    fn validate(&self) -> Result<()> {
        Self::validate(self)
    }

    fn common(&self) -> Common {
        let Self { rounds: epochs, seed, clip, .. } = *self;
        Common { epochs, seed, clip, validate_every: None, max_minutes: None, test: self.tests() }
    }

    fn rule(&self, _state: &GptState) -> Option<EndReason> {
        None
    }

    fn extend(&mut self, change: &Extension) -> std::result::Result<(), String> {
        match (change.epochs, change.max_minutes, change.patience) {
            (None, None, None) => Ok(()),
            _ => Err(
                "its learning rate has fallen to nearly 0 at its last step; start a new run with more steps"
                    .into(),
            ),
        }
    }

    fn over(&self, state: &GptState) -> String {
        format!("it ended after round {}", state.epoch)
    }
}
