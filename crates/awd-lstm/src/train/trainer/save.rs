//! Checkpoints: all that training needs to continue as if it had not stopped.

use std::time::Instant;

use burn::module::Module;
use serde::{Deserialize, Serialize};

use super::state::{Best, TrainerState};
use super::{Trainer, optimiser};
use crate::config::{ModelConfig, TrainConfig};
use crate::train::run::RunFolder;
use runs::error::{Error, Result};
use runs::files;
use runs::{AVERAGE, EPOCH};
use runs::{METRICS, MODEL, STATE};
use runs::{extended, unchanged};
use runs::{load_weights, save_weights};

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
/// [`Error::Io`], [`Error::Damaged`].
pub(in crate::train) fn saved_state(run: &RunFolder) -> Result<Option<TrainerState>> {
    let folder = run.checkpoint();
    match folder.exists() {
        true => Ok(Some(files::read_json::<Saved>(&folder.join(STATE))?.state)),
        false => Ok(None),
    }
}

impl Trainer {
    /// Saves all that training needs to be resumed, if this is the rank that has the run's folder. All ranks call it.
    pub(super) fn save(&mut self, run: Option<&RunFolder>) -> Result<()> {
        if let Some(pass) = self.pass.as_ref().filter(|pass| pass.meter.peek().is_none()) {
            let (step, steps) = (pass.step, pass.schedule.steps().len());
            return Err(Error::NonFiniteLoss { epoch: self.state.epoch + 1, step, steps });
        }
        let hidden = self.whole_state()?;
        let Some(run) = run else { return Ok(()) };
        run.sync_steps()?;
        let position = self.pass.as_ref().map(|pass| pass.position());
        let saved = Saved {
            state: TrainerState { position, ..self.state.clone() },
            model: self.model_config.clone(),
            train: self.config.clone(),
        };
        files::replace_folder(&run.checkpoint(), |folder| {
            save_weights(self.model(), &folder.join(MODEL))?;
            if self.state.iterates > 0 {
                save_weights(&self.optimiser.averaged(self.model()), &folder.join(AVERAGE))?;
            }
            if let (Some(pass), Some(hidden)) = (&self.pass, &hidden) {
                save_weights(&pass.carried(hidden), &folder.join(EPOCH))?;
            }
            files::write(&folder.join(METRICS), self.metrics.as_bytes())?;
            files::replace_json(&folder.join(STATE), &saved)
        })?;
        self.saved = Instant::now();
        Ok(())
    }

    /// Saves the best model. It is saved after the checkpoint: until then, a crash must leave the old checkpoint's best model.
    pub(super) fn save_best(&self, run: &RunFolder) -> Result<()> {
        let Some(weights) = &self.best else { return Ok(()) };
        run.save_best(weights)
    }

    /// Goes back to the latest checkpoint of a run, and, if this process holds the run's lock, sets the run's `metrics.jsonl`,
    /// `steps.jsonl` and best model back to it. Several ranks all read the folder.
    ///
    /// Returns whether there is a checkpoint. A run without one is at its beginning, like a fresh trainer. If it has a best
    /// model even so, a finetuning's or one from elsewhere, training [starts from](Self::start_from) that.
    ///
    /// # Errors
    /// [`Error::ConfigChanged`] if this trainer's configuration differs from the one that saved the run by more than the run's
    /// [`extensions`](crate::train::RunConfig::extensions); [`Error::Io`], [`Error::Damaged`], or what [`load_weights`] says of
    /// the weights; [`Error::NonFinitePerplexity`] of a model to start from.
    pub fn restore(&mut self, run: &RunFolder) -> Result<bool> {
        let folder = run.checkpoint();
        if !folder.exists() {
            if run.metrics()?.is_empty() {
                if run.is_locked() {
                    self.state.step_bytes = run.reset_steps(0)?;
                }
                if let Ok(start) = run.best_weights() {
                    self.start_from(&start)?;
                }
                return Ok(false);
            }
            let reason = "the run has finished epochs, but no checkpoint".to_string();
            return Err(Error::Damaged { path: run.path().to_path_buf(), reason });
        }
        let Saved { state, model, train } = files::read_json(&folder.join(STATE))?;
        unchanged("model", &model, &self.model_config)?;
        unchanged("train", &extended(&train, &run.config()?.extensions), &self.config)?;

        let model = load_weights(self.model().clone(), &folder.join(MODEL))?;
        let mut optimiser = optimiser(&self.config, &model);
        if state.averaging {
            optimiser.start_averaging();
        }
        if state.iterates > 0 {
            optimiser.resume_averaging(&load_weights(model.clone(), &folder.join(AVERAGE))?, state.iterates);
        }
        let metrics = run.saved_metrics()?;
        (self.model, self.optimiser, self.state) = (Some(model), optimiser, state);
        if self.state.tokens == 0 {
            // Of an earlier version, which did not count them; an epoch may leave out a row.
            self.state.tokens = self.state.epoch * self.train.predictions();
        }
        self.pass = None;
        if let Some(position) = self.state.position.take() {
            let mut pass = self.new_pass();
            let steps = pass.schedule.steps().len();
            if position.step > steps {
                let reason = format!("it is at step {}, but the epoch has {steps}", position.step);
                return Err(Error::Damaged { path: folder.join(STATE), reason });
            }
            let whole = self.model().zero_state(self.config.batch);
            let carried = load_weights(pass.form_of(&position, &whole), &folder.join(EPOCH))?;
            pass.restore(&position, carried, &self.ranks.part(self.config.batch));
            self.pass = Some(pass);
        }
        self.best = None;
        match self.state.best {
            // The process may have ended between the two saves. If the best model is of this very moment, the checkpoint has it.
            Some(best) if self.is_now(best) => {
                self.best = Some(self.evaluated());
                if run.is_locked() {
                    self.save_best(run)?;
                }
            }
            Some(_) => self.best = Some(load_weights(self.model().valid(), &run.best_weights()?)?),
            None => {}
        }
        if run.is_locked() {
            run.reset_metrics(&metrics)?;
            self.state.step_bytes = run.reset_steps(self.state.step_bytes)?;
        }
        self.metrics = metrics;
        Ok(true)
    }

    /// Whether the best validation was the last thing that happened.
    fn is_now(&self, best: Best) -> bool {
        match &self.pass {
            None => best.epoch == self.state.epoch && best.step.is_none(),
            Some(pass) => best.epoch == self.state.epoch + 1 && best.step == Some(pass.step),
        }
    }
}
