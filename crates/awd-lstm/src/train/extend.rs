//! Runs of language models that go on for longer than they were started for, or elsewhere.

use runs::error::Result;
use runs::{Extendable, Extended, Extension};

use super::run::{RunConfig, RunFolder};
use super::trainer::{Reached, TrainerState, end_of, saved_state};
use crate::train::observer::EndReason;

impl Extendable for RunConfig {
    type State = TrainerState;

    const CHANGEABLE: &'static [&'static str] =
        &["train.epochs", "train.max_minutes", "train.patience", "device"];

    fn apply(&mut self, change: &Extension) -> Result<(), String> {
        let Extension { epochs, max_minutes, patience, device } = change.clone();
        self.train.epochs = epochs.unwrap_or(self.train.epochs);
        self.train.max_minutes = max_minutes.or(self.train.max_minutes);
        self.train.patience = patience.or(self.train.patience);
        self.device = device.unwrap_or_else(|| self.device.clone());
        Ok(())
    }

    fn extensions_mut(&mut self) -> &mut Vec<Extended> {
        &mut self.extensions
    }

    fn saved_state(run: &RunFolder) -> Result<Option<TrainerState>> {
        saved_state(run)
    }

    fn epochs_done(state: &TrainerState) -> usize {
        state.epoch
    }

    fn goes_on(&self, before: &Self, state: &TrainerState) -> Result<bool, String> {
        let reached = state.position.as_ref().map(|position| Reached {
            step: position.step,
            validated: position.validated,
            seconds: position.seconds,
        });
        let (was_over, over) = (end_of(&before.train, state, reached), end_of(&self.train, state, reached));
        if self.train == before.train {
            return Ok(false);
        }
        Err(match over {
            // Also between a step and its validation, when no run is over.
            _ if self.train.epochs <= state.epoch => {
                format!("epochs is {}, but epoch {} is done: give more", self.train.epochs, state.epoch)
            }
            None | Some(EndReason::Epochs) => return Ok(was_over.is_some()),
            Some(EndReason::Patience) => format!(
                "its last {} validations made no new best model, and its patience is {}: give a larger one",
                state.unimproved,
                self.train.patience.unwrap_or_default()
            ),
            Some(EndReason::Time) => format!(
                "its max_minutes is {}, and {:.2} minutes have passed: give more",
                self.train.max_minutes.unwrap_or_default(),
                (state.seconds + reached.map_or(0.0, |reached| reached.seconds)) / 60.0
            ),
            Some(EndReason::FinetuningRule) => {
                "it is a finetuning that its validation losses ended; finetune its best model in a new run"
                    .into()
            }
        })
    }
}
