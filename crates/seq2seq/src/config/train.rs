//! The training procedure.

use runs::error::{Result, check};
use serde::{Deserialize, Serialize};

use super::stopping::StopConfig;
use crate::data::check_batch;

/// How a model is trained: by Adam, on the sum of the losses of a response's tokens, averaged over the responses of a batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainConfig {
    /// Pairs of a training step, a multiple of `run`.
    pub batch: usize,
    /// Consecutive pairs that stay together in a batch, see [`Schedule`](crate::data::Schedule).
    pub run: usize,
    /// Training steps of an epoch, after each of which the validation text is scored.
    pub updates: usize,
    /// The most epochs.
    pub epochs: usize,
    /// Learning rate.
    pub lr: f64,
    /// Largest global gradient norm, over all parameters together.
    pub clip: f64,
    /// When training ends before that.
    pub stop: StopConfig,
    /// Seed of everything random.
    pub seed: u64,
}

impl TrainConfig {
    /// Checks every setting.
    ///
    /// # Errors
    /// [`InvalidSetting`](runs::Error::InvalidSetting) names the first setting that is out of range and the range.
    pub fn validate(&self) -> Result<()> {
        check_batch(self.batch, self.run)?;
        for (name, size) in [("updates", self.updates), ("epochs", self.epochs)] {
            check(size > 0, name, size, "at least 1")?;
        }
        for (name, value) in [("lr", self.lr), ("clip", self.clip)] {
            check(value.is_finite() && value > 0.0, name, value, "finite and above 0")?;
        }
        self.stop.validate()
    }
}
