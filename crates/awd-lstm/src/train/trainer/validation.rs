//! Scoring the validation text, and what follows from it.

use std::time::Instant;

use super::end::learning_rate;
use super::state::Best;
use super::{Trainer, to_line};
use crate::config::{DecayWhen, LrDecay};
use crate::train::evaluate::mean_nll_unless;
use crate::train::observer::{EndReason, EpochMetrics, TrainObserver, ValidationMetrics};
use crate::train::run::RunFolder;
use runs::error::{Error, Result};

/// A validation at the end of an epoch or inside of one.
pub(super) struct Validation {
    epoch: usize,
    /// The step after which it was; none at the epoch's end.
    step: Option<usize>,
    train_ppl: f64,
    valid_ppl: f64,
    lr: f64,
    averaging: bool,
    best: bool,
}

impl Trainer {
    /// Scores the validation text and lets the state see it. Returns `None` if the observer says stop; the state is then as
    /// before.
    pub(super) fn validate(&mut self, observer: &mut dyn TrainObserver) -> Result<Option<Validation>> {
        let epoch = self.state.epoch + 1;
        let pass = self.pass.as_ref().expect("a pass is under way");
        let (done, steps) = (pass.step, pass.schedule.steps().len());
        let step = (!pass.is_done()).then_some(done);
        // The sums themselves stay on the device, so intervals do not depend on validations.
        let Some(unread) = pass.meter.peek() else {
            return Err(Error::NonFiniteLoss { epoch, step: done, steps });
        };
        let mut trained = pass.whole;
        trained.add(unread.sum);

        let began = Instant::now();
        let weights = self.evaluated();
        self.check_weights(&weights)?;
        let evaluated = mean_nll_unless(&self.ranks, &weights, &self.valid, &mut || observer.stop())?;
        if let Some(pass) = &mut self.pass {
            pass.validation_seconds += began.elapsed().as_secs_f64();
        }
        self.agree_on_time()?;
        let Some(nll) = evaluated else { return Ok(None) };
        if !nll.exp().is_finite() {
            return Err(Error::NonFinitePerplexity { what: "validation", epoch });
        }
        let validation = Validation {
            epoch,
            step,
            train_ppl: trained.mean().exp(),
            valid_ppl: nll.exp(),
            lr: learning_rate(&self.config, &self.state),
            averaging: self.state.averaging,
            best: self.state.best.is_none_or(|best| nll < best.nll),
        };
        if validation.best {
            self.state.best = Some(Best { epoch, step, nll, train_nll: Some(trained.mean()) });
            self.best = Some(weights);
            self.state.unimproved = 0;
        } else {
            self.state.unimproved += 1;
            if let Some(LrDecay { when: DecayWhen::Plateau, .. }) = self.config.lr_decay {
                self.state.decays += 1;
            }
        }
        self.follow_rule(nll, &validation.place(), observer);
        if let Some(pass) = &mut self.pass {
            pass.validated = done;
        }
        Ok(Some(validation))
    }

    /// Begins averaging or ends finetuning, if the loss asks for it.
    fn follow_rule(&mut self, nll: f64, place: &str, observer: &mut dyn TrainObserver) {
        if self.config.average_from_start {
            if self.state.rule.observe(nll) {
                self.state.ended = true;
                observer.on_message(&format!("finetuning ends after {place}"));
            }
        } else if !self.state.averaging && self.state.rule.observe(nll) {
            self.state.averaging = true;
            self.optimiser.start_averaging();
            observer.on_message(&format!("averaging begins after {place}"));
        }
    }

    /// Reports a validation and saves what must be saved of it. At an epoch's end, the next epoch is up.
    pub(super) fn record(
        &mut self,
        validation: &Validation,
        run: Option<&RunFolder>,
        observer: &mut dyn TrainObserver,
    ) -> Result<()> {
        match validation.step {
            None => {
                let metrics = self.end_epoch(validation);
                self.keep(&to_line(&metrics), validation.best, true, run)?;
                observer.on_epoch(&metrics, self.share());
            }
            Some(step) => {
                let metrics = self.inside_epoch(validation, step);
                // A run that is over is not trained again from its last checkpoint on.
                let over = self.end().is_some();
                self.keep(&to_line(&metrics), validation.best, over, run)?;
                observer.on_validation(&metrics, self.share());
            }
        }
        let place = validation.place();
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

    fn end_epoch(&mut self, validation: &Validation) -> EpochMetrics {
        let pass = self.pass.take().expect("the pass is done");
        let seconds = pass.seconds();
        self.state.epoch = validation.epoch;
        self.state.seconds += seconds;
        self.state.tokens += pass.whole.tokens;
        let Validation { epoch, train_ppl, valid_ppl, lr, averaging, best, .. } = *validation;
        let tokens_per_s = self.train.predictions() as f64 / pass.training_seconds();
        EpochMetrics { epoch, seconds, tokens_per_s, train_ppl, valid_ppl, lr, averaging, best }
    }

    fn inside_epoch(&self, validation: &Validation, step: usize) -> ValidationMetrics {
        let pass = self.pass.as_ref().expect("a pass is under way");
        let (steps, seconds) = (pass.schedule.steps().len(), pass.seconds());
        let Validation { epoch, train_ppl, valid_ppl, lr, averaging, best, .. } = *validation;
        ValidationMetrics { epoch, step, steps, seconds, train_ppl, valid_ppl, lr, averaging, best }
    }

    /// Adds a line to the metrics; the checkpoint, if there is to be one, comes first, and the best model after it.
    fn keep(&mut self, line: &str, best: bool, save: bool, run: Option<&RunFolder>) -> Result<()> {
        self.metrics.push_str(line);
        if self.agreed.saves && (best || save) {
            self.save(run)?;
        }
        let Some(run) = run else { return Ok(()) };
        if best {
            self.save_best(run)?;
        }
        run.append_metrics(line)
    }
}

impl Validation {
    /// Where it was, in words.
    fn place(&self) -> String {
        match self.step {
            None => format!("epoch {}", self.epoch),
            Some(step) => format!("step {step} of epoch {}", self.epoch),
        }
    }
}
