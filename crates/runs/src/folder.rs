//! The folder of a run, whatever model is trained in it.

use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use burn::module::Module;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::data::Vocabulary;
use crate::error::{Error, Result};
use crate::settings::{Extension, Procedure, RunConfig, Settings, kind_of};
use crate::state::TrainerState;
use crate::weights::to_bytes;
use crate::{files, hashes};

/// A folder that holds one run: `config.json`, `vocab.txt`, `metrics.jsonl`, `steps.jsonl`, `checkpoint/` and `best/`.
///
/// `metrics.jsonl` has a line an [epoch](crate::EpochMetrics), one a [validation](crate::ValidationMetrics) inside of an epoch,
/// and [one](crate::FinalMetrics) at the end of the run. `steps.jsonl` has a line [every few steps](crate::StepMetrics).
///
/// `checkpoint/` holds all that training needs to be resumed: the weights in `model.safetensors`; the averaged weights in
/// `average.safetensors` once there are any; the carried hidden state and partial sums of an unfinished epoch in
/// `epoch.safetensors`; the best weights so far in `displaced.safetensors`, if the run's time was over inside of the epoch and it
/// ended with better ones; the lines of `metrics.jsonl` at that time; and the trainer's `state.json`, with the length of
/// `steps.jsonl`. The folder is replaced as a whole. `best/` holds the `model.safetensors` with the lowest validation perplexity, and
/// that file is replaced as a whole.
///
/// `hashes.json`, in the folder and in `checkpoint/`, has the SHA-256 of every file but `steps.jsonl`, `failed.txt`, `lock` and
/// what others put there, such as `curves.svg`. A file that was changed or damaged is refused when it is read.
///
/// A training process holds a lock of the operating system on the file `lock`, which ends with the process. Reading needs no
/// lock.
///
/// `S` is the kind of the run.
#[derive(Debug, Clone)]
pub struct Folder<S: Settings> {
    path: PathBuf,
    /// Holds the lock, if this is the folder of a training process.
    lock: Option<Arc<File>>,
    /// What [`extend`](Self::extend) made of the configuration, until it is written.
    extended: Option<Arc<Extending<S>>>,
}

/// A configuration that is still to be written.
#[derive(Debug)]
struct Extending<S: Settings> {
    config: RunConfig<S>,
    /// Whether the run is finished and goes on.
    goes_on: bool,
}

const CONFIG: &str = "config.json";
const VOCABULARY: &str = "vocab.txt";
const CHECKPOINT: &str = "checkpoint";
const BEST: &str = "best";
const LOCK: &str = "lock";
/// One line every few steps, in the run's folder.
const STEPS: &str = "steps.jsonl";
/// Why training was given up, if it was.
const FAILURE: &str = "failed.txt";
/// The best weights, in the run's folder.
const BEST_MODEL: &str = "best/model.safetensors";
/// One line an epoch, in the run's folder and, as of its time, in `checkpoint/`.
pub const METRICS: &str = "metrics.jsonl";
/// The weights in `checkpoint/` and `best/`.
pub const MODEL: &str = "model.safetensors";
/// The averaged weights in `checkpoint/`.
pub const AVERAGE: &str = "average.safetensors";
/// The best weights before the validation at the end of the run's time, in `checkpoint/`.
const DISPLACED: &str = "displaced.safetensors";
/// The trainer's state in `checkpoint/`.
pub const STATE: &str = "state.json";

/// The content of `state.json`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Saved<S> {
    state: S,
}

/// The state of a trainer of this kind of run.
pub type StateOf<S> = TrainerState<<<S as Settings>::Train as Procedure>::State>;

/// Where a run stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunState {
    /// A process trains it.
    Running,
    /// Training came to its end.
    Finished,
    /// Training was stopped or killed, and can go on.
    Stopped,
    /// Training was given up because a loss was not finite.
    Diverged,
    /// It was made of given weights, and not trained.
    Imported,
    /// There is nothing but its settings.
    NeverStarted,
}

impl fmt::Display for RunState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Running => "running",
            Self::Finished => "finished",
            Self::Stopped => "stopped",
            Self::Diverged => "diverged",
            Self::Imported => "imported",
            Self::NeverStarted => "never started",
        })
    }
}

