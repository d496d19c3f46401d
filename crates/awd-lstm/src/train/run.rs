//! The folder of a run.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::files;
use crate::config::{ModelConfig, TrainConfig};
use crate::data::Vocabulary;
use crate::error::{Error, Result};

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
    /// The model.
    pub model: ModelConfig,
    /// The training procedure, with the seed.
    pub train: TrainConfig,
}

/// Versions of the programs that made a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Versions {
    /// This crate.
    pub awd_lstm: String,
    /// The layout of the run folder.
    pub format: u32,
}

impl Versions {
    /// The layout that this version of the crate writes and reads.
    pub const FORMAT: u32 = 1;

    /// The versions of the running program.
    pub fn current() -> Self {
        Self { awd_lstm: env!("CARGO_PKG_VERSION").to_string(), format: Self::FORMAT }
    }
}

/// A folder that holds one run: `config.json`, `vocab.txt`, `metrics.jsonl`, `checkpoint/` and `best/`.
///
/// `checkpoint/` holds the latest epoch's `model.safetensors`, the averaged weights in `average.safetensors` once
/// there are any, and the trainer's `state.json`; `best/` holds the `model.safetensors` with the lowest
/// validation perplexity. Both are replaced as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunFolder {
    path: PathBuf,
}

const CONFIG: &str = "config.json";
const VOCABULARY: &str = "vocab.txt";
const METRICS: &str = "metrics.jsonl";
const CHECKPOINT: &str = "checkpoint";
const BEST: &str = "best";
/// The weights in `checkpoint/` and `best/`.
pub(super) const MODEL: &str = "model.safetensors";
/// The averaged weights in `checkpoint/`.
pub(super) const AVERAGE: &str = "average.safetensors";
/// The trainer's state in `checkpoint/`.
pub(super) const STATE: &str = "state.json";

impl RunFolder {
    /// Whether `path` holds a run or a part of one.
    pub fn exists(path: &Path) -> bool {
        [CONFIG, METRICS, CHECKPOINT, BEST].iter().any(|name| path.join(name).exists())
    }

    /// Starts a run in `path`, which is made if need be.
    ///
    /// # Errors
    /// [`Error::RunExists`] if there is a run already, [`Error::Io`] if the folder cannot be written.
    pub fn create(path: &Path, config: &RunConfig, vocabulary: &Vocabulary) -> Result<Self> {
        if Self::exists(path) {
            return Err(Error::RunExists { path: path.to_path_buf() });
        }
        fs::create_dir_all(path).map_err(Error::io("create", path))?;
        vocabulary.save(&path.join(VOCABULARY))?;
        files::write_json(&path.join(CONFIG), config)?;
        Ok(Self { path: path.to_path_buf() })
    }

