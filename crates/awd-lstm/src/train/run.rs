//! The folder of a run.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::checkpoint::save_weights;
use super::fingerprint::Fingerprint;
use crate::config::{ModelConfig, TrainConfig};
use crate::data::{TextConfig, Vocabulary};
use crate::error::{Error, Result};
use crate::files;
use crate::model::LanguageModel;

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

/// Whether two values are the same.
///
/// # Errors
/// [`Error::ConfigChanged`] with the path of the first difference below `name`.
pub(super) fn unchanged(name: &str, before: &impl Serialize, now: &impl Serialize) -> Result<()> {
    fn differ(name: &str, before: &Value, now: &Value) -> Result<()> {
        if let (Value::Object(before), Value::Object(now)) = (before, now) {
            let keys = before.keys().chain(now.keys().filter(|key| !before.contains_key(*key)));
            return keys.into_iter().try_for_each(|key| {
                let of =
                    |object: &serde_json::Map<String, Value>| object.get(key).cloned().unwrap_or(Value::Null);
                differ(&format!("{name}.{key}"), &of(before), &of(now))
            });
        }
        if before == now {
            return Ok(());
        }
        let (setting, before, now) = (name.to_string(), before.to_string(), now.to_string());
        Err(Error::ConfigChanged { setting, before, now })
    }
    let value =
        |value: Result<Value, serde_json::Error>| value.expect("configurations are plain numbers and names");
    differ(name, &value(serde_json::to_value(before)), &value(serde_json::to_value(now)))
}

/// A folder that holds one run: `config.json`, `vocab.txt`, `metrics.jsonl`, `checkpoint/` and `best/`.
///
/// `checkpoint/` holds all that training needs to be resumed: the weights in `model.safetensors`; the averaged weights in
/// `average.safetensors` once there are any; the carried hidden state and partial sums of an unfinished epoch in
/// `epoch.safetensors`; the lines of `metrics.jsonl` at that time; and the trainer's `state.json`. The folder is replaced as a
/// whole. `best/` holds the `model.safetensors` with the lowest validation perplexity, and that file is replaced as a whole.
///
/// A training process holds a lock of the operating system on the file `lock`, which ends with the process. Reading needs no
/// lock.
#[derive(Debug, Clone)]
pub struct RunFolder {
    path: PathBuf,
    /// Holds the lock, if this is the folder of a training process.
    lock: Option<Arc<File>>,
}

const CONFIG: &str = "config.json";
const VOCABULARY: &str = "vocab.txt";
const CHECKPOINT: &str = "checkpoint";
const BEST: &str = "best";
const LOCK: &str = "lock";
/// One line an epoch, in the run's folder and, as of its time, in `checkpoint/`.
pub(super) const METRICS: &str = "metrics.jsonl";
/// The weights in `checkpoint/` and `best/`.
pub(super) const MODEL: &str = "model.safetensors";
/// The averaged weights in `checkpoint/`.
pub(super) const AVERAGE: &str = "average.safetensors";
/// State of an unfinished epoch in `checkpoint/`.
pub(super) const EPOCH: &str = "epoch.safetensors";
/// The trainer's state in `checkpoint/`.
pub(super) const STATE: &str = "state.json";

impl RunFolder {
    /// Whether `path` holds a run or a part of one.
    pub fn exists(path: &Path) -> bool {
        [CONFIG, METRICS, CHECKPOINT, BEST].iter().any(|name| path.join(name).exists())
    }

    /// Starts a run in `path`, which is created if it does not exist, and locks it.
    ///
    /// # Errors
    /// [`Error::RunExists`] if there is a run already, [`Error::RunInUse`] if another process is just starting one,
    /// [`Error::Io`] if the folder cannot be written.
    pub fn create(path: &Path, config: &RunConfig, vocabulary: &Vocabulary) -> Result<Self> {
        let free = || match Self::exists(path) {
            true => Err(Error::RunExists { path: path.to_path_buf() }),
            false => Ok(()),
        };
        free()?;
        fs::create_dir_all(path).map_err(Error::io("create", path))?;
        let lock = lock(path)?;
        // Another process may have been faster.
        free()?;
        vocabulary.save(&path.join(VOCABULARY))?;
        files::sync(&path.join(VOCABULARY))?;
        // The last file: a folder without it is no run yet, so a run can be started in it again.
        files::replace_json(&path.join(CONFIG), config)?;
        Ok(Self { path: path.to_path_buf(), lock: Some(Arc::new(lock)) })
    }

