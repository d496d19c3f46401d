//! The folder of a run, whatever model is trained in it.

use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::Write;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use burn::module::Module;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::data::Vocabulary;
use crate::error::{Error, Result};
use crate::files;
use crate::weights::save_weights;

/// A folder that holds one run: `config.json`, `vocab.txt`, `metrics.jsonl`, `steps.jsonl`, `checkpoint/` and `best/`.
///
/// `metrics.jsonl` has a line an [epoch](super::EpochMetrics), one a [validation](super::ValidationMetrics) inside of an epoch,
/// and [one](super::FinalMetrics) at the end of the run. `steps.jsonl` has a line [every few steps](super::StepMetrics).
///
/// `checkpoint/` holds all that training needs to be resumed: the weights in `model.safetensors`; the averaged weights in
/// `average.safetensors` once there are any; the carried hidden state and partial sums of an unfinished epoch in
/// `epoch.safetensors`; the lines of `metrics.jsonl` at that time; and the trainer's `state.json`, with the length of
/// `steps.jsonl`. The folder is replaced as a
/// whole. `best/` holds the `model.safetensors` with the lowest validation perplexity, and that file is replaced as a whole.
///
/// A training process holds a lock of the operating system on the file `lock`, which ends with the process. Reading needs no
/// lock.
///
/// `C` is the content of `config.json`: [`RunFolder`](super::RunFolder) is the folder of a language model's run.
pub struct Folder<C> {
    path: PathBuf,
    /// Holds the lock, if this is the folder of a training process.
    lock: Option<Arc<File>>,
    config: PhantomData<fn() -> C>,
}

/// What the `config.json` of a [`Folder`] holds: everything that defines a run.
pub trait RunSettings: Serialize + DeserializeOwned {
    /// Error of [`validate`](Self::validate).
    type Error: From<Error>;

    /// Checks the version of the layout in the file `path`, before anything else is read of its content.
    ///
    /// # Errors
    /// [`Error::RunFormat`] for a run of another format, or what else tells that the run is of another program.
    fn check_format(path: &Path, content: &Value) -> Result<(), Self::Error>;

    /// Checks all settings.
    ///
    /// # Errors
    /// Names the first setting that is out of range.
    fn validate(&self) -> Result<(), Self::Error>;

    /// Number of words of the model.
    fn vocab(&self) -> usize;
}

const CONFIG: &str = "config.json";
const VOCABULARY: &str = "vocab.txt";
const CHECKPOINT: &str = "checkpoint";
const BEST: &str = "best";
const LOCK: &str = "lock";
/// One line every few steps, in the run's folder.
const STEPS: &str = "steps.jsonl";
/// One line an epoch, in the run's folder and, as of its time, in `checkpoint/`.
pub const METRICS: &str = "metrics.jsonl";
/// The weights in `checkpoint/` and `best/`.
pub const MODEL: &str = "model.safetensors";
/// The averaged weights in `checkpoint/`.
pub const AVERAGE: &str = "average.safetensors";
/// State of an unfinished epoch in `checkpoint/`.
pub const EPOCH: &str = "epoch.safetensors";
/// The trainer's state in `checkpoint/`.
pub const STATE: &str = "state.json";

impl<C> Clone for Folder<C> {
    fn clone(&self) -> Self {
        Self { path: self.path.clone(), lock: self.lock.clone(), config: PhantomData }
    }
}

impl<C> fmt::Debug for Folder<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Folder").field("path", &self.path).field("lock", &self.lock).finish()
    }
}

impl<C: RunSettings> Folder<C> {
    /// Whether `path` holds a run or a part of one.
    pub fn exists(path: &Path) -> bool {
        [CONFIG, METRICS, CHECKPOINT, BEST].iter().any(|name| path.join(name).exists())
    }

    /// Starts a run in `path`, which is created if it does not exist, and locks it.
    ///
    /// # Errors
    /// [`Error::RunExists`] if there is a run already, [`Error::RunInUse`] if another process is just starting one,
    /// [`Error::Io`] if the folder cannot be written.
    pub fn create(path: &Path, config: &C, vocabulary: &Vocabulary) -> Result<Self> {
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
        Ok(Self { path: path.to_path_buf(), lock: Some(Arc::new(lock)), config: PhantomData })
    }