impl<S: Settings> Folder<S> {
    /// Whether `path` holds a run or a part of one. The weights that a [start](Self::create_with_best) left which was cut off before
    /// it was a run are none.
    pub fn exists(path: &Path) -> bool {
        let is_there = |name: &str| path.join(name).exists();
        [CONFIG, METRICS, CHECKPOINT].into_iter().any(is_there) || (is_there(BEST) && !is_cut_off(path))
    }

    /// Starts a run in `path`, which is created if it does not exist, and locks it.
    ///
    /// # Errors
    /// [`Error::RunExists`] if there is a run already, [`Error::RunInUse`] if another process is just starting one,
    /// [`Error::Io`] if the folder cannot be written.
    pub fn create(path: &Path, config: &RunConfig<S>, vocabulary: &Vocabulary) -> Result<Self> {
        Self::create_after(path, config, vocabulary, |_| Ok(()))
    }

    /// Starts a run in `path` as [`create`](Self::create) does, with `model` as its best. There is no run before there are its weights.
    ///
    /// # Errors
    /// As [`create`](Self::create), and [`Error::NonFiniteTensor`]. `path` then holds no run.
    pub fn create_with_best<M: Module>(
        path: &Path,
        config: &RunConfig<S>,
        vocabulary: &Vocabulary,
        model: &M,
    ) -> Result<Self> {
        Self::create_after(path, config, vocabulary, |run| run.save_best(model))
    }

    /// Starts a run that `fill` has put something into.
    fn create_after(
        path: &Path,
        config: &RunConfig<S>,
        vocabulary: &Vocabulary,
        fill: impl FnOnce(&Self) -> Result<()>,
    ) -> Result<Self> {
        let free = || match Self::exists(path) {
            true => Err(Error::RunExists { path: path.to_path_buf() }),
            false => Ok(()),
        };
        free()?;
        fs::create_dir_all(path).map_err(Error::io("create", path))?;
        let lock = lock(path)?;
        // Another process may have been faster.
        free()?;
        // Of a start that was cut off: they are another model's. First, while their hash is noted.
        files::remove_folder(&path.join(BEST))?;
        vocabulary.save(&path.join(VOCABULARY))?;
        files::sync(&path.join(VOCABULARY))?;
        hashes::note(path, &[VOCABULARY])?;
        let run = Self { path: path.to_path_buf(), lock: Some(Arc::new(lock)), extended: None };
        // The last file: a folder without it is no run yet, so a run can be started in it again.
        let file = path.join(CONFIG);
        let made = fill(&run).and_then(|()| hashes::replace(path, CONFIG, &files::json(&file, config)?));
        if made.is_err() {
            let _ = fs::remove_file(&file);
            let _ = fs::remove_dir_all(run.best());
        }
        made.map(|()| run)
    }

