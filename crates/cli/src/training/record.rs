//! What a run's folder says of it.

use std::fmt;
use std::path::{Path, PathBuf};

use awd_lstm::train::{EpochMetrics, FinalMetrics, RunConfig, RunFolder};
use runs::Error;
use runs::files::replace;
use runs::{Folder, RunSettings};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::statistics::median;

/// A run as its folder has it.
#[derive(Debug, Clone)]
pub struct Record {
    /// The folder.
    pub path: PathBuf,
    /// All of its settings.
    pub config: RunConfig,
    /// Its epochs so far.
    pub epochs: Vec<EpochMetrics>,
    /// Its end; none before it.
    pub last: Option<FinalMetrics>,
    /// The best validation so far.
    best: Option<Best>,
}

/// A validation, at the end of an epoch or inside of it, that was the best so far.
#[derive(Debug, Clone, Copy, Deserialize)]
struct Best {
    epoch: usize,
    train_ppl: f64,
    valid_ppl: f64,
    best: bool,
}

/// Where a run stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Another process trains it.
    Running,
    /// Training came to its end.
    Finished,
    /// Training was stopped, and can go on.
    Stopped,
    /// Training was given up, for its loss was not finite.
    Failed,
    /// There is nothing but its settings.
    NeverStarted,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Running => "running",
            Self::Finished => "finished",
            Self::Stopped => "stopped",
            Self::Failed => "failed",
            Self::NeverStarted => "never started",
        })
    }
}

impl State {
    /// The state of the run in `folder`, which has come to its end or not, after so many epochs.
    ///
    /// # Errors
    /// A lock that cannot be looked at.
    pub fn of<C: RunSettings>(folder: &Folder<C>, finished: bool, epochs: usize) -> Result<Self, Error> {
        Ok(match finished {
            _ if folder.is_in_use()? => Self::Running,
            true => Self::Finished,
            false if noted_failure(folder.path()).is_some() => Self::Failed,
            false if epochs == 0 && !folder.checkpoint().exists() => Self::NeverStarted,
            false => Self::Stopped,
        })
    }
}

/// Says in a run's folder why it was given up.
const FAILURE: &str = "failed.txt";
const CONFIG: &str = "config.json";

impl Record {
    /// Whether `path` holds a run, of any program.
    pub fn exists(path: &Path) -> bool {
        path.join(CONFIG).is_file()
    }

    /// Reads the run in `path`. Another process may be training it.
    ///
    /// # Errors
    /// No run, one of another program, or a damaged one.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let folder = RunFolder::open(path)?;
        let config = folder.config()?;
        let (mut epochs, mut last, mut best) = (vec![], None, None);
        for_each_line(&folder, |value| {
            if value.get("best_epoch").is_some() {
                last = Some(serde_json::from_value(value)?);
                return Ok(());
            }
            let validated: Best = serde_json::from_value(value.clone())?;
            best = if validated.best { Some(validated) } else { best };
            // A line with a step is of a validation inside of an epoch.
            if value.get("step").is_none() {
                epochs.push(serde_json::from_value(value)?);
            }
            Ok(())
        })?;
        Ok(Self { path: path.to_path_buf(), config, epochs, last, best })
    }

    /// Where the run stands.
    ///
    /// # Errors
    /// A lock that cannot be looked at.
    pub fn state(&self) -> Result<State, Error> {
        State::of(&RunFolder::open(&self.path)?, self.last.is_some(), self.epochs.len())
    }

    /// Why the run was given up, if it was and has not come to its end since.
    pub fn failure(&self) -> Option<String> {
        noted_failure(&self.path).filter(|_| self.last.is_none())
    }

    /// Notes in the run's folder why it was given up.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn note_failure(path: &Path, reason: &str) -> Result<(), Error> {
        replace(&path.join(FAILURE), format!("{reason}\n").as_bytes())
    }

    /// Epochs done.
    pub fn epochs_done(&self) -> usize {
        self.epochs.last().map_or(0, |epoch| epoch.epoch)
    }

    /// Perplexity of the validation text with the best model so far.
    pub fn valid_ppl(&self) -> Option<f64> {
        let best = self.best.map(|best| best.valid_ppl);
        self.last.as_ref().map(|last| last.valid_ppl).or(best)
    }

    /// Perplexity of the training text in the epoch of the best model, as met in training; none if that is the model which
    /// finetuning starts from.
    pub fn train_ppl(&self) -> Option<f64> {
        let best_epoch = self.last.as_ref().map(|last| last.best_epoch);
        let of = |best: &Best| best_epoch.is_none_or(|epoch| epoch == best.epoch);
        self.best.filter(of).map(|best| best.train_ppl)
    }

    /// Perplexity of the test text; none before the end, or if the run was not tested.
    pub fn test_ppl(&self) -> Option<f64> {
        self.last.as_ref().and_then(|last| last.test_ppl)
    }

    /// Wall-clock time of training so far.
    pub fn seconds(&self) -> f64 {
        let so_far = || self.epochs.iter().map(|epoch| epoch.seconds).sum();
        self.last.as_ref().map_or_else(so_far, |last| last.seconds)
    }

    /// Training tokens a second: the median over epochs.
    pub fn tokens_per_s(&self) -> Option<f64> {
        median(self.epochs.iter().map(|epoch| epoch.tokens_per_s))
    }
}

