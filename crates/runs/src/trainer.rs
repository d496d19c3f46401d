//! The training loop.

mod meter;
mod save;
#[cfg(all(test, feature = "flex"))]
mod tests;
mod validation;

use std::path::Path;
use std::time::{Duration, Instant};

use burn::module::Module;
use serde::Serialize;

use crate::error::{Error, Result};
use crate::folder::{Folder, StateOf};
use crate::metrics::{EndReason, FinalMetrics, Score, StepMetrics};
use crate::observer::TrainObserver;
use crate::peers::Peers;
use crate::ranks::Grid;
use crate::seed::mix_seed;
use crate::settings::{Common, Procedure, end_of, is_time_over};
use crate::state::{Best, Position};
use crate::task::{Split, Task, Work};

use self::meter::Meter;

/// Number of steps between two reads of the loss, unless a trainer says otherwise. A read waits for the device; nothing else in a
/// step does.
pub const LOG_INTERVAL: usize = 20;

/// How [`Trainer::fit`] ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Fitted {
    /// Training is over, and the best model was tested if it was to be.
    Finished(FinalMetrics),
    /// The observer asked to stop. Everything was saved, if there is a run folder.
    Stopped,
}

/// Trains a [`Task`]: epochs of steps, with validations at their ends and inside of them, the best model kept, and checkpoints.
///
/// Every random number depends on the seed, the epoch and the step alone. So training that was stopped between any two
/// steps, saved and [restored](Trainer::restore) continues as if it had not been stopped, on the CPU to the same bits.
pub struct Trainer<T: Task> {
    task: T,
    /// With the position in the epoch under way.
    state: StateOf<T::Settings>,
    meter: Meter,
    clock: Clock,
    best: Option<T::Model>,
    /// The lines of `metrics.jsonl`.
    metrics: String,
    checkpoint_every: Option<Duration>,
    saved: Instant,
    log_every: usize,
    peers: Peers,
}

/// The time since a moment, after some that passed before.
struct Clock {
    before: f64,
    since: Instant,
}

impl Clock {
    fn new(before: f64) -> Self {
        Self { before, since: Instant::now() }
    }

    fn seconds(&self) -> f64 {
        self.before + self.since.elapsed().as_secs_f64()
    }
}

impl<T: Task> Trainer<T> {
    /// A trainer before its first step.
    pub fn new(task: T) -> Self {
        Self {
            state: task.fresh_state(),
            task,
            meter: Meter::default(),
            clock: Clock::new(0.0),
            best: None,
            metrics: String::new(),
            checkpoint_every: None,
            saved: Instant::now(),
            log_every: LOG_INTERVAL,
            peers: Peers::default(),
        }
    }

    /// Also saves the run within an epoch, whenever this much time has passed since it was saved last.
    pub fn with_checkpoint_every(mut self, interval: Duration) -> Self {
        self.checkpoint_every = Some(interval);
        self
    }

    /// Reports [`StepMetrics`] every so many steps, and adds them to the run's `steps.jsonl`. More often than every
    /// [`LOG_INTERVAL`], a GPU waits for it.
    ///
    /// # Panics
    /// If `steps` is 0.
    pub fn with_log_every(mut self, steps: usize) -> Self {
        assert!(steps > 0, "with_log_every: steps is 0, but must be at least 1");
        self.log_every = steps;
        self
    }

    /// Shares the work with other processes, if the task can: its steps, and those of the held-out texts. Of ranks that share a
    /// vocabulary, the task [has](Task::shards) the rows of this one.
    ///
    /// All ranks have the same configurations and the same text, and read the same runs. Their weights stay the same to the bit, which
    /// is checked at every validation.
    ///
    /// # Errors
    /// [`Error::TooManyRanks`] if there are more groups than the task [can take](Task::max_ranks).
    pub fn with_grid(mut self, grid: &Grid) -> Result<Self> {
        let (groups, batch) = (grid.batch.size(), self.task.max_ranks());
        if groups > batch {
            let ranks = grid.all.size();
            return Err(Error::TooManyRanks { ranks, width: ranks / groups, batch });
        }
        self.peers = Peers::new(grid.clone());
        Ok(self)
    }

    /// Starts from saved weights, those of a run's best model, instead of random ones. The trainer must be before its first step.
    ///
    /// The weights are evaluated, and are the best model until a validation finds a better one.
    ///
    /// # Errors
    /// What [`load_weights`](crate::load_weights) says; [`Error::NonFinitePerplexity`]; [`Error::RankDiffers`] if a rank has read other
    /// weights.
    ///
    /// # Panics
    /// If training has begun.
    pub fn start_from(&mut self, weights: &Path) -> Result<()> {
        let model = self.task.shards().load(self.task.model().clone(), weights);
        let model = self.peers.grid.all.all_good(model)?;
        self.start_with(model)
    }

