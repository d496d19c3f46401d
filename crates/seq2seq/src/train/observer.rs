//! What a training run reports while it works.

use serde::{Deserialize, Deserializer, Serialize};

/// Where a run stands, every [`LOG_INTERVAL`](super::LOG_INTERVAL) steps unless
/// [`Trainer::with_log_every`](super::Trainer::with_log_every) says otherwise, and at the end of an epoch.
///
/// What is not said to be of the run or the epoch is of the interval: the steps since the last report.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// The epoch, counted from 1.
    pub epoch: usize,
    /// The most epochs of the whole run.
    pub epochs: usize,
    /// Steps of this epoch that are done.
    pub step: usize,
    /// Steps of this epoch.
    pub steps: usize,
    /// Response tokens that the run was trained on so far.
    pub tokens: usize,
    /// Wall-clock time of the run so far, in seconds.
    pub seconds: f64,
    /// Response tokens a second since the epoch began.
    pub tokens_per_s: f64,
    /// Learning rate.
    pub lr: f64,
    /// Mean negative log-likelihood of the response tokens, in nats.
    pub nll: f64,
    /// `exp(nll)`.
    pub ppl: f64,
    /// Mean over the steps of the gradient's norm over all parameters together, before clipping.
    pub gradient_norm: f64,
    /// Share of the steps whose gradient was clipped, from 0 to 1.
    pub clipped: f64,
    /// Share of the run's work that is done, from 0 to 1, with its evaluations, if it does not end early.
    pub share: f64,
}

/// A line of a run's `steps.jsonl`: an [`Interval`] without what other files say.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct StepMetrics {
    /// The epoch, counted from 1.
    pub epoch: usize,
    /// Steps of this epoch that are done.
    pub step: usize,
    /// Steps of this epoch.
    pub steps: usize,
    /// Response tokens that the run was trained on so far.
    pub tokens: usize,
    /// Wall-clock time of the run so far, in seconds.
    pub seconds: f64,
    /// Learning rate.
    pub lr: f64,
    /// Mean negative log-likelihood of the response tokens since the last line, in nats.
    pub nll: f64,
    /// `exp(nll)`.
    #[serde(deserialize_with = "null_is_infinite")]
    pub ppl: f64,
    /// Mean norm of a step's gradient, before clipping.
    #[serde(deserialize_with = "null_is_infinite")]
    pub gradient_norm: f64,
    /// Share of the steps whose gradient was clipped, from 0 to 1.
    pub clipped: f64,
    /// Response tokens a second since the epoch began.
    pub tokens_per_s: f64,
}

/// What is too large for a float is null in JSON.
fn null_is_infinite<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::INFINITY))
}

impl From<&Interval> for StepMetrics {
    fn from(interval: &Interval) -> Self {
        let Interval { epoch, step, steps, tokens, seconds, lr, nll, ppl, .. } = *interval;
        let Interval { gradient_norm, clipped, tokens_per_s, .. } = *interval;
        Self { epoch, step, steps, tokens, seconds, lr, nll, ppl, gradient_norm, clipped, tokens_per_s }
    }
}

/// One finished epoch: a line of a run's `metrics.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EpochMetrics {
    /// The epoch, counted from 1.
    pub epoch: usize,
    /// Wall-clock time of the epoch, validation included, in seconds.
    pub seconds: f64,
    /// Response tokens a second, validation not counted.
    pub tokens_per_s: f64,
    /// Perplexity of the training responses during training, with dropout.
    pub train_ppl: f64,
    /// Perplexity of the validation responses.
    pub valid_ppl: f64,
    /// Whether this is the best validation so far.
    pub best: bool,
}

/// Why a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EndReason {
    /// All epochs were done.
    Epochs,
    /// The rule of [early stopping](crate::config::EarlyStop).
    EarlyStop,
}

/// The end of a run: the last line of its `metrics.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FinalMetrics {
    /// The epoch of the best model, counted from 1.
    pub best_epoch: usize,
    /// Wall-clock time of the whole run, in seconds.
    pub seconds: f64,
    /// Response tokens a second over all epochs, validations not counted.
    pub tokens_per_s: f64,
    /// Perplexity of the training responses of the best epoch during training.
    pub train_ppl: f64,
    /// Perplexity of the validation responses with the best model.
    pub valid_ppl: f64,
    /// Perplexity of the test responses with the best model.
    pub test_ppl: f64,
    /// Why the run ended.
    pub ended: EndReason,
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
    /// Whether training should stop and save itself. Asked before every step and every batch of an evaluation.
    fn stop(&mut self) -> bool {
        false
    }
}

/// An observer that keeps quiet.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl TrainObserver for Silent {}