fn noted_failure(path: &Path) -> Option<String> {
    Some(std::fs::read_to_string(path.join(FAILURE)).ok()?.trim().to_string())
}

/// Gives every line of a run's `metrics.jsonl` to `read`.
///
/// # Errors
/// [`Error::Damaged`] with the number of a line that is no JSON or that `read` refuses.
pub fn for_each_line<C: RunSettings>(
    folder: &Folder<C>,
    mut read: impl FnMut(Value) -> Result<(), serde_json::Error>,
) -> Result<(), Error> {
    let text = folder.metrics()?;
    // A process may be within writing the last line.
    let complete = text.rfind('\n').map_or("", |end| &text[..end]);
    for (index, line) in complete.lines().enumerate() {
        serde_json::from_str(line).and_then(&mut read).map_err(|error| Error::Damaged {
            path: folder.path().join("metrics.jsonl"),
            reason: format!("line {}: {error}", index + 1),
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use awd_lstm::train::Versions;
    use awd_lstm::{HeadKind, ModelConfig, Preset};
    use runs::data::Fingerprint;
    use runs::data::{Corpus, Vocabulary};

    const EPOCHS: &str = r#"{"epoch":1,"seconds":2,"tokens_per_s":5,"train_ppl":90,"valid_ppl":80,"lr":1,"averaging":false,"best":true}
{"epoch":2,"step":3,"steps":9,"seconds":1,"train_ppl":70,"valid_ppl":60,"lr":1,"averaging":false,"best":true}
{"epoch":2,"seconds":4,"tokens_per_s":7,"train_ppl":72,"valid_ppl":61,"lr":1,"averaging":false,"best":false}
"#;
    const LAST: &str = r#"{"best_epoch":2,"best_step":3,"seconds":6,"train_ppl":70,"valid_ppl":60,"test_ppl":50}
"#;

    /// A run's folder with a `metrics.jsonl`.
    fn run(metrics: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let mut vocabulary = Vocabulary::new();
        vocabulary.insert("word");
        let corpus = Corpus::from_ids(vocabulary, vec![0; 9], vec![0; 9], vec![0; 9]).unwrap();
        let config = RunConfig {
            versions: Versions::current(),
            preset: "small".into(),
            device: "flex".into(),
            data: PathBuf::from("data"),
            corpus: Fingerprint::of(&corpus),
            text: Default::default(),
            finetunes: None,
            tokens: None,
            model: ModelConfig::tiny(HeadKind::Mos, 1),
            train: Preset::Small.train(),
            extensions: vec![],
        };
        let path = folder.path().join("run");
        RunFolder::create(&path, &config, corpus.vocabulary()).unwrap();
        if !metrics.is_empty() {
            std::fs::write(path.join("metrics.jsonl"), metrics).unwrap();
        }
        (folder, path)
    }

    #[test]
    fn a_run_is_read_whatever_its_state() {
        let (_folder, path) = run("");
        let record = Record::read(&path).unwrap();
        assert_eq!((record.state().unwrap(), record.valid_ppl()), (State::NeverStarted, None));
        Record::note_failure(&path, "too hot").unwrap();
        assert_eq!((record.state().unwrap(), record.failure()), (State::Failed, Some("too hot".into())));

        // The last line is still being written.
        let (_folder, path) = run(&format!("{EPOCHS}{{\"ep"));
        let record = Record::read(&path).unwrap();
        assert_eq!(
            (record.state().unwrap(), record.epochs_done(), record.seconds()),
            (State::Stopped, 2, 6.0)
        );
        assert_eq!(
            (record.valid_ppl(), record.train_ppl(), record.test_ppl()),
            (Some(60.0), Some(70.0), None)
        );
        assert_eq!(record.tokens_per_s(), Some(6.0));

        let (_folder, path) = run(&format!("{EPOCHS}{LAST}"));
        Record::note_failure(&path, "too hot").unwrap();
        let record = Record::read(&path).unwrap();
        assert_eq!((record.state().unwrap(), record.failure()), (State::Finished, None));
        assert_eq!((record.train_ppl(), record.test_ppl()), (Some(70.0), Some(50.0)));
        let resumed = RunFolder::resume(&path).unwrap();
        assert_eq!(record.state().unwrap(), State::Running);
        drop(resumed);
        assert_eq!(record.state().unwrap(), State::Finished);
    }

    #[test]
    fn the_model_that_finetuning_starts_from_met_no_training_text() {
        let worse = EPOCHS.replace("true}", "false}");
        let (_folder, path) =
            run(&format!("{worse}{}", LAST.replace("\"best_epoch\":2", "\"best_epoch\":0")));
        let record = Record::read(&path).unwrap();
        assert_eq!((record.train_ppl(), record.valid_ppl()), (None, Some(60.0)));
    }

    #[test]
    fn a_damaged_line_is_named() {
        let (_folder, path) = run(&format!("{EPOCHS}{{\"epoch\":\n"));
        let message = Record::read(&path).unwrap_err().to_string();
        assert!(
            message.contains("metrics.jsonl` is damaged: line 4: ") && !message.contains('\n'),
            "{message}"
        );
        assert!(!Record::exists(path.parent().unwrap()));
    }
}