    /// Opens the run in `path`.
    ///
    /// # Errors
    /// [`Error::NotARun`] if there is none.
    pub fn open(path: &Path) -> Result<Self> {
        if !path.join(CONFIG).is_file() {
            return Err(Error::NotARun { path: path.to_path_buf(), missing: CONFIG });
        }
        let run = Self { path: path.to_path_buf() };
        files::recover_folder(&run.checkpoint())?;
        files::recover_folder(&run.best())?;
        Ok(run)
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The configuration, checked.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Damaged`], or what [`ModelConfig::validate`] and [`TrainConfig::validate`] say.
    pub fn config(&self) -> Result<RunConfig> {
        let path = self.path.join(CONFIG);
        let config: RunConfig = files::read_json(&path)?;
        if config.versions.format != Versions::FORMAT {
            let reason = format!(
                "it has the run format {}, this program reads {}",
                config.versions.format,
                Versions::FORMAT
            );
            return Err(Error::Damaged { path, reason });
        }
        config.model.validate()?;
        config.train.validate()?;
        Ok(config)
    }

    /// The words that the run was trained on.
    ///
    /// # Errors
    /// [`Error::Io`], or [`Error::Damaged`] if they are not as many as the model has.
    pub fn vocabulary(&self) -> Result<Vocabulary> {
        let path = self.path.join(VOCABULARY);
        let vocabulary = Vocabulary::load(&path)?;
        let (words, vocab) = (vocabulary.len(), self.config()?.model.vocab);
        if words != vocab {
            let reason = format!("it holds {words} words, but the model has {vocab}");
            return Err(Error::Damaged { path, reason });
        }
        Ok(vocabulary)
    }

    /// The latest checkpoint's folder.
    pub fn checkpoint(&self) -> PathBuf {
        self.path.join(CHECKPOINT)
    }

    /// The best model's folder.
    pub fn best(&self) -> PathBuf {
        self.path.join(BEST)
    }

    /// The best model's weights, which must exist.
    ///
    /// # Errors
    /// [`Error::NotARun`] if no epoch was finished yet.
    pub fn best_weights(&self) -> Result<PathBuf> {
        let path = self.best().join(MODEL);
        if path.is_file() {
            Ok(path)
        } else {
            Err(Error::NotARun {
                path: self.path.clone(),
                missing: "best/model.safetensors: no epoch was finished",
            })
        }
    }

    /// Adds one line to `metrics.jsonl`.
    ///
    /// # Errors
    /// [`Error::Io`] if it cannot be written.
    pub fn append_metrics(&self, metrics: &impl Serialize) -> Result<()> {
        let path = self.path.join(METRICS);
        let mut line = serde_json::to_string(metrics).map_err(|error| Error::Io {
            action: "write",
            path: path.clone(),
            source: error.into(),
        })?;
        line.push('\n');
        OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)
            .and_then(|mut file| file.write_all(line.as_bytes()))
            .map_err(Error::io("write", &path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{HeadKind, Preset};

    fn config(vocab: usize) -> RunConfig {
        RunConfig {
            versions: Versions::current(),
            preset: "small".into(),
            device: "flex".into(),
            data: PathBuf::from("data"),
            model: Preset::Small.model(HeadKind::Mos, vocab),
            train: Preset::Small.train(),
        }
    }

    fn vocabulary() -> Vocabulary {
        Vocabulary::from(vec!["a".to_string(), "<eos>".into()])
    }

    #[test]
    fn what_is_written_is_read_back() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("deep/run");
        let run = RunFolder::create(&path, &config(2), &vocabulary()).unwrap();
        assert_eq!(RunFolder::open(&path).unwrap(), run);
        assert_eq!(run.config().unwrap(), config(2));
        assert_eq!(run.vocabulary().unwrap(), vocabulary());
        run.append_metrics(&1).unwrap();
        run.append_metrics(&"x").unwrap();
        assert_eq!(fs::read_to_string(path.join(METRICS)).unwrap(), "1\n\"x\"\n");
        let message = run.best_weights().unwrap_err().to_string();
        assert!(message.contains("no epoch was finished"), "{message}");
    }

    #[test]
    fn a_folder_with_a_run_is_refused_and_left_alone() {
        let root = tempfile::tempdir().unwrap();
        RunFolder::create(root.path(), &config(2), &vocabulary()).unwrap();
        let again = RunFolder::create(root.path(), &config(3), &vocabulary());
        assert!(matches!(again, Err(Error::RunExists { .. })));
        assert_eq!(RunFolder::open(root.path()).unwrap().config().unwrap().model.vocab, 2);
    }

    #[test]
    fn a_folder_without_a_run_is_named() {
        let root = tempfile::tempdir().unwrap();
        assert!(matches!(RunFolder::open(root.path()), Err(Error::NotARun { .. })));
        assert!(!RunFolder::exists(root.path()));
    }

    #[test]
    fn damaged_files_are_named() {
        let root = tempfile::tempdir().unwrap();
        let run = RunFolder::create(root.path(), &config(3), &vocabulary()).unwrap();
        let message = run.vocabulary().unwrap_err().to_string();
        assert!(
            message.contains("vocab.txt` is damaged: it holds 2 words, but the model has 3"),
            "{message}"
        );
        let text = fs::read_to_string(root.path().join(CONFIG)).unwrap();
        fs::write(root.path().join(CONFIG), &text[..text.len() / 2]).unwrap();
        let message = run.config().unwrap_err().to_string();
        assert!(message.contains("config.json` is damaged"), "{message}");
        let text = text.replace(r#""components": 5"#, r#""components": 0"#);
        fs::write(root.path().join(CONFIG), text).unwrap();
        assert!(run.config().unwrap_err().to_string().contains("components"));
    }
}
