//! What a training run reports while it works.

use serde::{Deserialize, Serialize};

/// Where a run stands, every few steps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// The epoch, counted from 1.
    pub epoch: usize,
    /// Epochs of the whole run.
    pub epochs: usize,
    /// Steps of this epoch that are done.
    pub step: usize,
    /// Steps of this epoch.
    pub steps: usize,
    /// Training tokens a second since the epoch began.
    pub tokens_per_s: f64,
    /// Mean negative log-likelihood of the interval's tokens, in nats.
    pub nll: f64,
    /// `exp(nll)`.
    pub ppl: f64,
    /// Share of the run's work that is done, from 0 to 1, with its evaluations.
    pub share: f64,
}

/// One finished epoch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EpochMetrics {
    /// The epoch, counted from 1.
    pub epoch: usize,
    /// Wall-clock time of the epoch, validation included, in seconds.
    pub seconds: f64,
    /// Training tokens a second, validation not counted.
    pub tokens_per_s: f64,
    /// Perplexity of the training tokens during training, with dropout and without regularisation.
    pub train_ppl: f64,
    /// Perplexity of the validation text.
    pub valid_ppl: f64,
    /// Learning rate of a step of `bptt` rows.
    pub lr: f64,
    /// Whether the averaged weights were validated.
    pub averaging: bool,
    /// Whether this is the best epoch so far.
    pub best: bool,
}

/// The end of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FinalMetrics {
    /// The best epoch, counted from 1, whose weights were tested.
    pub best_epoch: usize,
    /// Wall-clock time of the whole run, in seconds.
    pub seconds: f64,
    /// Perplexity of the validation text at the best epoch.
    pub valid_ppl: f64,
    /// Perplexity of the test text at the best epoch.
    pub test_ppl: f64,
}

/// Receives the progress of training. Every method does nothing unless overridden.
pub trait TrainObserver {
    /// Training begins or resumes with this share of the run's work done.
    fn on_start(&mut self, _share: f64) {}
    /// Some more steps are done.
    fn on_interval(&mut self, _interval: &Interval) {}
    /// An epoch is done, and saved if the run has a folder.
    ///
    /// `share` is the share of the run's work that is done, from 0 to 1.
    fn on_epoch(&mut self, _metrics: &EpochMetrics, _share: f64) {}
    /// Whether training should stop and save itself. Asked before every step and every chunk of an evaluation.
    fn stop(&mut self) -> bool {
        false
    }
    /// An event that is worth a line to the user.
    fn on_message(&mut self, _message: &str) {}
}

/// An observer that keeps quiet.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl TrainObserver for Silent {}
