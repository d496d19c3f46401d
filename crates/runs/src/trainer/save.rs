//! Checkpoints: all that training needs to continue as if it had not stopped.

use std::path::{Path, PathBuf};
use std::time::Instant;

use burn::module::Module;

use super::Trainer;
use crate::difference::unchanged;
use crate::error::{Error, Result};
use crate::folder::{AVERAGE, Folder, MODEL, STATE};
use crate::settings::is_time_over;
use crate::state::Best;
use crate::task::Task;

/// Where a run's folder says that training goes on.
enum Found {
    /// At its checkpoint: the lines of its metrics, and whether the file of its best model may be that of another moment.
    Checkpoint { metrics: String, saves_best: bool },
    /// At its beginning, from these weights if there are any.
    Beginning { weights: Option<PathBuf> },
}

impl<T: Task> Trainer<T> {
    /// Saves all that training needs to be resumed, if this is the rank that has the run's folder. All ranks call it.
    ///
    /// # Errors
    /// [`Error::NonFiniteLoss`], at all ranks; [`Error::Io`], [`Error::Communication`].
    pub(super) fn save(&mut self, run: Option<&Folder<T::Settings>>) -> Result<()> {
        if self.state.position.is_some() {
            self.read()?;
        }
        self.task.gather(self.peers.ranks())?;
        let Some(run) = run else { return self.write(None) };
        run.sync_steps()?;
        run.save_checkpoint(&self.state, &self.metrics, |folder| self.write(Some(folder)))?;
        self.saved = Instant::now();
        Ok(())
    }

    /// Writes weights and optimiser of a checkpoint. The ranks without the folder give the rows that they hold, and are told if a weight
    /// is not finite, which the first rank alone sees.
    fn write(&self, folder: Option<&Path>) -> Result<()> {
        let mut written = self.write_weights(folder);
        if let (Ok(()), Some(folder)) = (&written, folder) {
            written = self.task.save(&self.state, folder);
        }
        let diverged = matches!(written, Err(Error::NonFiniteTensor { .. }));
        match self.peers.grid.all.first_says(diverged)? {
            true => Err(self.diverged("weights are")),
            false => written,
        }
    }

    fn write_weights(&self, folder: Option<&Path>) -> Result<()> {
        let shards = self.task.shards();
        let takes_part = !shards.are_none() && self.peers.grid.is_first_group();
        if folder.is_none() && !takes_part {
            return Ok(());
        }
        let path = |name| folder.map(|folder| folder.join(name));
        let model = shards.save(self.task.model(), path(MODEL).as_deref());
        // Whatever came of it: the other ranks give their rows of both.
        let averages = self.task.averages(&self.state);
        let averages = averages.map_or(Ok(()), |averages| shards.save(&averages, path(AVERAGE).as_deref()));
        model.and(averages)
    }

    /// Saves the best model, as [`save`](Self::save) the others. It is saved after the checkpoint: until then, a crash must leave the
    /// old checkpoint's best model.
    pub(super) fn save_best(&self, run: Option<&Folder<T::Settings>>) -> Result<()> {
        match (self.whole_best()?, run) {
            (Some(whole), Some(run)) => run.save_best(&whole),
            _ => Ok(()),
        }
    }

    /// The best model with all rows at rank 0, if there is one; the ranks that have a copy of rank 0's model call it.
    fn whole_best(&self) -> Result<Option<T::Model>> {
        match &self.best {
            Some(weights) if self.peers.grid.is_first_group() => self.task.shards().whole(weights).map(Some),
            _ => Ok(None),
        }
    }

    /// Goes back to the latest checkpoint of a run, and, if this process holds the run's lock, sets the run's `metrics.jsonl`,
    /// `steps.jsonl` and best model back to it, and writes what [`Folder::extend`] changed. Several ranks all read the folder.
    /// Everything is read, checked and found to be the same at all ranks before anything is written.
    ///
    /// Returns whether there is a checkpoint. A run without one is at its beginning, like a fresh trainer. If it has a best
    /// model even so, a finetuning's or one from elsewhere, training [starts from](Self::start_from) that.
    ///
    /// # Errors
    /// [`Error::ConfigChanged`] if this trainer's configuration is not the run's; [`Error::Io`], [`Error::Damaged`], or what
    /// [`load_weights`](crate::load_weights) says of the weights; [`Error::NonFinitePerplexity`] of a model to start from;
    /// [`Error::RankDiffers`] if another rank has read another checkpoint. The run is then as it was. Whatever one rank meets, all
    /// ranks are told.
    pub fn restore(&mut self, run: &Folder<T::Settings>) -> Result<bool> {
        self.restore_or(run, |_| Ok(()))
    }