    /// Opens the run in `path` for reading. Another process may be training it.
    ///
    /// # Errors
    /// [`Error::NotARun`] if there is none.
    pub fn open(path: &Path) -> Result<Self> {
        if !path.join(CONFIG).is_file() {
            return Err(Error::NotARun { path: path.to_path_buf(), missing: CONFIG });
        }
        Ok(Self { path: path.to_path_buf(), lock: None, extended: None })
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
        let Some(file) = files::if_found(File::open(&path), "read", &path)? else { return Ok(false) };
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

    /// The configuration, checked; with what [`extend`](Self::extend) changed.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Damaged`], [`Error::RunFormat`], [`Error::OtherKind`], or the first setting
    /// that is out of range.
    pub fn config(&self) -> Result<RunConfig<S>> {
        match &self.extended {
            Some(extended) => Ok(extended.config.clone()),
            None => RunConfig::read(&self.path.join(CONFIG), read_config(&self.path)?),
        }
    }

    /// This folder with a changed configuration, so that its run goes on for longer or on another device. Nothing is written before
    /// a trainer has [restored](crate::Trainer::restore) the run.
    ///
    /// `config.json` then gets the new values and a record of each change, in its `extensions`. The last line of a finished run that
    /// goes on is taken away from `metrics.jsonl`, and with it that of a validation which was made only because the time was over.
    /// A run of more epochs or time goes on to the bits of one that was started with as much. Values that the run has already
    /// change nothing.
    ///
    /// # Errors
    /// [`Error::CannotExtend`] if more is done than is asked for, or a finished run would still be finished; what is wrong with
    /// the configuration; [`Error::Io`], [`Error::Damaged`].
    pub fn extend(&self, change: &Extension) -> Result<Self> {
        let before = self.config()?;
        let (config, goes_on) = before.extended(&self.path, change, self.saved_state()?.as_ref())?;
        if config == before {
            return Ok(self.clone());
        }
        Ok(Self { extended: Some(Arc::new(Extending { config, goes_on })), ..self.clone() })
    }

    /// Writes what [`extend`](Self::extend) changed.
    pub(crate) fn write_extension(&self) -> Result<()> {
        let Some(Extending { config, goes_on }) = self.extended.as_deref() else { return Ok(()) };
        if *goes_on {
            // First: a run without its last line is one that is to be finished, whatever its configuration says.
            self.reset_metrics(&self.saved_metrics()?)?;
        }
        hashes::replace(&self.path, CONFIG, &files::json(&self.path.join(CONFIG), config)?)
    }

    /// Checks every file of the run against its hash, and that those without one can be written. A process without the run's lock
    /// checks the checkpoint alone, for the one with the lock may be writing the others.
    ///
    /// # Errors
    /// [`Error::Damaged`] names the first that was changed, [`Error::Io`] one that cannot be read or written.
    pub fn check(&self) -> Result<()> {
        if self.is_locked() {
            // What is there needs a hash, too.
            hashes::check_all(&self.path, &[CONFIG, VOCABULARY, METRICS, BEST_MODEL])?;
            // They have no hashes, and are changed after others: whether they can be is found out before.
            for name in [STEPS, FAILURE] {
                let path = self.path.join(name);
                files::if_found(OpenOptions::new().read(true).write(true).open(&path), "write", &path)?;
            }
        }
        if self.checkpoint().exists() { hashes::check_all(&self.checkpoint(), &[]) } else { Ok(()) }
    }

    /// The words of the run's text.
    ///
    /// # Errors
    /// [`Error::Io`], or [`Error::Damaged`] if they are not as many as the model has.
    pub fn vocabulary(&self) -> Result<Vocabulary> {
        let path = self.path.join(VOCABULARY);
        let config = self.config()?;
        hashes::checked(&self.path, VOCABULARY)?;
        let vocabulary = Vocabulary::load(&path)?;
        let (words, vocab) = (vocabulary.len(), S::vocab(&config.model));
        if words != vocab {
            return Err(Error::damaged(&path, format!("it holds {words} words, but the model has {vocab}")));
        }
        Ok(vocabulary)
    }

    /// Where the run stands.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Damaged`].
    pub fn state(&self) -> Result<RunState> {
        let metrics = self.metrics()?;
        Ok(if self.is_in_use()? {
            RunState::Running
        } else if metrics.lines().last().is_some_and(|line| line.contains("\"best_epoch\"")) {
            RunState::Finished
        } else if self.failure().is_some() {
            RunState::Diverged
        } else if files::complete_folder(&self.checkpoint()).is_some() || !metrics.is_empty() {
            RunState::Stopped
        } else if self.best().join(MODEL).exists() && self.config()?.finetunes.is_none() {
            RunState::Imported
        } else {
            RunState::NeverStarted
        })
    }

    /// Why training was given up, if it was and has not gone on since.
    pub fn failure(&self) -> Option<String> {
        Some(fs::read_to_string(self.path.join(FAILURE)).ok()?.trim().to_string())
    }

    /// Notes why training was given up.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn note_failure(&self, reason: &str) -> Result<()> {
        files::replace(&self.path.join(FAILURE), format!("{reason}\n").as_bytes())
    }

