//! What a run reports while it works and at its end: the lines of `metrics.jsonl` and `steps.jsonl`.

use serde::{Deserialize, Deserializer, Serialize};

/// The means over some steps: a line of a run's `steps.jsonl`, every [`LOG_INTERVAL`](crate::LOG_INTERVAL) steps unless
/// [`Trainer::with_log_every`](crate::Trainer::with_log_every) says otherwise, and at the end of an epoch.
///
/// What is not said to be of the run or the epoch is of the steps since the last line.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct StepMetrics {
    /// The epoch, counted from 1.
    pub epoch: usize,
    /// The most epochs of the whole run; not in the file.
    #[serde(skip)]
    pub epochs: usize,
    /// Steps of this epoch that are done.
    pub step: usize,
    /// Steps of this epoch.
    pub steps: usize,
    /// Tokens that the run was trained on so far.
    pub tokens: usize,
    /// Wall-clock time of the run so far, in seconds.
    pub seconds: f64,
    /// Learning rate of the last step.
    pub lr: f64,
    /// Mean negative log-likelihood of the tokens, in nats.
    pub nll: f64,
    /// `exp(nll)`.
    #[serde(deserialize_with = "null_is_infinite")]
    pub ppl: f64,
    /// Mean over the steps of the gradient's norm over all parameters together, before clipping.
    #[serde(deserialize_with = "null_is_infinite")]
    pub gradient_norm: f64,
    /// Share of the steps whose gradient was clipped, from 0 to 1.
    pub clipped: f64,
    /// Mean over the steps of the norm of the gradient of the head's contexts, such as a mixture's projections or a Mixtape's contexts
    /// and gates, over that of all parameters together; `None` under a head without them, and always for transformers and dialogues.
    /// Clipping does not change it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latent_share: Option<f64>,
    /// Mean over the steps of the squared coefficient of variation of a mixture's priors; `None` unless it is in the loss.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prior_cv: Option<f64>,
    /// Mean activation regularisation of a step, in nats; `None` where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ar: Option<f64>,
    /// Mean temporal activation regularisation of a step, in nats; `None` where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tar: Option<f64>,
    /// Training tokens a second since the epoch began, validation not counted.
    pub tokens_per_s: f64,
    /// Whether weights are being averaged; `None` where they never are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub averaging: Option<bool>,
    /// Share of the run's work that is done, from 0 to 1, with its evaluations; or of its time, if it is limited and that is
    /// more. Not in the file.
    #[serde(skip)]
    pub share: f64,
    /// What ranks waited for each other; `None` for one process.
    #[serde(flatten)]
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

/// What is too large for a float is null in JSON.
pub(crate) fn null_is_infinite<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::INFINITY))
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
    #[serde(deserialize_with = "null_is_infinite")]
    pub train_ppl: f64,
    /// Perplexity of the validation text.
    pub valid_ppl: f64,
    /// Percentage of training tokens that were the most probable word; `None` where it is not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub train_accuracy: Option<f64>,
    /// The same of the validation text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid_accuracy: Option<f64>,
    /// Learning rate in force.
    pub lr: f64,
    /// Whether the averaged weights were validated; `None` where weights are never averaged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub averaging: Option<bool>,
    /// Whether this is the best validation so far.
    pub best: bool,
}

/// A validation inside of an epoch, because the procedure asks for it or because the run's time is over: a line of a run's
/// `metrics.jsonl`, which differs from that of an epoch in having a step.
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
    #[serde(deserialize_with = "null_is_infinite")]
    pub train_ppl: f64,
    /// Perplexity of the validation text.
    pub valid_ppl: f64,
    /// Learning rate in force.
    pub lr: f64,
    /// Whether the averaged weights were validated; `None` where weights are never averaged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub averaging: Option<bool>,
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
    /// The validation loss fell too little for too long.
    EarlyStop,
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
    /// Training tokens a second over the whole run, validations not counted.
    pub tokens_per_s: f64,
    /// Perplexity of the training tokens of the best epoch during training, up to its validation; `None` if the best model is
    /// the one that training started from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub train_ppl: Option<f64>,
    /// Perplexity of the validation text with the best model.
    pub valid_ppl: f64,
    /// Perplexity of the test text with the best model; `None` if it is not to be tested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test_ppl: Option<f64>,
    /// Percentage of the test text's tokens that were the most probable word; `None` where it is not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test_accuracy: Option<f64>,
    /// Why the run ended.
    pub ended: EndReason,
}

/// How well a text was predicted.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Score {
    /// Sum of the tokens' negative log-likelihoods in nats.
    pub nll: f64,
    /// Number of predicted tokens.
    pub tokens: usize,
    /// Number of those that were the most probable word; `None` where it is not counted.
    pub correct: Option<usize>,
}

impl Score {
    /// Mean negative log-likelihood of a token, in nats.
    pub fn mean(&self) -> f64 {
        self.nll / self.tokens as f64
    }

    /// `exp` of the mean negative log-likelihood.
    pub fn perplexity(&self) -> f64 {
        self.mean().exp()
    }

    /// Percentage of tokens that were the most probable word.
    pub fn accuracy(&self) -> Option<f64> {
        self.correct.map(|correct| 100.0 * correct as f64 / self.tokens as f64)
    }
}