    /// As [`restore`](Self::restore), but a run at its beginning is then begun by `begin`, before anything is written. All ranks call
    /// it, and it fails at all of them or at none.
    ///
    /// # Errors
    /// As [`restore`](Self::restore), and those of `begin`.
    pub fn restore_or<E: From<Error>>(
        &mut self,
        run: &Folder<T::Settings>,
        begin: impl FnOnce(&mut Self) -> Result<(), E>,
    ) -> Result<bool, E> {
        let all = self.peers.grid.all.clone();
        let found = self.go_back(run);
        let found = all.all_good(found)?;
        // A machine may have an older copy of the run.
        all.check_same("has_checkpoint", &matches!(found, Found::Checkpoint { .. }))?;
        all.check_same("checkpoint", &self.state)?;
        let (metrics, saves_best) = match found {
            Found::Checkpoint { metrics, saves_best } => (metrics, saves_best),
            Found::Beginning { weights } => {
                all.check_same("has_best_model", &weights.is_some())?;
                if let Some(weights) = weights {
                    self.start_from(&weights)?;
                }
                begin(self)?;
                let written = self.set_back(run, "", None);
                all.all_good(written)?;
                return Ok(false);
            }
        };
        self.check_weights("weights", self.task.model())?;
        if let Some(best) = &self.best {
            self.check_weights("best weights", best)?;
        }
        // Before anything is written: if rank 0 cannot write, nobody waits for its rows.
        let best = match saves_best && self.task.shards().ranks().first_says(run.is_locked())? {
            true => self.whole_best()?,
            false => None,
        };
        let written = match run.is_locked() && self.state.best.is_none() {
            // One that is there is of a validation that is undone.
            true => run.remove_best(),
            false => Ok(()),
        };
        let written = written.and_then(|()| self.set_back(run, &metrics, best));
        all.all_good(written)?;
        self.metrics = metrics;
        Ok(true)
    }

    /// Writes what [`Folder::extend`] changed, the best model if one is given, and sets metrics and steps back, if this process holds
    /// the run's lock.
    fn set_back(&mut self, run: &Folder<T::Settings>, metrics: &str, best: Option<T::Model>) -> Result<()> {
        if !run.is_locked() {
            return Ok(());
        }
        run.write_extension()?;
        if let Some(best) = best {
            run.save_best(&best)?;
        }
        run.reset_metrics(metrics)?;
        self.state.step_bytes = run.reset_steps(self.state.step_bytes)?;
        Ok(())
    }

    /// Reads the latest checkpoint of a run.
    fn go_back(&mut self, run: &Folder<T::Settings>) -> Result<Found> {
        run.check()?;
        let config = run.config()?;
        unchanged("model", &config.model, &self.task.setup().model)?;
        unchanged("train", &config.train, &self.task.setup().train)?;
        let Some(state) = run.saved_state()? else {
            if !run.metrics()?.is_empty() {
                let reason = "the run has finished epochs, but no checkpoint";
                return Err(Error::damaged(run.path(), reason));
            }
            return match run.best_weights() {
                Ok(weights) => Ok(Found::Beginning { weights: Some(weights) }),
                Err(Error::NoWeights { .. }) => Ok(Found::Beginning { weights: None }),
                Err(error) => Err(error),
            };
        };
        let folder = run.checkpoint();
        let steps = self.task.steps(state.epoch + 1);
        if let Some(step) = state.position.as_ref().map(|position| position.step).filter(|step| *step > steps)
        {
            let reason = format!("it is at step {step}, but the epoch has {steps}");
            return Err(Error::damaged(&folder.join(STATE), reason));
        }
        let shards = self.task.shards();
        self.task.set_model(shards.load(self.task.model().clone(), &folder.join(MODEL))?);
        self.state = state;
        if let Some(position) = self.state.position.take() {
            self.begin(position);
        }
        self.task.load(&mut self.state, &folder, self.peers.ranks())?;
        let mut metrics = run.saved_metrics()?;
        // With more time, the validation at the end of the time before is as if it had not been.
        let mut is_back = false;
        if !is_time_over(&self.task.setup().train, &self.state) {
            is_back = self.state.has_displaced_best();
            if let Some(before) = self.state.before_end.take() {
                self.state.best = before.best;
                let end = metrics.trim_end().rfind('\n').map_or(0, |end| end + 1);
                metrics.truncate(end);
            }
        }
        // The process may have ended between the two saves. If the best model is of this very moment, the checkpoint has it.
        let is_now = self.state.best.is_some_and(|best| self.is_now(best));
        self.best = match self.state.best {
            Some(_) if is_now => Some(self.task.evaluated(&self.state)),
            Some(_) => {
                let weights = if is_back { run.displaced_weights()? } else { run.best_weights()? };
                Some(shards.load(self.task.model().valid(), &weights)?)
            }
            None => None,
        };
        Ok(Found::Checkpoint { metrics, saves_best: is_now || is_back })
    }

    /// Whether the best validation was the last thing that happened.
    fn is_now(&self, best: Best) -> bool {
        match &self.state.position {
            None => best.epoch == self.state.epoch && best.step.is_none(),
            Some(position) => best.epoch == self.state.epoch + 1 && best.step == Some(position.step),
        }
    }
}
