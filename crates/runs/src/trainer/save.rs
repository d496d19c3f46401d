//! Checkpoints: all that training needs to continue as if it had not stopped.

use std::path::Path;
use std::time::Instant;

use burn::module::Module;

use super::{Clock, Trainer};
use crate::difference::unchanged;
use crate::error::{Error, Result};
use crate::folder::{AVERAGE, Folder, MODEL, STATE};
use crate::state::Best;
use crate::task::Task;

impl<T: Task> Trainer<T> {
    /// Saves all that training needs to be resumed, if this is the rank that has the run's folder. All ranks call it.
    pub(super) fn save(&mut self, run: Option<&Folder<T::Settings>>) -> Result<()> {
        if self.state.position.is_some() {
            self.read()?;
        }
        self.task.gather(self.peers.ranks())?;
        let Some(run) = run else { return self.write(None) };
        run.sync_steps()?;
        run.save_checkpoint(&self.state, &self.metrics, |folder| {
            self.write(Some(folder))?;
            self.task.save(&self.state, folder)
        })?;
        self.saved = Instant::now();
        Ok(())
    }

    /// Writes the weights of a checkpoint; the ranks without the folder give the rows that they hold.
    fn write(&self, folder: Option<&Path>) -> Result<()> {
        let shards = self.task.shards();
        let takes_part = !shards.are_none() && self.peers.grid().is_first_group();
        if folder.is_none() && !takes_part {
            return Ok(());
        }
        let path = |name| folder.map(|folder| folder.join(name));
        shards.save(self.task.model(), path(MODEL).as_deref())?;
        let averages = self.task.averages(&self.state);
        averages.map_or(Ok(()), |averages| shards.save(&averages, path(AVERAGE).as_deref()))
    }

    /// Saves the best model, as [`save`](Self::save) the others. It is saved after the checkpoint: until then, a crash must leave the
    /// old checkpoint's best model.
    pub(super) fn save_best(&self, run: Option<&Folder<T::Settings>>) -> Result<()> {
        let Some(weights) = &self.best else { return Ok(()) };
        if !self.peers.grid().is_first_group() {
            return Ok(());
        }
        let whole = self.task.shards().whole(weights)?;
        run.map_or(Ok(()), |run| run.save_best(&whole))
    }

    /// Goes back to the latest checkpoint of a run, and, if this process holds the run's lock, sets the run's `metrics.jsonl`,
    /// `steps.jsonl` and best model back to it, and writes what [`Folder::extend`] changed. Several ranks all read the folder.
    /// Everything is read and checked before anything is written.
    ///
    /// Returns whether there is a checkpoint. A run without one is at its beginning, like a fresh trainer. If it has a best
    /// model even so, a finetuning's or one from elsewhere, training [starts from](Self::start_from) that.
    ///
    /// # Errors
    /// [`Error::ConfigChanged`] if this trainer's configuration is not the run's; [`Error::Io`], [`Error::Damaged`], or what
    /// [`load_weights`](crate::load_weights) says of the weights; [`Error::NonFinitePerplexity`] of a model to start from. The run is then as it was.
    pub fn restore(&mut self, run: &Folder<T::Settings>) -> Result<bool> {
        let read = self.go_back(run);
        let shards = self.task.shards();
        // What follows is a step of all ranks that share a vocabulary.
        let read = if shards.are_none() { read } else { self.peers.grid().all().all_good(read) };
        let Some((metrics, is_now)) = read? else { return Ok(false) };
        if run.is_locked() {
            run.write_extension()?;
        }
        if is_now && shards.ranks().first_says(run.is_locked())? {
            self.save_best(Some(run).filter(|run| run.is_locked()))?;
        }
        if run.is_locked() {
            run.reset_metrics(&metrics)?;
            self.state.step_bytes = run.reset_steps(self.state.step_bytes)?;
        }
        self.metrics = metrics;
        Ok(true)
    }

    /// Reads the latest checkpoint of a run. Returns the lines of its metrics, and whether its best model is of this very moment; `None`
    /// if it has no checkpoint, and is at its beginning.
    fn go_back(&mut self, run: &Folder<T::Settings>) -> Result<Option<(String, bool)>> {
        run.check()?;
        let config = run.config()?;
        unchanged("model", &config.model, self.task.model_config())?;
        unchanged("train", &config.train, self.task.procedure())?;
        let Some(state) = run.saved_state()? else {
            if !run.metrics()?.is_empty() {
                let reason = "the run has finished epochs, but no checkpoint";
                return Err(Error::damaged(run.path(), reason));
            }
            match run.best_weights() {
                Ok(start) => self.start_from(&start)?,
                Err(Error::NoWeights { .. }) => {}
                Err(error) => return Err(error),
            }
            if run.is_locked() {
                run.write_extension()?;
                self.state.step_bytes = run.reset_steps(0)?;
            }
            return Ok(None);
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
        self.clock = Clock::new(0.0);
        if let Some(position) = self.state.position.take() {
            self.begin(position);
        }
        self.task.load(&mut self.state, &folder, self.peers.ranks())?;
        let metrics = run.saved_metrics()?;
        // The process may have ended between the two saves. If the best model is of this very moment, the checkpoint has it.
        let is_now = self.state.best.is_some_and(|best| self.is_now(best));
        self.best = match self.state.best {
            Some(_) if is_now => Some(self.task.evaluated(&self.state)),
            Some(_) => Some(shards.load(self.task.model().valid(), &run.best_weights()?)?),
            None => None,
        };
        Ok(Some((metrics, is_now)))
    }

    /// Whether the best validation was the last thing that happened.
    fn is_now(&self, best: Best) -> bool {
        match &self.state.position {
            None => best.epoch == self.state.epoch && best.step.is_none(),
            Some(position) => best.epoch == self.state.epoch + 1 && best.step == Some(position.step),
        }
    }
}
