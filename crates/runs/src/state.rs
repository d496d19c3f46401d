//! What a checkpoint keeps besides tensors.

use serde::{Deserialize, Serialize};

use crate::metrics::Score;

/// The state of a trainer besides tensors. `S` is what the task keeps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainerState<S> {
    /// Number of epochs that are done.
    pub epoch: usize,
    /// Progress of the next epoch, if it was begun.
    pub position: Option<Position>,
    /// The best validation.
    pub best: Option<Best>,
    /// Number of validations in a row without a new best.
    pub unimproved: usize,
    /// What a run goes on from whose time was over inside of an epoch, if it is given more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before_end: Option<BeforeEnd>,
    /// Number of training tokens of the epochs that are done.
    pub tokens: usize,
    /// Wall-clock time of the epochs that are done, in seconds.
    pub seconds: f64,
    /// The part of it that went into validation.
    pub validation_seconds: f64,
    /// Bytes of `steps.jsonl`.
    pub step_bytes: u64,
    /// What the task keeps.
    pub task: S,
}

impl<S> TrainerState<S> {
    /// The state before the first step.
    pub fn new(task: S) -> Self {
        Self {
            epoch: 0,
            position: None,
            best: None,
            unimproved: 0,
            before_end: None,
            tokens: 0,
            seconds: 0.0,
            validation_seconds: 0.0,
            step_bytes: 0,
            task,
        }
    }

    /// Wall-clock time of the whole run, in seconds.
    pub fn seconds_in_all(&self) -> f64 {
        self.seconds + self.position.as_ref().map_or(0.0, |position| position.seconds)
    }

    /// Whether the validation at the end of the run's time put its weights in the place of those of an earlier one.
    pub(crate) fn has_displaced_best(&self) -> bool {
        let before = self.before_end.and_then(|before| before.best);
        before.is_some() && before != self.best
    }

    /// Whether a step was made.
    pub fn has_begun(&self) -> bool {
        self.epoch > 0 || self.position.as_ref().is_some_and(|position| position.step > 0)
    }
}

/// The best validation so far.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Best {
    /// The epoch, counted from 1; 0 is the model that training started from, if that was a given one.
    pub epoch: usize,
    /// The step of the epoch after which it was; `None` at its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<usize>,
    /// The mean validation loss in nats.
    #[serde(with = "crate::exact")]
    pub nll: f64,
    /// The mean training loss of the epoch up to then, in nats.
    #[serde(default, with = "crate::exact::option", skip_serializing_if = "Option::is_none")]
    pub train_nll: Option<f64>,
}

/// The state before the validation at the end of a run's time, which a run with more time does not make.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BeforeEnd {
    /// The best validation.
    pub best: Option<Best>,
}

/// The progress of an unfinished epoch.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Position {
    /// Number of steps that are done.
    pub step: usize,
    /// What they met.
    pub whole: Sum,
    /// What was met since the last line of `steps.jsonl`.
    pub interval: Sum,
    /// Wall-clock time of the epoch so far, in seconds.
    pub seconds: f64,
    /// The part of it that went into validation.
    pub validation_seconds: f64,
    /// The step after which the validation text was scored last; 0 if it was not yet.
    pub validated: usize,
}

/// Sums over steps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sum {
    /// Negative log-likelihoods of tokens, in nats.
    #[serde(with = "crate::exact")]
    pub nll: f64,
    /// Number of those tokens.
    pub tokens: usize,
    /// Number of steps.
    pub steps: usize,
    /// Number of steps whose gradient was clipped.
    pub clipped: usize,
    /// Norms of the gradients.
    #[serde(with = "crate::exact")]
    pub gradient_norm: f64,
    /// Shares of a mixture's projections in them.
    #[serde(default, with = "crate::exact::option", skip_serializing_if = "Option::is_none")]
    pub latent_share: Option<f64>,
    /// Squared coefficients of variation of a mixture's priors.
    #[serde(default, with = "crate::exact::option", skip_serializing_if = "Option::is_none")]
    pub prior_cv: Option<f64>,
    /// Activation regularisations, in nats.
    #[serde(default, with = "crate::exact::option", skip_serializing_if = "Option::is_none")]
    pub ar: Option<f64>,
    /// Temporal activation regularisations, in nats.
    #[serde(default, with = "crate::exact::option", skip_serializing_if = "Option::is_none")]
    pub tar: Option<f64>,
    /// Tokens that were the most probable word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correct: Option<usize>,
}

impl Sum {
    /// Adds what another step met.
    pub(crate) fn add(&mut self, other: &Self) {
        let add = |sum: &mut Option<f64>, more: Option<f64>| {
            if let Some(more) = more {
                *sum = Some(sum.unwrap_or(0.0) + more);
            }
        };
        self.nll += other.nll;
        self.tokens += other.tokens;
        self.steps += other.steps;
        self.clipped += other.clipped;
        self.gradient_norm += other.gradient_norm;
        add(&mut self.latent_share, other.latent_share);
        add(&mut self.prior_cv, other.prior_cv);
        add(&mut self.ar, other.ar);
        add(&mut self.tar, other.tar);
        if let Some(more) = other.correct {
            self.correct = Some(self.correct.unwrap_or(0) + more);
        }
    }

    /// How well the tokens were predicted.
    pub fn score(&self) -> Score {
        Score { nll: self.nll, tokens: self.tokens, correct: self.correct }
    }
}
