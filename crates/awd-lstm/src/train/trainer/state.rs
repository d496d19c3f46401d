//! What a checkpoint keeps besides tensors.

use serde::{Deserialize, Serialize};

use crate::train::pass::Position;
use runs::optim::NonMonotone;

/// The state of a trainer besides weights, averages and carried states.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainerState {
    /// Number of epochs that are done.
    pub epoch: usize,
    /// Progress of the next epoch, if it was begun.
    pub position: Option<Position>,
    /// Whether averaging has begun.
    pub averaging: bool,
    /// Number of iterates in the averages.
    pub iterates: usize,
    /// The rule that starts averaging, or ends finetuning, with the validation losses that it has seen.
    pub rule: NonMonotone,
    /// Whether the rule has ended finetuning.
    pub ended: bool,
    /// Number of validations in a row without a new best.
    #[serde(default)]
    pub unimproved: usize,
    /// Number of validations without a new best, each of which lowers the learning rate if it is to fall so.
    #[serde(default)]
    pub decays: usize,
    /// The best validation.
    pub best: Option<Best>,
    /// Number of training tokens of the epochs that are done.
    #[serde(default)]
    pub tokens: usize,
    /// Wall-clock time of the epochs that are done, in seconds.
    pub seconds: f64,
    /// Bytes of `steps.jsonl`.
    #[serde(default)]
    pub step_bytes: u64,
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
    #[serde(with = "runs::exact")]
    pub nll: f64,
    /// The mean training loss of the epoch up to then, in nats.
    #[serde(default, with = "runs::exact::option", skip_serializing_if = "Option::is_none")]
    pub train_nll: Option<f64>,
}