    /// The same with a model in hand, which all ranks have.
    ///
    /// # Errors
    /// [`Error::NonFinitePerplexity`]; [`Error::RankDiffers`] if a rank has other weights.
    ///
    /// # Panics
    /// If training has begun.
    pub fn start_with(&mut self, model: T::Model) -> Result<()> {
        assert!(!self.state.has_begun(), "start_with: training has begun");
        let valid = model.valid();
        // A machine may have an older copy of the run that they are from.
        self.check_weights("weights", &valid)?;
        let score = self.evaluate(&valid, Split::Valid, || false)?;
        let nll = score.expect("it is not asked to stop").mean();
        if !nll.exp().is_finite() {
            return Err(Error::NonFinitePerplexity { what: "validation", epoch: 0, step: None });
        }
        self.task.set_model(model);
        self.best = Some(valid);
        self.state.best = Some(Best { epoch: 0, step: None, nll, train_nll: None });
        Ok(())
    }

    /// The model under training.
    pub fn model(&self) -> &T::Model {
        self.task.model()
    }

    /// The task.
    pub fn task(&self) -> &T {
        &self.task
    }

    /// The state besides tensors.
    pub fn state(&self) -> &StateOf<T::Settings> {
        &self.state
    }

    /// The model with the lowest validation loss so far, on the plain device; `None` before the first validation.
    pub fn best(&self) -> Option<&T::Model> {
        self.best.as_ref()
    }

    /// Trains to the last epoch and tests the best model. With a run folder, each epoch is saved to it, and each validation
    /// inside of an epoch that makes a new best model.
    ///
    /// Training ends earlier by the procedure's [rule](Procedure::rule) or its time. An [`EndReason`] says which it was.
    ///
    /// # Errors
    /// [`Error::NonFiniteLoss`] or [`Error::NonFinitePerplexity`], which leave the last checkpoint as it is and are noted in the
    /// run's folder; [`Error::Io`] if that cannot be written.
    ///
    /// # Panics
    /// If this process does not hold the run's lock: see [`Folder::is_locked`].
    ///
    /// # Several ranks
    /// Only rank 0 is given the run folder. Where an error does not say that it [is everywhere](Error::is_everywhere), the other
    /// ranks wait for this one: [abort](crate::ranks::Ranks::abort).
    pub fn fit(
        &mut self,
        run: Option<&Folder<T::Settings>>,
        observer: &mut dyn TrainObserver,
    ) -> Result<Fitted> {
        assert!(run.is_none_or(Folder::is_locked), "fit: the run folder was opened to read it only");
        if let Some(run) = run {
            run.forget_failure()?;
        }
        let fitted = self.fit_on(run, observer);
        if let (Some(run), Err(error @ (Error::NonFiniteLoss { .. } | Error::NonFinitePerplexity { .. }))) =
            (run, &fitted)
        {
            run.note_failure(&error.to_string())?;
        }
        fitted
    }

    fn fit_on(
        &mut self,
        run: Option<&Folder<T::Settings>>,
        observer: &mut dyn TrainObserver,
    ) -> Result<Fitted> {
        self.peers.saves = self.peers.grid.all.first_says(run.is_some())?;
        self.peers.stop = false;
        // The time since the call before, or since the run was read, is not the training's.
        if let Some(position) = &self.state.position {
            self.clock = Clock::new(position.seconds);
        }
        if let (true, Some(Best { epoch: 0, .. })) = (self.peers.saves, self.state.best) {
            // The model that training started from.
            self.save_best(run)?;
        }
        observer.on_start(self.share());
        self.saved = Instant::now();
        let ended = loop {
            if let Some(ended) = self.end() {
                break ended;
            }
            if !self.advance(run, observer)? {
                if self.peers.saves {
                    self.save(run)?;
                }
                return Ok(Fitted::Stopped);
            }
        };
        let Some(metrics) = self.finish(ended, observer)? else { return Ok(Fitted::Stopped) };
        if let Some(run) = run {
            run.append_metrics(&to_line(&metrics))?;
        }
        Ok(Fitted::Finished(metrics))
    }

    /// Trains up to the next validation, and validates. Returns `false` if the observer said stop.
    fn advance(
        &mut self,
        run: Option<&Folder<T::Settings>>,
        observer: &mut dyn TrainObserver,
    ) -> Result<bool> {
        if !self.pass(run, observer)? {
            return Ok(false);
        }
        let Some((metrics, valid)) = self.validate(observer)? else { return Ok(false) };
        self.record(&metrics, &valid, run, observer)?;
        Ok(true)
    }

    fn common(&self) -> Common {
        self.task.setup().train.common()
    }

    fn end(&self) -> Option<EndReason> {
        end_of(&self.task.setup().train, &self.state)
    }