    /// Opens the run in `path` for reading. Another process may be training it.
    ///
    /// # Errors
    /// [`Error::NotARun`] if there is none.
    pub fn open(path: &Path) -> Result<Self> {
        if !path.join(CONFIG).is_file() {
            return Err(Error::NotARun { path: path.to_path_buf(), missing: CONFIG });
        }
        Ok(Self { path: path.to_path_buf(), lock: None })
    }

    /// Opens the run in `path` to resume it: locks it, and cleans up what a process left that died while it saved.
    ///
    /// # Errors
    /// [`Error::NotARun`] if there is none, [`Error::RunInUse`] if another process is training it, [`Error::Io`].
    pub fn resume(path: &Path) -> Result<Self> {
        let run = Self { lock: Some(Arc::new(lock(&Self::open(path)?.path)?)), ..Self::open(path)? };
        files::recover_folder(&run.checkpoint())?;
        files::remove_temporary(&run.path)?;
        files::remove_temporary(&run.best())?;
        Ok(run)
    }

    /// Whether this process holds the run's lock.
    pub fn is_locked(&self) -> bool {
        self.lock.is_some()
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The configuration, checked.
    ///
    /// # Errors
    /// [`Error::RunFormat`] for a run of another format; [`Error::Io`], [`Error::Damaged`], or what [`ModelConfig::validate`]
    /// and [`TrainConfig::validate`] say.
    pub fn config(&self) -> Result<RunConfig> {
        let path = self.path.join(CONFIG);
        let value: Value = files::read_json(&path)?;
        // The format first: another one may have other fields.
        if let Some(found) = value["versions"]["format"].as_u64()
            && found != u64::from(Versions::FORMAT)
        {
            let expected = Versions::FORMAT;
            return Err(Error::RunFormat { path, found, expected, reader: Versions::reader(found) });
        }
        let config: RunConfig = serde_json::from_value(value)
            .map_err(|error| Error::Damaged { path: path.clone(), reason: error.to_string() })?;
        config.text.validate()?;
        config.model.validate()?;
        config.train.validate()?;
        Ok(config)
    }

    /// The words of the run's text.
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

    /// The file with the best model's weights, which must exist.
    ///
    /// # Errors
    /// [`Error::NotARun`] if no epoch is finished yet.
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

    /// Replaces the best model.
    ///
    /// # Errors
    /// [`Error::Io`] if it cannot be written; the old one is then still there.
    pub fn save_best(&self, model: &LanguageModel) -> Result<()> {
        fs::create_dir_all(self.best()).map_err(Error::io("create", &self.best()))?;
        save_weights(model, &self.best().join(MODEL))
    }

    /// The lines of `metrics.jsonl` so far, one JSON object each; none before the first epoch.
    ///
    /// # Errors
    /// [`Error::Io`] if the file cannot be read.
    pub fn metrics(&self) -> Result<String> {
        let path = self.path.join(METRICS);
        match fs::read_to_string(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
            read => read.map_err(Error::io("read", &path)),
        }
    }

    /// Sets `metrics.jsonl` back to the given lines.
    pub(super) fn reset_metrics(&self, lines: &str) -> Result<()> {
        match self.metrics() {
            Ok(found) if found == lines => Ok(()),
            _ => files::replace(&self.path.join(METRICS), lines.as_bytes()),
        }
    }

    /// Adds one line, with its end, to `metrics.jsonl`.
    pub(super) fn append_metrics(&self, line: &str) -> Result<()> {
        let path = self.path.join(METRICS);
        OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)
            .and_then(|mut file| file.write_all(line.as_bytes()).and_then(|()| file.sync_all()))
            .map_err(Error::io("write", &path))
    }
}

/// Locks the run in the folder `path` for this process. The system releases the lock when the process ends, however it ends.
fn lock(path: &Path) -> Result<File> {
    let file = path.join(LOCK);
    let opened = OpenOptions::new().create(true).truncate(false).write(true).open(&file);
    let opened = opened.map_err(Error::io("create", &file))?;
    match opened.try_lock() {
        Ok(()) => Ok(opened),
        Err(TryLockError::WouldBlock) => Err(Error::RunInUse { path: path.to_path_buf() }),
        Err(TryLockError::Error(error)) => Err(Error::io("lock", &file)(error)),
    }
}

#[cfg(test)]
mod tests;
