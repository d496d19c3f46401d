//! Runs of dialogues that go on for longer than they were started for, or elsewhere.

use runs::{Extendable, Extended, Extension};

use super::observer::EndReason;
use super::run::{RunConfig, RunFolder};
use super::trainer::{TrainerState, end_of, saved_state};

/// `patience` of an [`Extension`] is that of [`StopConfig`](crate::config::StopConfig), the first epoch after which training may end. It can
/// only grow. There is no limit of time.
impl Extendable for RunConfig {
    type State = TrainerState;

    const CHANGEABLE: &'static [&'static str] = &["train.epochs", "train.stop.patience", "device"];

    fn apply(&mut self, change: &Extension) -> Result<(), String> {
        let Extension { epochs, max_minutes, patience, device } = change.clone();
        if max_minutes.is_some() {
            return Err("its training has no limit of time".into());
        }
        let before = self.train.stop.patience;
        self.train.epochs = epochs.unwrap_or(self.train.epochs);
        self.train.stop.patience = patience.unwrap_or(before);
        self.device = device.unwrap_or_else(|| self.device.clone());
        // What was decided by the larger one cannot be taken back.
        match self.train.stop.patience {
            less if less < before => {
                Err(format!("patience is {less}, but {before} in the run: it can only grow"))
            }
            _ => Ok(()),
        }
    }

    fn extensions_mut(&mut self) -> &mut Vec<Extended> {
        &mut self.extensions
    }

    fn saved_state(run: &RunFolder) -> runs::error::Result<Option<TrainerState>> {
        saved_state(run)
    }

    fn epochs_done(state: &TrainerState) -> usize {
        state.epoch
    }

    fn goes_on(&self, before: &Self, state: &TrainerState) -> Result<bool, String> {
        if self.train == before.train {
            return Ok(false);
        }
        Err(match end_of(&self.train, state) {
            // Also inside of an epoch, when no run is over.
            _ if self.train.epochs <= state.epoch => {
                format!("epochs is {}, but epoch {} is done: give more", self.train.epochs, state.epoch)
            }
            None | Some(EndReason::Epochs) => return Ok(end_of(&before.train, state).is_some()),
            Some(EndReason::EarlyStop) => format!(
                "its validation losses ended it after epoch {}, and its patience is {}: give a larger one than {0}",
                state.epoch, self.train.stop.patience
            ),
        })
    }
}
