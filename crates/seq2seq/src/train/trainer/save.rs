//! Checkpoints: all that training needs to continue as if it had not stopped.

use std::fs;
use std::time::Instant;

use burn::module::Module;
use runs::files;
use runs::{METRICS, MODEL, STATE, extended, load_weights, save_weights, unchanged};
use serde::{Deserialize, Serialize};

use super::{Best, Trainer, TrainerState};
use crate::config::{ModelConfig, TrainConfig};
use crate::error::Result;
use crate::train::pass::Pass;
use crate::train::run::RunFolder;
use runs::optim::{load_adam, save_optimiser};

/// The optimiser's state in `checkpoint/`, once there is any.
const OPTIMISER: &str = "optimiser.bpk";

/// The content of `state.json`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Saved {
    state: TrainerState,
    /// The run's configuration, to notice one that was edited by hand.
    model: ModelConfig,
    train: TrainConfig,
}

/// The state of a run's checkpoint; `None` if it has none.
///
/// # Errors
/// [`Io`](runs::Error::Io), [`Damaged`](runs::Error::Damaged).
pub(in crate::train) fn saved_state(run: &RunFolder) -> runs::error::Result<Option<TrainerState>> {
    let folder = run.checkpoint();
    match folder.exists() {
        true => Ok(Some(files::read_json::<Saved>(&folder.join(STATE))?.state)),
        false => Ok(None),
    }
}

impl Trainer<'_> {
    /// Saves all that training needs to be resumed.
    pub(super) fn save(&mut self, run: &RunFolder) -> Result<()> {
        if self.pass.is_some() {
            self.read()?;
        }
        run.sync_steps()?;
        let position = self.pass.as_ref().map(Pass::position);
        let saved = Saved {
            state: TrainerState { position, ..self.state.clone() },
            model: self.model_config.clone(),
            train: self.config.clone(),
        };
        files::replace_folder(&run.checkpoint(), |folder| {
            save_weights(self.model(), &folder.join(MODEL))?;
            if self.has_moments() {
                save_optimiser(&self.optimiser, &folder.join(OPTIMISER))?;
            }
            files::write(&folder.join(METRICS), self.metrics.as_bytes())?;
            files::replace_json(&folder.join(STATE), &saved)
        })?;
        self.saved = Instant::now();
        Ok(())
    }

    /// Whether a step was done.
    fn has_moments(&self) -> bool {
        self.state.epoch > 0 || self.pass.as_ref().is_some_and(|pass| pass.step() > 0)
    }

    /// Saves the best model.
    pub(super) fn save_best(&self, run: &RunFolder) -> Result<()> {
        Ok(self.best.as_ref().map_or(Ok(()), |weights| run.save_best(weights))?)
    }

    /// Goes back to the latest checkpoint of a run, and sets the run's `metrics.jsonl`, `steps.jsonl` and best model back to it.
    ///
    /// Returns whether there is a checkpoint. A run without one is at its beginning, like a fresh trainer.
    ///
    /// # Errors
    /// [`ConfigChanged`](runs::Error::ConfigChanged) if this trainer's configuration is not the one that saved the run, but for
    /// [`extensions`](crate::train::RunConfig::extensions);
    /// [`Io`](runs::Error::Io), [`Damaged`](runs::Error::Damaged), or what [`load_weights`] says of the weights.
    pub fn restore(&mut self, run: &RunFolder) -> Result<bool> {
        let folder = run.checkpoint();
        if !folder.exists() {
            if run.metrics()?.is_empty() {
                self.state.step_bytes = run.reset_steps(0)?;
                return Ok(false);
            }
            let reason = "the run has finished epochs, but no checkpoint".to_string();
            return Err(runs::Error::Damaged { path: run.path().to_path_buf(), reason }.into());
        }
        let path = folder.join(STATE);
        let Saved { state, model, train } = files::read_json(&path)?;
        unchanged("model", &model, &self.model_config)?;
        unchanged("train", &extended(&train, &run.config()?.extensions), &self.config)?;
        if let Some(step) = state.position.as_ref().map(|position| position.step)
            && step > self.config.updates
        {
            let reason = format!("it is at step {step}, but the epoch has {}", self.config.updates);
            return Err(runs::Error::Damaged { path, reason }.into());
        }

        let model = load_weights(self.model().clone(), &folder.join(MODEL))?;
        let path = folder.join(METRICS);
        let metrics = fs::read_to_string(&path).map_err(runs::Error::io("read", &path))?;
        (self.model, self.state) = (Some(model), state);
        self.state.stop = self.state.stop.clone().with_patience(self.config.stop.patience);
        self.pass = self.state.position.take().map(Pass::new);
        if self.has_moments() {
            self.optimiser = load_adam(self.model(), &folder.join(OPTIMISER))?;
        }
        self.best = match self.state.best {
            // The process may have ended between the two saves. If the best model is of this very moment, the checkpoint has it.
            Some(Best { epoch, .. }) if epoch == self.state.epoch && self.pass.is_none() => {
                Some(self.model().valid())
            }
            Some(_) => Some(load_weights(self.model().valid(), &run.best_weights()?)?),
            None => None,
        };
        if self.pass.is_none() && self.state.best.is_some_and(|best| best.epoch == self.state.epoch) {
            self.save_best(run)?;
        }
        run.reset_metrics(&metrics)?;
        self.metrics = metrics;
        self.state.step_bytes = run.reset_steps(self.state.step_bytes)?;
        Ok(true)
    }
}
