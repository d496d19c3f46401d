//! A run that goes on for longer than it was started for, or elsewhere.

use serde::Serialize;
use serde_json::{Value, json};

use super::run::{Extended, RunConfig, RunFolder};
use super::trainer::{Reached, TrainerState, end_of, saved_metrics, saved_state};
use crate::error::{Error, Result};
use crate::train::observer::EndReason;

/// What is changed of a run that was begun. `None` leaves a setting as it is.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Extension {
    /// Epochs of the whole run.
    pub epochs: Option<usize>,
    /// Minutes of the whole run.
    pub max_minutes: Option<f64>,
    /// Validations in a row without a new best after which training ends.
    pub patience: Option<usize>,
    /// Name of the device that the run goes on with. Results on another device differ by rounding and by dropout masks.
    pub device: Option<String>,
}

impl RunFolder {
    /// Changes a run that was begun, so that it goes on for longer or on another device, and returns its new configuration.
    ///
    /// The run's `config.json` gets the new values and a record of each change in
    /// [`extensions`](RunConfig::extensions). The last line of a finished run that goes on is taken away from `metrics.jsonl`.
    /// A run of more epochs goes on to the bits of one that was started with as many. Values that the run has already
    /// change nothing.
    ///
    /// # Errors
    /// [`Error::CannotExtend`] if more is done than is asked for, or a finished run would still be finished; what is wrong with
    /// the configuration; [`Error::Io`], [`Error::Damaged`]. The run is then as it was.
    ///
    /// # Panics
    /// If this process does not hold the run's lock: see [`RunFolder::is_locked`].
    pub fn extend(&self, change: &Extension) -> Result<RunConfig> {
        assert!(self.is_locked(), "extend: the run folder was opened to read it only");
        let before = self.config()?;
        let state = saved_state(self)?;
        let Extension { epochs, max_minutes, patience, device } = change.clone();
        let mut now = before.clone();
        now.train.epochs = epochs.unwrap_or(before.train.epochs);
        now.train.max_minutes = max_minutes.or(before.train.max_minutes);
        now.train.patience = patience.or(before.train.patience);
        now.device = device.unwrap_or_else(|| before.device.clone());
        now.train.validate()?;

        let after_epoch = state.as_ref().map_or(0, |state| state.epoch);
        now.extensions.extend(differences(&before, &now, after_epoch));
        if now.extensions.len() == before.extensions.len() {
            return Ok(before);
        }
        if let Some(state) = &state {
            let goes_on = self.goes_on(&before, &now, state)?;
            if goes_on {
                // First: a run without its last line is one that is to be finished, whatever its configuration says.
                self.reset_metrics(&saved_metrics(self)?)?;
            }
        }
        self.replace_config(&now)?;
        Ok(now)
    }

    /// Whether a run has more to train with the configuration `now`, and had not with `before`.
    ///
    /// # Errors
    /// [`Error::CannotExtend`] if the procedure was changed and it has nothing to train.
    fn goes_on(&self, before: &RunConfig, now: &RunConfig, state: &TrainerState) -> Result<bool> {
        let reached = state.position.as_ref().map(|position| Reached {
            step: position.step,
            validated: position.validated,
            seconds: position.seconds,
        });
        let (was_over, over) = (end_of(&before.train, state, reached), end_of(&now.train, state, reached));
        if now.train == before.train {
            return Ok(false);
        }
        let reason = match over {
            // Also between a step and its validation, when no run is over.
            _ if now.train.epochs <= state.epoch => {
                format!("epochs is {}, but epoch {} is done: give more", now.train.epochs, state.epoch)
            }
            None | Some(EndReason::Epochs) => return Ok(was_over.is_some()),
            Some(EndReason::Patience) => format!(
                "its last {} validations made no new best model, and its patience is {}: give a larger one",
                state.unimproved,
                now.train.patience.unwrap_or_default()
            ),
            Some(EndReason::Time) => format!(
                "its max_minutes is {}, and {:.2} minutes have passed: give more",
                now.train.max_minutes.unwrap_or_default(),
                (state.seconds + reached.map_or(0.0, |reached| reached.seconds)) / 60.0
            ),
            Some(EndReason::FinetuningRule) => {
                "it is a finetuning that its validation losses ended; finetune its best model in a new run"
                    .into()
            }
        };
        Err(Error::CannotExtend { path: self.path().to_path_buf(), reason })
    }
}

/// The records of what differs.
fn differences(before: &RunConfig, now: &RunConfig, after_epoch: usize) -> Vec<Extended> {
    fn values<T: Serialize>(setting: &'static str, before: &T, now: &T) -> (&'static str, Value, Value) {
        (setting, json!(before), json!(now))
    }
    let all = [
        values("train.epochs", &before.train.epochs, &now.train.epochs),
        values("train.max_minutes", &before.train.max_minutes, &now.train.max_minutes),
        values("train.patience", &before.train.patience, &now.train.patience),
        values("device", &before.device, &now.device),
    ];
    all.into_iter()
        .filter(|(_, from, to)| from != to)
        .map(|(setting, from, to)| Extended { after_epoch, setting: setting.into(), from, to })
        .collect()
}
