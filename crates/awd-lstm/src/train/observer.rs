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
    /// Epochs of the whole run.
    pub epochs: usize,
    /// Steps of this epoch that are done.
    pub step: usize,
    /// Steps of this epoch.
    pub steps: usize,
    /// Tokens that the run was trained on so far.
    pub tokens: usize,
    /// Wall-clock time of the run so far, in seconds.
    pub seconds: f64,
    /// Training tokens a second since the epoch began, validation not counted.
    pub tokens_per_s: f64,
    /// Learning rate of the last step, in proportion to its length.
    pub lr: f64,
    /// Mean negative log-likelihood of the tokens, in nats.
    pub nll: f64,
    /// `exp(nll)`.
    pub ppl: f64,
    /// Mean over the steps of the gradient's norm over all parameters together, before clipping.
    pub gradient_norm: f64,
    /// Share of the steps whose gradient was clipped, from 0 to 1.
    pub clipped: f64,
    /// Mean over the steps of the norm of the gradient of a mixture's projections, over that of all parameters together; `None`
    /// under a head without mixture. Clipping does not change it.
    pub latent_share: Option<f64>,
    /// Mean over the steps of the squared coefficient of variation of a mixture's priors; `None` unless it is in the loss, which is where
    /// [`prior_cv`](crate::TrainConfig::prior_cv), its weight, is not 0.
    pub prior_cv: Option<f64>,
    /// Mean activation regularisation of a step, in nats.
    pub ar: f64,
    /// Mean temporal activation regularisation of a step, in nats.
    pub tar: f64,
    /// Whether weights are being averaged.
    pub averaging: bool,
    /// Share of the run's work that is done, from 0 to 1, with its evaluations; or of its time, if it is limited and that is
    /// more.
    pub share: f64,
    /// What ranks waited for each other; `None` for one process.
    pub waiting: Option<WaitMetrics>,
}

/// What a step's exchange between several ranks took, mean over the steps, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct WaitMetrics {
    /// Number of ranks.
    pub ranks: usize,
    /// What a rank waited for the slowest one, its own gradient at hand; mean over the ranks.
    pub wait_seconds: f64,
    /// The same of the rank that waited longest.
    pub longest_wait_seconds: f64,
    /// What summing the gradients took besides, as rank 0 measured it: sending, receiving and adding, as far as no computation hid it.
    pub reduce_seconds: f64,
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
    /// Tokens that the run was trained on so far.
    pub tokens: usize,
    /// Wall-clock time of the run so far, in seconds.
    pub seconds: f64,
    /// Learning rate of the last step, in proportion to its length.
    pub lr: f64,
    /// Mean negative log-likelihood of the tokens since the last line, in nats.
    pub nll: f64,
    /// `exp(nll)`.
    #[serde(deserialize_with = "null_is_infinite")]
    pub ppl: f64,
    /// Mean norm of a step's gradient, before clipping.
    #[serde(deserialize_with = "null_is_infinite")]
    pub gradient_norm: f64,
    /// Share of the steps whose gradient was clipped, from 0 to 1.
    pub clipped: f64,
    /// Mean share of a mixture's projections in that norm; none under a head without mixture.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latent_share: Option<f64>,
    /// Mean squared coefficient of variation of a mixture's priors; none unless it is in the loss.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prior_cv: Option<f64>,
    /// Mean activation regularisation of a step, in nats.
    pub ar: f64,
    /// Mean temporal activation regularisation of a step, in nats.
    pub tar: f64,
    /// Training tokens a second since the epoch began, validation not counted.
    pub tokens_per_s: f64,
    /// Whether weights are being averaged.
    pub averaging: bool,
    /// What ranks waited for each other; `None` for one process.
    #[serde(flatten)]
    pub waiting: Option<WaitMetrics>,
}

/// What is too large for a float is null in JSON.
fn null_is_infinite<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::INFINITY))
}

impl From<&Interval> for StepMetrics {
    fn from(interval: &Interval) -> Self {
        let Interval { epoch, step, steps, tokens, seconds, lr, nll, ppl, .. } = *interval;
        let Interval { gradient_norm, clipped, latent_share, prior_cv, ar, tar, .. } = *interval;
        let Interval { tokens_per_s, averaging, waiting, .. } = *interval;
        Self {
            epoch,
            step,
            steps,
            tokens,
            seconds,
            lr,
            nll,
            ppl,
            gradient_norm,
            clipped,
            latent_share,
            prior_cv,
            ar,
            tar,
            tokens_per_s,
            averaging,
            waiting,
        }
    }
}

/// One finished epoch: a line of a run's `metrics.jsonl`.
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
    /// Learning rate in force, that of a step of `bptt` rows.
    pub lr: f64,
    /// Whether the averaged weights were validated.
    pub averaging: bool,
    /// Whether this is the best validation so far.
    pub best: bool,
}

/// A validation inside of an epoch, by [`validate_every`](crate::TrainConfig::validate_every) or because the run's time is
/// over: a line of a run's `metrics.jsonl`, which differs from that of an epoch in having a step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ValidationMetrics {
    /// The epoch under way, counted from 1.
    pub epoch: usize,
    /// Steps of this epoch that are done.
    pub step: usize,
    /// Steps of this epoch.
    pub steps: usize,
    /// Wall-clock time since the epoch began, validation included, in seconds.
    pub seconds: f64,
    /// Perplexity of the epoch's training tokens so far, as in [`EpochMetrics`].
    pub train_ppl: f64,
    /// Perplexity of the validation text.
    pub valid_ppl: f64,
    /// Learning rate in force, that of a step of `bptt` rows.
    pub lr: f64,
    /// Whether the averaged weights were validated.
    pub averaging: bool,
    /// Whether this is the best validation so far.
    pub best: bool,
}

/// Why a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EndReason {
    /// All epochs were done.
    Epochs,
    /// So many validations as its patience brought no new best.
    Patience,
    /// Its time was over.
    Time,
    /// The non-monotone criterion ended finetuning.
    FinetuningRule,
}

/// The end of a run: the last line of its `metrics.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FinalMetrics {
    /// The epoch of the best model, counted from 1; 0 is the model that training started from, if that was a given one.
    pub best_epoch: usize,
    /// The step of that epoch after which it was validated; `None` at its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best_step: Option<usize>,
    /// Wall-clock time of the whole run, in seconds.
    pub seconds: f64,
    /// Perplexity of the training tokens of the best epoch during training, up to its validation; `None` if the best model is
    /// the one that training started from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub train_ppl: Option<f64>,
    /// Perplexity of the validation text with the best model.
    pub valid_ppl: f64,
    /// Perplexity of the test text with the best model; `None` if it is not to be [tested](crate::TrainConfig::test).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test_ppl: Option<f64>,
    /// Why the run ended; `None` in runs of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<EndReason>,
}

/// Receives the progress of training. Every method does nothing unless overridden.
pub trait TrainObserver {
    /// Training begins or resumes with this share of the run's work done.
    fn on_start(&mut self, _share: f64) {}
    /// Some more steps are done.
    fn on_interval(&mut self, _interval: &Interval) {}
    /// The validation text was scored inside of an epoch.
    ///
    /// `share` is the share of the run's work that is done, from 0 to 1.
    fn on_validation(&mut self, _metrics: &ValidationMetrics, _share: f64) {}
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
