//! The folder of a run: `config.json`, `vocab.txt`, `metrics.jsonl`, `model.bpk` in Burn's own format, and what Burn logs of each
//! step in `train/` and `valid/`.

use std::path::{Path, PathBuf};

use burn::module::Module;
use burn::tensor::Device;
use gpt::{Gpt, GptConfig, TrainConfig};
use runs::Error;
use runs::data::{TextConfig, Vocabulary};
use runs::files::replace;
use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::files::create_folder;

const CONFIG: &str = "config.json";
const VOCABULARY: &str = "vocab.txt";
const METRICS: &str = "metrics.jsonl";
const MODEL: &str = "model.bpk";

/// Everything that defines a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RunConfig {
    /// The name of the output layer.
    pub head: String,
    /// The device.
    pub device: String,
    /// The data folder; none for the generated language.
    pub data: Option<PathBuf>,
    /// How the text is read.
    pub text: TextConfig,
    /// The model.
    pub model: GptConfig,
    /// The procedure.
    pub train: TrainConfig,
}

/// The folder of a run.
#[derive(Debug, Clone)]
pub struct RunFolder {
    path: PathBuf,
}

impl RunFolder {
    /// Whether a folder holds a run of any program.
    pub fn exists(path: &Path) -> bool {
        path.join(CONFIG).exists()
    }

    /// A folder for a new run.
    ///
    /// # Errors
    /// [`Error::RunExists`], or a folder that cannot be written to.
    pub fn create(path: &Path, config: &RunConfig, vocabulary: &Vocabulary) -> Result<Self, Failure> {
        if Self::exists(path) {
            return Err(Error::RunExists { path: path.to_path_buf() }.into());
        }
        create_folder(path)?;
        vocabulary.save(&path.join(VOCABULARY))?;
        replace(&path.join(CONFIG), (serde_json::to_string_pretty(config)? + "\n").as_bytes())?;
        Ok(Self { path: path.to_path_buf() })
    }

    /// The folder of a run that was made.
    ///
    /// # Errors
    /// [`Error::NotARun`] if there is none.
    pub fn open(path: &Path) -> Result<Self, Error> {
        match Self::exists(path) {
            true => Ok(Self { path: path.to_path_buf() }),
            false => Err(Error::NotARun { path: path.to_path_buf(), missing: CONFIG }),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The run's settings.
    ///
    /// # Errors
    /// A file that cannot be read, or is of another program.
    pub fn config(&self) -> Result<RunConfig, Error> {
        let path = self.path.join(CONFIG);
        let text = std::fs::read_to_string(&path).map_err(Error::io("read", &path))?;
        serde_json::from_str(&text).map_err(|error| Error::Damaged { path, reason: error.to_string() })
    }

    /// The words.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn vocabulary(&self) -> Result<Vocabulary, Error> {
        Vocabulary::load(&self.path.join(VOCABULARY))
    }

    /// Saves a model, in the place of the one before.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn save_model(&self, model: &Gpt) -> Result<(), Failure> {
        Ok(replace(&self.path.join(MODEL), &model.clone().into_record().into_bytes()?)?)
    }

    /// The saved model, for evaluation.
    ///
    /// # Errors
    /// A file that is missing, damaged or of a model of other sizes.
    pub fn model(&self, config: &GptConfig, device: &Device) -> Result<Gpt, Error> {
        let path = self.path.join(MODEL);
        if !path.is_file() {
            return Err(Error::NotARun { path: self.path.clone(), missing: MODEL });
        }
        let model = config.try_init(device)?.try_load_file(&path);
        model
            .map(|model| model.valid())
            .map_err(|error| Error::Damaged { path, reason: error.to_string().replace('\n', " ") })
    }

    /// Saves results, one a line.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn save_metrics<T: Serialize>(&self, metrics: impl IntoIterator<Item = T>) -> Result<(), Failure> {
        let lines = metrics.into_iter().map(|metrics| serde_json::to_string(&metrics));
        let text = lines.collect::<Result<Vec<_>, _>>()?.join("\n") + "\n";
        Ok(replace(&self.path.join(METRICS), text.as_bytes())?)
    }
}