    /// The epoch under way, counted from 1, and the number of its steps.
    fn epoch(&self) -> (usize, usize) {
        let epoch = self.state.epoch + 1;
        (epoch, self.task.steps(epoch))
    }

    fn position(&mut self) -> &mut Position {
        self.state.position.get_or_insert_default()
    }

    /// The steps of the epoch up to its next validation. Returns `false` if the observer said stop before it.
    fn pass(&mut self, run: Option<&Folder<T::Settings>>, observer: &mut dyn TrainObserver) -> Result<bool> {
        if self.state.position.is_none() {
            self.begin(Position::default());
        }
        while !self.is_validation_due() {
            // Several ranks said so in the exchange of the step before.
            let several = self.peers.grid.all.are_several();
            if if several { self.peers.stop } else { observer.stop() } {
                // By rank 0's clock.
                let seconds = self.peers.grid.all.gather_equal(&[self.clock.seconds()])?[0];
                self.position().seconds = seconds;
                return Ok(false);
            }
            self.step(observer)?;
            let (_, steps) = self.epoch();
            let step = self.position().step;
            if step.is_multiple_of(self.log_every) || step == steps {
                let metrics = self.report()?;
                if let Some(run) = run {
                    let line = to_line(&metrics);
                    run.append_step(&line)?;
                    self.state.step_bytes += line.len() as u64;
                }
                observer.on_interval(&metrics);
            }
            if if several { self.peers.save } else { self.is_save_due() } {
                self.save(run)?;
            }
        }
        Ok(true)
    }

    /// Begins an epoch, or goes on with it.
    fn begin(&mut self, position: Position) {
        self.clock = Clock::new(position.seconds);
        self.meter = Meter::default();
        self.state.position = Some(position);
        self.task.begin(self.state.epoch + 1, self.peers.ranks());
    }

    /// Whether the epoch under way is done, or is to be validated where it is.
    fn is_validation_due(&self) -> bool {
        let Some(position) = &self.state.position else { return false };
        let (_, steps) = self.epoch();
        let step = position.step;
        if step == steps || step == position.validated {
            return step == steps;
        }
        self.validates_after(step) || is_time_over(&self.task.setup().train, &self.state)
    }

    /// Whether this step of the epoch is followed by a validation, however much time the run has.
    fn validates_after(&self, step: usize) -> bool {
        let every = self.common().validate_every;
        step == self.epoch().1 || every.is_some_and(|every| step.is_multiple_of(every))
    }

    fn is_save_due(&self) -> bool {
        self.peers.saves && self.checkpoint_every.is_some_and(|every| self.saved.elapsed() >= every)
    }

    /// One step of the epoch.
    fn step(&mut self, observer: &mut dyn TrainObserver) -> Result<()> {
        let (epoch, _) = self.epoch();
        let done = self.position().step;
        let seed = mix_seed(self.common().seed, epoch as u64, done as u64 + 1);
        self.task.setup().device.seed(seed);
        let several = self.peers.grid.all.are_several();
        if several {
            self.peers.stop = observer.stop();
            (self.peers.save, self.peers.seconds) = (self.is_save_due(), self.clock.seconds());
        }
        let stepped = self.task.step(done, &mut self.state, &mut self.peers)?;
        self.meter.add(stepped);
        let seconds = if several { self.peers.seconds } else { self.clock.seconds() };
        let position = self.position();
        (position.step, position.seconds) = (done + 1, seconds);
        if self.meter.is_full() { self.read() } else { Ok(()) }
    }

    /// Reads the losses that are on the device.
    fn read(&mut self) -> Result<()> {
        let clip = self.common().clip;
        let Some(sums) = self.meter.read(clip) else {
            return Err(self.diverged("loss is"));
        };
        let position = self.position();
        for sum in &sums {
            position.whole.add(sum);
            position.interval.add(sum);
        }
        Ok(())
    }

    /// The error of a loss or of weights that are not finite.
    fn diverged(&self, what: &'static str) -> Error {
        let Some(position) = &self.state.position else {
            // At the end of an epoch.
            let (epoch, steps) = (self.state.epoch, self.task.steps(self.state.epoch));
            return Error::NonFiniteLoss { what, epoch, step: steps, steps };
        };
        let (epoch, steps) = self.epoch();
        Error::NonFiniteLoss { what, epoch, step: position.step, steps }
    }

