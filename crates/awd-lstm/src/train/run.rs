//! What a language model's run consists of.

use runs::data::TextConfig;
use runs::error::Result;
use runs::{Folder, Settings};

use crate::config::{ModelConfig, TrainConfig};

/// Runs of language models, the kind `awd-lstm`.
///
/// A run's `checkpoint/` also holds the averaged weights in `average.safetensors` once there are any, and the carried hidden state of
/// an unfinished epoch in `epoch.safetensors`.
#[derive(Debug, Clone, PartialEq)]
pub enum AwdLstm {}

/// Everything that defines a run.
pub type RunConfig = runs::RunConfig<AwdLstm>;

/// The folder of a language model's run.
pub type RunFolder = Folder<AwdLstm>;

impl Settings for AwdLstm {
    const KIND: &'static str = "awd-lstm";
    const TRAINS: &'static str = "language model";

    type Text = TextConfig;
    type Model = ModelConfig;
    type Train = TrainConfig;

    fn validate(text: &TextConfig, model: &ModelConfig) -> Result<()> {
        text.validate()?;
        model.validate()
    }

    fn vocab(model: &ModelConfig) -> usize {
        model.vocab
    }
}
