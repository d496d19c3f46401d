//! Options of the commands that train a model from its first epoch.

use awd_lstm::data::TextConfig;
use awd_lstm::{Error, HeadKind, ModelConfig, Preset, TrainConfig};
use clap::Args;

use crate::args::overrides::Overrides;
use crate::args::text::TextArgs;
use crate::device::DeviceChoice;

/// What is trained, on which text, where, and how often it is saved.
#[derive(Debug, Clone, Args)]
pub struct TrainingArgs {
    /// Sizes, procedure and reading of the text to start from: small, paper, awd-lstm, lms-plif, wikitext2,
    /// awd-lstm-wikitext2, billion-word, text8, text8-mos7-square, text8-mos10 or text8-mos10-square [default: small].
    #[arg(long)]
    pub preset: Option<Preset>,
    /// Where to compute: auto (the fastest there is), flex, ndarray, wgpu or cuda [default: auto].
    #[arg(long)]
    pub device: Option<DeviceChoice>,
    /// Save a run inside of epochs too, every so many minutes.
    #[arg(long, value_name = "MIN", default_value_t = 10.0)]
    pub checkpoint_every: f64,
    /// How the text is read.
    #[command(flatten)]
    pub text: TextArgs,
    /// Settings that replace the preset's.
    #[command(flatten)]
    pub overrides: Overrides,
}

impl TrainingArgs {
    /// The preset to start from.
    pub fn preset(&self) -> Preset {
        self.preset.unwrap_or(Preset::Small)
    }

    /// Where to compute.
    pub fn device(&self) -> DeviceChoice {
        self.device.unwrap_or_default()
    }

    /// The model with this output layer for a vocabulary of `vocab` words: the preset's with the overrides.
    pub fn model(&self, head: HeadKind, vocab: usize) -> ModelConfig {
        let mut model = self.preset().model(head, vocab);
        self.overrides.apply_to_model(&mut model);
        model
    }

    /// How the text is read: as the preset says, unless the options say otherwise.
    pub fn text(&self) -> TextConfig {
        let mut text = self.preset().text();
        self.text.apply_to(&mut text);
        text
    }

    /// The procedure: the preset's with the overrides, checked.
    ///
    /// # Errors
    /// What [`TrainConfig::validate`] says.
    pub fn procedure(&self) -> Result<TrainConfig, Error> {
        let mut config = self.preset().train();
        self.overrides.apply_to_procedure(&mut config);
        config.validate()?;
        Ok(config)
    }
}
