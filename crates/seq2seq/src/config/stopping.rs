//! When training ends early.

use runs::error::{Result, check};
use serde::{Deserialize, Serialize};

/// How long training waits for the validation loss to fall, as in the published program of Zhao et al. (arXiv 1703.10960).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StopConfig {
    /// The first epoch after which training may end.
    pub patience: usize,
    /// A best loss counts if it is at most this part of the last one that counted, in `(0, 1]`.
    pub improvement: f64,
    /// After a loss that counts in epoch n, training goes on to epoch `increase · n` at least.
    pub increase: usize,
}

impl Default for StopConfig {
    fn default() -> Self {
        Self { patience: 10, improvement: 0.996, increase: 2 }
    }
}

impl StopConfig {
    /// Checks every setting.
    ///
    /// # Errors
    /// [`InvalidSetting`](runs::Error::InvalidSetting) names the first setting that is out of range and the range.
    pub fn validate(&self) -> Result<()> {
        check(self.patience > 0, "stop.patience", self.patience, "at least 1")?;
        let part = self.improvement > 0.0 && self.improvement <= 1.0;
        check(part, "stop.improvement", self.improvement, "above 0 and at most 1")?;
        check(self.increase > 0, "stop.increase", self.increase, "at least 1")
    }
}

/// The rule of [`StopConfig`], told every validation loss in turn. Serialises, so that it outlives its process.
///
/// ```
/// use seq2seq::config::{EarlyStop, StopConfig};
///
/// let mut stop = EarlyStop::new(StopConfig { patience: 3, ..StopConfig::default() });
/// let new_best = [5.0, 4.0, 4.1].map(|loss| stop.record(loss));
/// assert_eq!(new_best, [true, true, false]);
/// // The loss of epoch 2 counted: training goes on to epoch 4.
/// assert!(!stop.is_over());
/// stop.record(4.2);
/// assert!(stop.is_over());
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EarlyStop {
    config: StopConfig,
    epoch: usize,
    /// The epoch after which training ends, as things stand.
    patience: usize,
    #[serde(with = "runs::exact::option")]
    best: Option<f64>,
    /// The last best loss that counted.
    #[serde(with = "runs::exact::option")]
    counted: Option<f64>,
}

impl EarlyStop {
    /// Before the first epoch.
    pub fn new(config: StopConfig) -> Self {
        Self { patience: config.patience, config, epoch: 0, best: None, counted: None }
    }

    /// The same rule with a [patience](StopConfig::patience) that has grown: as if it had been this one from the beginning.
    pub fn with_patience(mut self, patience: usize) -> Self {
        self.config.patience = patience;
        self.patience = self.patience.max(patience);
        self
    }

    /// Takes the validation loss of the next epoch and says whether it is a new best. A NaN never is.
    pub fn record(&mut self, loss: f64) -> bool {
        self.epoch += 1;
        let new_best = self.best.map_or(!loss.is_nan(), |best| loss < best);
        if new_best {
            if self.counted.is_none_or(|counted| loss <= self.config.improvement * counted) {
                self.patience = self.patience.max(self.config.increase.saturating_mul(self.epoch));
                self.counted = Some(loss);
            }
            self.best = Some(loss);
        }
        new_best
    }

    /// Whether training ends now.
    pub fn is_over(&self) -> bool {
        self.epoch >= self.patience
    }

    /// The lowest loss so far.
    pub fn best(&self) -> Option<f64> {
        self.best
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The epoch after which a rule ends training, of a loss for every epoch.
    fn end(config: StopConfig, loss: impl Fn(usize) -> f64) -> usize {
        let mut stop = EarlyStop::new(config);
        (1..1000)
            .find(|&epoch| {
                stop.record(loss(epoch));
                stop.is_over()
            })
            .unwrap()
    }

    #[test]
    fn training_ends_at_twice_the_last_epoch_that_counted() {
        let rule = StopConfig::default;
        // Better until epoch 20, by enough each time.
        assert_eq!(end(rule(), |epoch| 5.0 * 0.99f64.powi(epoch.min(20) as i32)), 40);
        assert_eq!(end(rule(), |_| 5.0), 10);
        assert_eq!(end(rule(), |epoch| epoch as f64), 10);
        assert_eq!(end(rule(), |_| f64::NAN), 10);
        assert_eq!(end(StopConfig { patience: 1, ..rule() }, |_| 5.0), 2);
        assert_eq!(end(StopConfig { patience: 1, increase: 1, ..rule() }, |_| 5.0), 1);
    }

    #[test]
    fn small_steps_count_once_they_add_up() {
        // 0.2 % an epoch: every second best is 0.4 % below the one that counted last, just not the second.
        let mut stop = EarlyStop::new(StopConfig { patience: 1, improvement: 0.996, increase: 2 });
        let counted: Vec<Option<f64>> = (0..7)
            .map(|epoch| {
                assert!(stop.record(0.998f64.powi(epoch)));
                stop.counted
            })
            .collect();
        let power = |epoch| Some(0.998f64.powi(epoch));
        assert_eq!(counted, [0, 0, 0, 3, 3, 3, 6].map(power));
        assert_eq!(stop.best(), power(6));
        // The least step that counts.
        let mut stop = EarlyStop::new(StopConfig { patience: 1, improvement: 0.5, increase: 2 });
        for loss in [4.0, 2.0] {
            assert!(stop.record(loss));
        }
        assert_eq!(stop.counted, Some(2.0));
    }

    #[test]
    fn patience_that_grows_is_as_if_it_had_been_so() {
        let config = |patience| StopConfig { patience, improvement: 0.99, increase: 2 };
        for (before, after) in [(1, 1), (1, 3), (2, 9), (4, 5)] {
            for changed_after in 0..6 {
                let (mut changed, mut straight) =
                    (EarlyStop::new(config(before)), EarlyStop::new(config(after)));
                for epoch in 0..6 {
                    if epoch == changed_after {
                        changed = changed.with_patience(after);
                    }
                    let loss = [5.0, 4.0, 4.5, 3.99, 3.5, 3.6][epoch];
                    assert_eq!(changed.record(loss), straight.record(loss));
                }
                assert_eq!(changed, straight);
            }
        }
    }

    #[test]
    fn survives_serialisation() {
        let mut stop = EarlyStop::new(StopConfig::default());
        for loss in [4.1, 3.7, 3.9] {
            let text = serde_json::to_string(&stop).unwrap();
            assert_eq!(serde_json::from_str::<EarlyStop>(&text).unwrap(), stop);
            stop.record(loss);
        }
        let infinite = EarlyStop::new(StopConfig::default()).record(f64::INFINITY);
        assert!(infinite, "an infinite loss is the best of one");
    }
}