    /// What was since the last line.
    fn report(&mut self) -> Result<StepMetrics> {
        self.read()?;
        let ((epoch, steps), share) = (self.epoch(), self.share());
        let lr = self.meter.lr;
        let position = self.position();
        let sum = std::mem::take(&mut position.interval);
        let Position { step, whole, validation_seconds, .. } = position.clone();
        // Rank 0's clock, on which several ranks agree, was read before the step.
        let seconds = self.clock.seconds();
        let score = sum.score();
        let mean = |sum_of: Option<f64>| sum_of.map(|sum_of| sum_of / sum.steps as f64);
        Ok(StepMetrics {
            epoch,
            epochs: self.common().epochs,
            step,
            steps,
            tokens: self.state.tokens + whole.tokens,
            seconds: self.state.seconds + seconds,
            lr,
            nll: score.mean(),
            ppl: score.perplexity(),
            gradient_norm: sum.gradient_norm / sum.steps as f64,
            clipped: sum.clipped as f64 / sum.steps as f64,
            latent_share: mean(sum.latent_share),
            prior_cv: mean(sum.prior_cv),
            ar: mean(sum.ar),
            tar: mean(sum.tar),
            tokens_per_s: whole.tokens as f64 / (seconds - validation_seconds),
            averaging: self.task.is_averaging(&self.state),
            share,
            waiting: self.peers.read_waiting(),
        })
    }

    /// Share of the run's work that is done, from 0 to 1; or of its time, if it is limited and that is more.
    fn share(&self) -> f64 {
        let Common { epochs, validate_every, max_minutes, test: tests, .. } = self.common();
        let Work { train, valid, test } = self.task.work();
        let of_epoch = |epoch| self.task.steps(epoch);
        let validations = validate_every.map_or(1, |every| of_epoch(1).div_ceil(every));
        let epoch = train + valid * validations as f64;
        let last = if tests { test } else { 0.0 };
        let of_pass = self.state.position.as_ref().map_or(0.0, |position| {
            // The epoch's last validation is part of it once it is done.
            let inside = validate_every.map_or(0, |every| position.validated / every);
            let part = position.step as f64 / of_epoch(self.state.epoch + 1) as f64;
            train * part + valid * inside.min(validations - 1) as f64
        });
        let done = self.state.epoch as f64 * epoch + of_pass;
        let of_work = (done / (epochs as f64 * epoch + last)).min(1.0);
        let seconds = self.state.seconds_in_all();
        let of_time = max_minutes.map_or(0.0, |minutes| (seconds / (minutes * 60.0)).min(1.0));
        of_work.max(of_time)
    }

    /// Tests the best model, if it is to be tested. Returns `None` if the observer says stop.
    fn finish(&self, ended: EndReason, observer: &mut dyn TrainObserver) -> Result<Option<FinalMetrics>> {
        let Common { epochs, test: tests, .. } = self.common();
        let (Some(best), Some(weights)) = (self.state.best, &self.best) else {
            return Err(Error::invalid("epochs", epochs, "at least 1"));
        };
        let position = self.state.position.clone().unwrap_or_default();
        let mut test = None;
        if tests {
            observer.on_test();
            let Some(score) = self.evaluate(weights, Split::Test, || observer.stop())? else {
                return Ok(None);
            };
            if !score.perplexity().is_finite() {
                let Best { epoch, step, .. } = best;
                return Err(Error::NonFinitePerplexity { what: "test", epoch, step });
            }
            test = Some(score);
        }
        let seconds = self.state.seconds_in_all();
        let training = seconds - self.state.validation_seconds - position.validation_seconds;
        Ok(Some(FinalMetrics {
            best_epoch: best.epoch,
            best_step: best.step,
            seconds,
            tokens_per_s: (self.state.tokens + position.whole.tokens) as f64 / training,
            train_ppl: best.train_nll.map(f64::exp),
            valid_ppl: best.nll.exp(),
            test_ppl: test.map(|score| score.perplexity()),
            test_accuracy: test.and_then(|score| score.accuracy()),
            ended,
        }))
    }

    /// Scores a held-out text; `None` if `stop` says so at any rank.
    fn evaluate(
        &self,
        model: &T::Model,
        split: Split,
        mut stop: impl FnMut() -> bool,
    ) -> Result<Option<Score>> {
        let vocabulary = &self.peers.grid.vocabulary;
        let mut agreed = Ok(());
        // Those that share a vocabulary stop at the same chunk.
        let stop = &mut || {
            vocabulary.any_says(stop()).unwrap_or_else(|error| {
                agreed = Err(error);
                true
            })
        };
        let score = self.task.evaluate(model, split, self.peers.ranks(), stop)?;
        agreed.map(|()| score)
    }

    /// Checks that all ranks have the same weights: they have read the same file or made the same updates, unless the memory of one
    /// is broken.
    fn check_weights(&self, what: &str, weights: &T::Model) -> Result<()> {
        self.task.shards().check_same(&self.peers.grid.all, what, weights)
    }
}

/// A line of `metrics.jsonl` or `steps.jsonl`.
fn to_line(metrics: &impl Serialize) -> String {
    let mut line = serde_json::to_string(metrics).expect("metrics are plain numbers");
    line.push('\n');
    line
}
