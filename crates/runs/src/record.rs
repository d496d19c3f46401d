//! What a run's folder says of it.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::error::{Error, Result};
use crate::folder::{Folder, METRICS, RunState};
use crate::metrics::{EpochMetrics, FinalMetrics, null_is_infinite};
use crate::settings::{RunConfig, Settings};
use crate::text::line_fault;

/// A run as its folder has it.
#[derive(Debug, Clone)]
pub struct Record<S: Settings> {
    /// The folder.
    pub path: PathBuf,
    /// All of its settings.
    pub config: RunConfig<S>,
    /// Its epochs so far.
    pub epochs: Vec<EpochMetrics>,
    /// Its end; none before it.
    pub last: Option<FinalMetrics>,
    /// Where it stands.
    pub state: RunState,
    /// Why training was given up, if it was and has not come to its end since.
    pub failure: Option<String>,
    /// The best validation so far.
    best: Option<Best>,
}

/// A validation, at the end of an epoch or inside of it, that was the best so far.
#[derive(Debug, Clone, Copy, Deserialize)]
struct Best {
    epoch: usize,
    #[serde(deserialize_with = "null_is_infinite")]
    train_ppl: f64,
    valid_ppl: f64,
    best: bool,
}

impl<S: Settings> Record<S> {
    /// Whether `path` holds a run, of any kind.
    pub fn exists(path: &Path) -> bool {
        Folder::<S>::open(path).is_ok()
    }

    /// Reads the run in `path`. Another process may be training it.
    ///
    /// # Errors
    /// [`Error::NotARun`] if there is none, [`Error::OtherKind`], [`Error::Damaged`], [`Error::RunFormat`].
    pub fn read(path: &Path) -> Result<Self> {
        let folder = Folder::open(path)?;
        let config = folder.config()?;
        let (mut epochs, mut last, mut best) = (vec![], None, None);
        for (index, line) in folder.metrics()?.lines().enumerate() {
            let mut read = || -> serde_json::Result<()> {
                let value: serde_json::Value = serde_json::from_str(line)?;
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
            };
            read().map_err(|error| {
                Error::damaged(&path.join(METRICS), format!("line {}: {}", index + 1, line_fault(&error)))
            })?;
        }
        let failure = folder.failure().filter(|_| last.is_none());
        Ok(Self { path: path.to_path_buf(), config, epochs, last, state: folder.state()?, failure, best })
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
        // From 0: the sum of no numbers is −0.
        let so_far = || self.epochs.iter().fold(0.0, |sum, epoch| sum + epoch.seconds);
        self.last.as_ref().map_or_else(so_far, |last| last.seconds)
    }

    /// Training tokens a second: the median over epochs; of an even number of them, the mean of the middle two.
    pub fn tokens_per_s(&self) -> Option<f64> {
        let mut speeds: Vec<f64> = self.epochs.iter().map(|epoch| epoch.tokens_per_s).collect();
        speeds.sort_by(f64::total_cmp);
        let (last, middle) = (speeds.len().checked_sub(1)?, speeds.len() / 2);
        Some((speeds[middle] + speeds[last - middle]) / 2.0)
    }
}