    /// Opens the run in `path` for reading. Another process may be training it.
    ///
    /// # Errors
    /// [`Error::NotARun`] if there is none.
    pub fn open(path: &Path) -> Result<Self> {
        if !path.join(CONFIG).is_file() {
            return Err(Error::NotARun { path: path.to_path_buf(), missing: CONFIG });
        }
        Ok(Self { path: path.to_path_buf(), lock: None, config: PhantomData })
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

    /// Whether a process holds the run's lock, this one or another.
    ///
    /// For the moment of asking, the lock is taken for reading: a process that wants to train the run in that moment is refused.
    ///
    /// # Errors
    /// [`Error::Io`] if the lock cannot be read.
    pub fn is_in_use(&self) -> Result<bool> {
        let path = self.path.join(LOCK);
        let file = match File::open(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
            opened => opened.map_err(Error::io("read", &path))?,
        };
        match file.try_lock_shared() {
            Ok(()) => Ok(false),
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(error)) => Err(Error::io("lock", &path)(error)),
        }
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The configuration, checked.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Damaged`], or what [`RunSettings::check_format`] and [`RunSettings::validate`] say.
    pub fn config(&self) -> Result<C, C::Error> {
        let path = self.path.join(CONFIG);
        let value: Value = files::read_json(&path)?;
        // The format first: another one may have other fields.
        C::check_format(&path, &value)?;
        let config: C = serde_json::from_value(value)
            .map_err(|error| Error::Damaged { path, reason: error.to_string() })?;
        config.validate()?;
        Ok(config)
    }

    /// The words of the run's text.
    ///
    /// # Errors
    /// [`Error::Io`], or [`Error::Damaged`] if they are not as many as the model has.
    pub fn vocabulary(&self) -> Result<Vocabulary, C::Error> {
        let path = self.path.join(VOCABULARY);
        let vocabulary = Vocabulary::load(&path)?;
        let (words, vocab) = (vocabulary.len(), self.config()?.vocab());
        if words != vocab {
            let reason = format!("it holds {words} words, but the model has {vocab}");
            return Err(Error::Damaged { path, reason }.into());
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

    /// The file with the weights of the latest checkpoint, which must exist.
    ///
    /// # Errors
    /// [`Error::NotARun`] if the run was not saved yet.
    pub fn last_weights(&self) -> Result<PathBuf> {
        self.saved(MODEL, "checkpoint/model.safetensors: it was not saved yet")
    }

    /// The file with the averaged weights of the latest checkpoint, which must exist.
    ///
    /// # Errors
    /// [`Error::NotARun`] if averaging has not begun, or not when the run was saved last.
    pub fn averaged_weights(&self) -> Result<PathBuf> {
        self.saved(AVERAGE, "checkpoint/average.safetensors: averaging has not begun")
    }

    fn saved(&self, name: &str, missing: &'static str) -> Result<PathBuf> {
        let path = self.checkpoint().join(name);
        if path.is_file() { Ok(path) } else { Err(Error::NotARun { path: self.path.clone(), missing }) }
    }

    /// Replaces the best model.
    ///
    /// # Errors
    /// [`Error::Io`] if it cannot be written; the old one is then still there.
    pub fn save_best<M: Module>(&self, model: &M) -> Result<()> {
        fs::create_dir_all(self.best()).map_err(Error::io("create", &self.best()))?;
        save_weights(model, &self.best().join(MODEL))
    }

    /// The lines of `metrics.jsonl` so far, one JSON object each; none before the first epoch.
    ///
    /// # Errors
    /// [`Error::Io`] if the file cannot be read.
    pub fn metrics(&self) -> Result<String> {
        read_lines(&self.path.join(METRICS))
    }

    /// The lines of `steps.jsonl` so far, one [`StepMetrics`](super::StepMetrics) each; none before the first.
    ///
    /// # Errors
    /// [`Error::Io`] if the file cannot be read.
    pub fn steps(&self) -> Result<String> {
        read_lines(&self.path.join(STEPS))
    }

    /// Cuts `steps.jsonl` back to its first `bytes` bytes. Returns what it then has: less, if it lacks some of them.
    pub fn reset_steps(&self, bytes: u64) -> Result<u64> {
        let path = self.path.join(STEPS);
        let length = match fs::metadata(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(0),
            found => found.map_err(Error::io("read", &path))?.len(),
        };
        if length == bytes {
            return Ok(bytes);
        }
        let mut kept = bytes;
        if length < bytes {
            // Whole lines only.
            let text = fs::read(&path).map_err(Error::io("read", &path))?;
            kept = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end as u64 + 1);
        }
        let file = OpenOptions::new().write(true).open(&path);
        file.and_then(|file| file.set_len(kept)).map_err(Error::io("write", &path))?;
        Ok(kept)
    }

    /// Adds one line, with its end, to `steps.jsonl`. It need not be on the disk before the next checkpoint.
    pub fn append_step(&self, line: &str) -> Result<()> {
        let path = self.path.join(STEPS);
        let opened = OpenOptions::new().create(true).append(true).open(&path);
        opened.and_then(|mut file| file.write_all(line.as_bytes())).map_err(Error::io("write", &path))
    }

    /// The lines of `metrics.jsonl` in the run's checkpoint, which must exist.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn saved_metrics(&self) -> Result<String> {
        let path = self.checkpoint().join(METRICS);
        fs::read_to_string(&path).map_err(Error::io("read", &path))
    }

    /// Waits until `steps.jsonl` is on the disk.
    pub fn sync_steps(&self) -> Result<()> {
        match self.path.join(STEPS) {
            path if path.exists() => files::sync(&path),
            _ => Ok(()),
        }
    }

    /// Puts another configuration in the place of the run's.
    pub(crate) fn replace_config(&self, config: &C) -> Result<()> {
        files::replace_json(&self.path.join(CONFIG), config)
    }

    /// Sets `metrics.jsonl` back to the given lines.
    pub fn reset_metrics(&self, lines: &str) -> Result<()> {
        match self.metrics() {
            Ok(found) if found == lines => Ok(()),
            _ => files::replace(&self.path.join(METRICS), lines.as_bytes()),
        }
    }

    /// Adds one line, with its end, to `metrics.jsonl`.
    pub fn append_metrics(&self, line: &str) -> Result<()> {
        let path = self.path.join(METRICS);
        OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)
            .and_then(|mut file| file.write_all(line.as_bytes()).and_then(|()| file.sync_all()))
            .map_err(Error::io("write", &path))
    }
}

/// The text of a file, which need not exist.
fn read_lines(path: &Path) -> Result<String> {
    match fs::read_to_string(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
        read => read.map_err(Error::io("read", path)),
    }
}

/// Locks the run in the folder `path` for this process.
fn lock(path: &Path) -> Result<File> {
    files::lock(&path.join(LOCK))?.ok_or_else(|| Error::RunInUse { path: path.to_path_buf() })
}
