//! Options of the commands that train a model from its first epoch.

use std::path::Path;

use awd_lstm::{HeadKind, ModelConfig, Preset, TrainConfig};
use clap::Args;
use program::args::{RecordArgs, TextArgs, TokenArgs};
use program::device::DeviceChoice;
use program::failure::Failure;
use runs::data::TextConfig;

use crate::args::file::SettingsFile;
use crate::args::overrides::Overrides;

/// What is trained, on which text, where, and how often it is saved, but for the settings that replace the preset's: [`Overrides`].
///
/// The order of precedence is `--set`, options, file, preset.
#[derive(Debug, Clone, Args)]
pub struct TrainingArgs {
    /// Sizes, procedure and reading of the text to start from: small, paper, doc, awd-lstm, lms-plif, wikitext2,
    /// doc-wikitext2, awd-lstm-wikitext2, billion-word, text8, text8-mos7-square, text8-mos10 or text8-mos10-square [default: small].
    #[arg(long)]
    pub preset: Option<Preset>,
    /// JSON file of settings that replace the preset's: a run's config.json, or an object of the same form with only some
    /// of them. Options of the command line replace the file's.
    #[arg(long, value_name = "FILE", value_parser = SettingsFile::read)]
    pub config: Option<SettingsFile>,
    /// Where to compute: auto (the fastest there is), flex, ndarray, wgpu or cuda [default: auto].
    #[arg(long)]
    pub device: Option<DeviceChoice>,
    /// How often it is saved, and written about.
    #[command(flatten)]
    pub record: RecordArgs,
    /// How the text is read.
    #[command(flatten)]
    pub text: TextArgs,
    /// Where the encoded text is kept.
    #[command(flatten)]
    pub tokens: TokenArgs,
}

impl TrainingArgs {
    pub fn preset(&self) -> Preset {
        let of_file = self.config.as_ref().and_then(|file| file.preset);
        self.preset.or(of_file).unwrap_or(Preset::Small)
    }

    pub fn device(&self) -> DeviceChoice {
        let of_file = self.config.as_ref().and_then(|file| file.device).map(DeviceChoice::Named);
        self.device.or(of_file).unwrap_or_default()
    }

    /// The folder of the text, which the command line of `command` gives or its file names.
    pub fn data<'a>(&'a self, given: Option<&'a Path>, command: &str) -> Result<&'a Path, Failure> {
        let of_file = self.config.as_ref().and_then(|file| file.data.as_deref());
        given
            .or(of_file)
            .ok_or_else(|| format!("{command} needs --data DIR, or `data` in the file of --config").into())
    }

    pub fn text(&self, overrides: &Overrides) -> TextConfig {
        let mut text = self.preset().text();
        if let Some(file) = &self.config {
            text = file.text(&text);
        }
        self.text.apply_to(&mut text);
        overrides.given.apply("text", &text)
    }

    /// The model with this output layer for a vocabulary of `vocab` words: the preset's with the file's settings and the
    /// overrides.
    pub fn model(&self, head: HeadKind, vocab: usize, overrides: &Overrides) -> ModelConfig {
        let mut model = self.preset().model(head, vocab);
        if let Some(file) = &self.config {
            model = file.model(&model);
        }
        overrides.model(model)
    }

    /// The procedure: the preset's with the file's settings and the overrides, checked.
    pub fn procedure(&self, overrides: &Overrides) -> Result<TrainConfig, Failure> {
        let mut config = self.preset().train();
        if let Some(file) = &self.config {
            if let (Some(given), Some(of_file)) = (self.preset, file.preset)
                && given != of_file
            {
                let file = file.path.display();
                return Err(
                    format!("--preset is {given}, but {of_file} in `{file}`; leave one of them out").into()
                );
            }
            config = file.train(&config);
        }
        let config = overrides.procedure(config)?;
        config.validate()?;
        Ok(config)
    }
}
