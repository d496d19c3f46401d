//! What the folder of a run of dialogues says of it.

use std::path::{Path, PathBuf};

use seq2seq::Error;
use seq2seq::train::{EpochMetrics, FinalMetrics, RunConfig, RunFolder};

use crate::statistics::median;
use crate::training::{State, for_each_line};

/// A run as its folder has it.
#[derive(Debug, Clone)]
pub struct DialogRecord {
    /// The folder.
    pub path: PathBuf,
    /// All of its settings.
    pub config: RunConfig,
    /// Its epochs so far.
    pub epochs: Vec<EpochMetrics>,
    /// Its end; none before it.
    pub last: Option<FinalMetrics>,
}

impl DialogRecord {
    /// Reads the run in `path`. Another process may be training it.
    ///
    /// # Errors
    /// No run, one of another program, or a damaged one.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let folder = RunFolder::open(path)?;
        let config = folder.config()?;
        let (mut epochs, mut last) = (vec![], None);
        for_each_line(&folder, |value| {
            match value.get("best_epoch") {
                Some(_) => last = Some(serde_json::from_value(value)?),
                None => epochs.push(serde_json::from_value(value)?),
            }
            Ok(())
        })?;
        Ok(Self { path: path.to_path_buf(), config, epochs, last })
    }

    /// Where the run stands.
    ///
    /// # Errors
    /// A lock that cannot be looked at.
    pub fn state(&self) -> Result<State, Error> {
        Ok(State::of(&RunFolder::open(&self.path)?, self.last.is_some(), self.epochs.len())?)
    }

    /// Epochs done.
    pub fn epochs_done(&self) -> usize {
        self.epochs.last().map_or(0, |epoch| epoch.epoch)
    }

    /// The epoch of the best model so far.
    fn best(&self) -> Option<&EpochMetrics> {
        self.epochs.iter().rev().find(|epoch| epoch.best)
    }

    /// Perplexity of the training responses in the epoch of the best model, as met in training.
    pub fn train_ppl(&self) -> Option<f64> {
        self.best().map(|best| best.train_ppl)
    }

    /// Perplexity of the validation responses with the best model so far.
    pub fn valid_ppl(&self) -> Option<f64> {
        self.best().map(|best| best.valid_ppl)
    }

    /// Perplexity of the test responses; none before the end.
    pub fn test_ppl(&self) -> Option<f64> {
        self.last.as_ref().map(|last| last.test_ppl)
    }

    /// Wall-clock time of training so far.
    pub fn seconds(&self) -> f64 {
        let so_far = || self.epochs.iter().map(|epoch| epoch.seconds).sum();
        self.last.as_ref().map_or_else(so_far, |last| last.seconds)
    }

    /// Response tokens a second in training: the median over epochs.
    pub fn tokens_per_s(&self) -> Option<f64> {
        median(self.epochs.iter().map(|epoch| epoch.tokens_per_s))
    }
}
