//! Scoring the validation text, and what follows from it.

use std::time::Instant;

use super::{Trainer, to_line};
use crate::error::{Error, Result};
use crate::folder::Folder;
use crate::metrics::{EndReason, EpochMetrics, Score, ValidationMetrics};
use crate::observer::TrainObserver;
use crate::state::{BeforeEnd, Best};
use crate::task::{Split, Task};
use crate::text;

impl<T: Task> Trainer<T> {
    /// Scores the validation text, at the end of an epoch or inside of one, and lets the state see it. Returns `None` if the observer
    /// says stop; the state is then as before.
    ///
    /// Of a validation that is made only because the time is over, the state keeps what was [before](BeforeEnd) it.
    pub(super) fn validate(
        &mut self,
        observer: &mut dyn TrainObserver,
    ) -> Result<Option<(ValidationMetrics, Score)>> {
        self.read()?;
        let (epoch, steps) = self.epoch();
        let began = Instant::now();
        let weights = self.task.evaluated(&self.state);
        self.check_weights("weights", &weights)?;
        let evaluated = self.evaluate(&weights, Split::Valid, || observer.stop())?;
        // By rank 0's clock.
        let seconds = self.peers.grid.all.gather_equal(&[self.clock.seconds()])?[0];
        let position = self.position();
        position.seconds = seconds;
        position.validation_seconds += began.elapsed().as_secs_f64();
        let Some(valid) = evaluated else { return Ok(None) };
        if !valid.perplexity().is_finite() {
            let step = (position.step < steps).then_some(position.step);
            return Err(Error::NonFinitePerplexity { what: "validation", epoch, step });
        }
        position.validated = position.step;
        let (step, trained, nll) = (position.step, position.whole.score(), valid.mean());
        let best = self.state.best.is_none_or(|best| nll < best.nll);
        let metrics = ValidationMetrics {
            epoch,
            step,
            steps,
            seconds,
            train_ppl: trained.perplexity(),
            valid_ppl: valid.perplexity(),
            lr: self.task.learning_rate(&self.state),
            averaging: self.task.is_averaging(&self.state),
            best,
        };
        // A run with more time would not make one that is made because the time is over: it decides about the best model alone.
        let counts = self.validates_after(step);
        if !counts {
            self.state.before_end = Some(BeforeEnd { best: self.state.best });
        }
        if best {
            let step = (step < steps).then_some(step);
            self.state.best = Some(Best { epoch, step, nll, train_nll: Some(trained.mean()) });
            self.best = Some(weights);
        }
        if counts {
            self.state.unimproved = if best { 0 } else { self.state.unimproved + 1 };
            if let Some(what) = self.task.validated(&mut self.state, nll, best) {
                observer.on_message(&format!("{what} after {}", place(&metrics)));
            }
        }
        Ok(Some((metrics, valid)))
    }

    /// Reports a validation and saves what must be saved of it. At an epoch's end, the next epoch is up.
    pub(super) fn record(
        &mut self,
        metrics: &ValidationMetrics,
        valid: &Score,
        run: Option<&Folder<T::Settings>>,
        observer: &mut dyn TrainObserver,
    ) -> Result<()> {
        if metrics.step == metrics.steps {
            let metrics = self.end_epoch(metrics, valid);
            self.keep(&to_line(&metrics), metrics.best, true, run)?;
            observer.on_epoch(&metrics, self.share());
        } else {
            // A run that is over is not trained again from its last checkpoint on.
            let over = self.end().is_some();
            self.keep(&to_line(metrics), metrics.best, over, run)?;
            observer.on_validation(metrics, self.share());
        }
        let place = place(metrics);
        match self.end() {
            Some(EndReason::Patience) => {
                let count = self.state.unimproved;
                let line = format!("training ends after {place}: {count} validations without a new best");
                observer.on_message(&line);
            }
            Some(EndReason::Time) => {
                observer.on_message(&format!("training ends after {place}: its time is over"));
            }
            // The others need no word, or had one.
            _ => {}
        }
        Ok(())
    }

    fn end_epoch(&mut self, metrics: &ValidationMetrics, valid: &Score) -> EpochMetrics {
        let position = self.state.position.take().expect("an epoch is under way");
        let trained = position.whole.score();
        let ValidationMetrics { epoch, train_ppl, valid_ppl, lr, averaging, best, .. } = *metrics;
        self.state.epoch = epoch;
        self.state.seconds += position.seconds;
        self.state.validation_seconds += position.validation_seconds;
        self.state.tokens += trained.tokens;
        EpochMetrics {
            epoch,
            seconds: position.seconds,
            tokens_per_s: trained.tokens as f64 / (position.seconds - position.validation_seconds),
            train_ppl,
            valid_ppl,
            train_accuracy: trained.accuracy(),
            valid_accuracy: valid.accuracy(),
            lr,
            averaging,
            best,
        }
    }

    /// Adds a line to the metrics; the checkpoint, if there is to be one, comes first, and the best model after it.
    fn keep(&mut self, line: &str, best: bool, save: bool, run: Option<&Folder<T::Settings>>) -> Result<()> {
        // Metrics without a checkpoint are those of a damaged run.
        let is_first = self.metrics.is_empty();
        self.metrics.push_str(line);
        if self.peers.saves && (best || save || is_first) {
            self.save(run)?;
        }
        if self.peers.saves && best {
            self.save_best(run)?;
        }
        run.map_or(Ok(()), |run| run.append_metrics(line))
    }
}

/// Where a validation was, in words.
fn place(metrics: &ValidationMetrics) -> String {
    text::place(metrics.epoch, (metrics.step < metrics.steps).then_some(metrics.step))
}
