//! What a language model's run consists of.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::config::{ModelConfig, TrainConfig};
use runs::data::{Fingerprint, TextConfig};
use runs::error::{Error, Result};
use runs::{Extended, Folder, RunSettings, unchanged};

/// Everything that defines a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunConfig {
    /// The programs that made it.
    pub versions: Versions,
    /// The preset it started from.
    pub preset: String,
    /// The device it was started on.
    pub device: String,
    /// The data folder.
    pub data: PathBuf,
    /// Hashes of the text in it. It must not change while the run lasts.
    pub corpus: Fingerprint,
    /// The run whose best model training starts from, if this is finetuning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finetunes: Option<PathBuf>,
    /// How the data is read.
    #[serde(default)]
    pub text: TextConfig,
    /// Where its encoded text is kept, if that was said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<KeptTokens>,
    /// The model.
    pub model: ModelConfig,
    /// The training procedure, with the seed.
    pub train: TrainConfig,
    /// What was changed since the run was started, oldest first: see [`RunFolder::extend`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extensions: Vec<Extended>,
}

/// Where the encoded text of a run is kept, as far as it was said: see [`TokenCache`](runs::data::TokenCache).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeptTokens {
    /// The folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<PathBuf>,
    /// Size of a text, in MiB, from which on it is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_mib: Option<u64>,
}

/// Versions of the programs that made a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Versions {
    /// This crate.
    pub awd_lstm: String,
    /// Burn.
    pub burn: String,
    /// The layout of the run folder.
    pub format: u32,
}

impl Versions {
    /// The layout that this version of the crate writes and reads.
    pub const FORMAT: u32 = 3;
    /// The version of Burn that this crate is built with.
    pub const BURN: &str = "0.22.1";

    /// The versions of the running program.
    pub fn current() -> Self {
        Self {
            awd_lstm: env!("CARGO_PKG_VERSION").to_string(),
            burn: Self::BURN.to_string(),
            format: Self::FORMAT,
        }
    }

    /// The version that reads runs of the format `format`, which this one does not.
    fn reader(format: u64) -> &'static str {
        match format {
            ..=2 => "highrank 0.1, for Burn 0.21,",
            _ => "a newer version of highrank",
        }
    }
}

impl RunConfig {
    /// Whether a run with this configuration can be resumed with the configuration `now`.
    ///
    /// # Errors
    /// [`Error::ConfigChanged`] names the first setting of the device, the text, the model or the procedure that differs.
    pub fn check(&self, now: &Self) -> Result<()> {
        unchanged("device", &self.device, &now.device)?;
        unchanged("text", &self.text, &now.text)?;
        unchanged("model", &self.model, &now.model)?;
        unchanged("train", &self.train, &now.train)
    }
}

/// The folder of a language model's run.
pub type RunFolder = Folder<RunConfig>;

impl RunSettings for RunConfig {
    type Error = Error;

    fn check_format(path: &Path, content: &Value) -> Result<()> {
        let versions = &content["versions"];
        if versions.is_object() && versions["awd_lstm"].is_null() {
            let path = path.parent().unwrap_or(path).to_path_buf();
            return Err(Error::NotARun { path, missing: "language model" });
        }
        match versions["format"].as_u64() {
            Some(found) if found != u64::from(Versions::FORMAT) => Err(Error::RunFormat {
                path: path.to_path_buf(),
                found,
                expected: Versions::FORMAT,
                reader: Versions::reader(found),
            }),
            _ => Ok(()),
        }
    }

    fn validate(&self) -> Result<()> {
        self.text.validate()?;
        self.model.validate()?;
        self.train.validate()
    }

    fn vocab(&self) -> usize {
        self.model.vocab
    }
}

#[cfg(test)]
mod tests;