    /// Takes such a note away.
    pub(crate) fn forget_failure(&self) -> Result<()> {
        let path = self.path.join(FAILURE);
        files::if_found(fs::remove_file(&path), "remove", &path).map(drop)
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
    /// [`Error::NoWeights`] if no epoch is finished yet, [`Error::Damaged`].
    pub fn best_weights(&self) -> Result<PathBuf> {
        match hashes::checked(&self.path, BEST_MODEL)? {
            Some(_) => Ok(self.best().join(MODEL)),
            None => Err(self.no_weights("best weights: no epoch was finished")),
        }
    }

    /// The file with the weights of the latest checkpoint, which must exist.
    ///
    /// # Errors
    /// [`Error::NoWeights`] if the run was not saved yet, [`Error::Damaged`].
    pub fn last_weights(&self) -> Result<PathBuf> {
        self.saved(MODEL, "last weights: it was not saved yet")
    }

    /// The file with the averaged weights of the latest checkpoint, which must exist.
    ///
    /// # Errors
    /// [`Error::NoWeights`] if averaging has not begun, or not when the run was saved last, [`Error::Damaged`].
    pub fn averaged_weights(&self) -> Result<PathBuf> {
        self.saved(AVERAGE, "averaged weights: averaging has not begun")
    }

    /// The file with the best weights before the validation at the end of the run's time, which must exist.
    pub(crate) fn displaced_weights(&self) -> Result<PathBuf> {
        self.saved(DISPLACED, "best weights from before the end of its time")
    }

    fn saved(&self, name: &str, missing: &'static str) -> Result<PathBuf> {
        let Some(folder) = files::complete_folder(&self.checkpoint()) else {
            return Err(self.no_weights(missing));
        };
        match hashes::checked(&folder, name)? {
            Some(_) => Ok(folder.join(name)),
            None => Err(self.no_weights(missing)),
        }
    }

    fn no_weights(&self, missing: &'static str) -> Error {
        Error::NoWeights { path: self.path.clone(), missing }
    }

    /// Replaces the best model.
    ///
    /// # Errors
    /// [`Error::Io`] if it cannot be written; the old one is then still there.
    pub fn save_best<M: Module>(&self, model: &M) -> Result<()> {
        fs::create_dir_all(self.best()).map_err(Error::io("create", &self.best()))?;
        hashes::replace(&self.path, BEST_MODEL, &to_bytes(model, &self.best().join(MODEL))?)
    }

    /// Removes the best model of a run that goes on without one.
    pub(crate) fn remove_best(&self) -> Result<()> {
        hashes::remove(&self.path, BEST_MODEL)
    }

    /// The lines of `metrics.jsonl` so far, one JSON object each; none before the first epoch.
    ///
    /// # Errors
    /// [`Error::Io`] if the file cannot be read, [`Error::Damaged`] if it was changed.
    pub fn metrics(&self) -> Result<String> {
        let bytes = hashes::checked(&self.path, METRICS)?.unwrap_or_default();
        String::from_utf8(bytes).map_err(|_| Error::NotUtf8 { path: self.path.join(METRICS), line: 1 })
    }

    /// The lines of `steps.jsonl` so far, one [`StepMetrics`](crate::StepMetrics) each; none before the first.
    ///
    /// # Errors
    /// [`Error::Io`] if the file cannot be read.
    pub fn steps(&self) -> Result<String> {
        let path = self.path.join(STEPS);
        Ok(files::if_found(fs::read_to_string(&path), "read", &path)?.unwrap_or_default())
    }

    /// Cuts `steps.jsonl` back to its first `bytes` bytes. Returns what it then has: less, if it lacks some of them.
    pub(crate) fn reset_steps(&self, bytes: u64) -> Result<u64> {
        let path = self.path.join(STEPS);
        let Some(found) = files::if_found(fs::metadata(&path), "read", &path)? else { return Ok(0) };
        let length = found.len();
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
    pub(crate) fn append_step(&self, line: &str) -> Result<()> {
        let path = self.path.join(STEPS);
        let opened = OpenOptions::new().create(true).append(true).open(&path);
        opened.and_then(|mut file| file.write_all(line.as_bytes())).map_err(Error::io("write", &path))
    }

    /// The lines of `metrics.jsonl` in the run's checkpoint, which must exist.
    pub(crate) fn saved_metrics(&self) -> Result<String> {
        let path = self.checkpoint().join(METRICS);
        hashes::checked(&self.checkpoint(), METRICS)?;
        fs::read_to_string(&path).map_err(Error::io("read", &path))
    }

    /// Waits until `steps.jsonl` is on the disk.
    pub(crate) fn sync_steps(&self) -> Result<()> {
        match self.path.join(STEPS) {
            path if path.exists() => files::sync(&path),
            _ => Ok(()),
        }
    }

    /// Sets `metrics.jsonl` back to the given lines.
    pub(crate) fn reset_metrics(&self, lines: &str) -> Result<()> {
        if self.metrics()? == lines {
            return Ok(());
        }
        hashes::replace(&self.path, METRICS, lines.as_bytes())
    }

    /// Adds one line, with its end, to `metrics.jsonl`.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Damaged`].
    pub fn append_metrics(&self, line: &str) -> Result<()> {
        hashes::replace(&self.path, METRICS, (self.metrics()? + line).as_bytes())
    }

    /// Replaces the checkpoint by what `fill` writes into an empty folder, the lines of `metrics.jsonl`, and the state.
    pub(crate) fn save_checkpoint(
        &self,
        state: &StateOf<S>,
        metrics: &str,
        fill: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<()> {
        files::replace_folder(&self.checkpoint(), |folder| {
            fill(folder)?;
            // The file of the best model is still the one before it.
            if state.has_displaced_best()
                && let Ok(Some(bytes)) = hashes::checked(&self.path, BEST_MODEL)
            {
                files::write(&folder.join(DISPLACED), &bytes)?;
            }
            files::write(&folder.join(METRICS), metrics.as_bytes())?;
            files::replace_json(&folder.join(STATE), &Saved { state })?;
            hashes::note_all(folder)
        })
    }

    /// The state of the run's checkpoint; `None` if it has none.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Damaged`].
    pub fn saved_state(&self) -> Result<Option<StateOf<S>>> {
        let folder = self.checkpoint();
        if !folder.exists() {
            return Ok(None);
        }
        hashes::checked(&folder, STATE)?;
        Ok(Some(files::read_json::<Saved<StateOf<S>>>(&folder.join(STATE))?.state))
    }
}

/// The kind of the run in `path`: [`Settings::KIND`].
///
/// # Errors
/// [`Error::NotARun`], [`Error::RunFormat`], [`Error::Damaged`].
pub fn kind_of_run(path: &Path) -> Result<String> {
    if !path.join(CONFIG).is_file() {
        return Err(Error::NotARun { path: path.to_path_buf(), missing: CONFIG });
    }
    let kind = kind_of(&path.join(CONFIG), &read_config(path)?)?;
    kind.ok_or_else(|| Error::damaged(&path.join(CONFIG), "it does not say what kind of run this is"))
}

/// Notes the hashes of the files of the run in `path` as they are: for files that were changed on purpose.
///
/// # Errors
/// [`Error::Io`].
pub fn note_hashes(path: &Path) -> Result<()> {
    hashes::note(path, &[CONFIG, VOCABULARY, METRICS, BEST_MODEL])?;
    let checkpoint = path.join(CHECKPOINT);
    if checkpoint.exists() { hashes::note_all(&checkpoint) } else { Ok(()) }
}

/// The content of the `config.json` in `path`, which is not damaged.
fn read_config(path: &Path) -> Result<Value> {
    let file = path.join(CONFIG);
    let content: Value = files::read_json(&file)?;
    // The format first: an older one has no hashes.
    kind_of(&file, &content)?;
    hashes::checked(path, CONFIG)?;
    Ok(content)
}

/// Whether a start of a run in `path` was cut off between its best weights and its configuration. It is not if `best/` holds something
/// else, or if a configuration was there and is lost.
fn is_cut_off(path: &Path) -> bool {
    let Ok(mut entries) = fs::read_dir(path.join(BEST)) else { return false };
    let is_own = |name: &OsStr| name == MODEL || files::is_temporary(name);
    entries.all(|entry| entry.is_ok_and(|entry| is_own(&entry.file_name())))
        && hashes::checked(path, CONFIG).is_ok()
        && (!path.join(BEST_MODEL).exists() || hashes::checked(path, BEST_MODEL).is_ok())
}

/// Locks the run in the folder `path` for this process.
fn lock(path: &Path) -> Result<File> {
    files::lock(&path.join(LOCK))?.ok_or_else(|| Error::RunInUse { path: path.to_path_buf() })
}
