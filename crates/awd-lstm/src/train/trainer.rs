//! The training loop.

mod agreed;
mod among;
mod end;
mod save;
mod state;
mod validation;

use std::time::{Duration, Instant};

use burn::module::Module;
use burn::tensor::Device;
use serde::Serialize;

use super::evaluate::{mean_nll_among, mean_nll_unless};
use super::observer::{EndReason, FinalMetrics, Interval, StepMetrics, TrainObserver};
use super::pass::{LOG_INTERVAL, Pass};
use super::run::RunFolder;
use super::step::{own_gradients, update};
use crate::config::{ModelConfig, TrainConfig};
use crate::data::{Batches, Schedule};
use crate::model::LanguageModel;
use runs::data::Corpus;
use runs::error::{Error, Result};
use runs::load_weights;
use runs::mix_seed;
use runs::optim::{NonMonotone, NtAsgd, NtAsgdConfig};
use runs::ranks::Ranks;

use self::agreed::Agreed;
pub(super) use self::end::{Reached, end_of};
use self::end::{is_time_over, learning_rate};
pub(super) use self::save::saved_state;
pub use self::state::{Best, TrainerState};

/// Approximate work of evaluating a token over that of training with it: in several columns, and in a single one.
const EVALUATION_COST: f64 = 0.4;
const ONE_COLUMN_COST: f64 = 0.55;

/// How [`Trainer::fit`] ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Fitted {
    /// Training is over, and the best model was tested if it was to be.
    Finished(FinalMetrics),
    /// The observer asked to stop. Everything was saved, if there is a run folder.
    Stopped,
}

/// Trains a language model as AWD-LSTM does (Merity et al., arXiv 1708.02182): truncated backpropagation with a
/// carried hidden state, activation regularisation, clipping to the global norm, and NT-ASGD.
///
/// Every random number depends on the seed, the epoch and the step alone. So training that was stopped between any two
/// steps, saved and [restored](Trainer::restore) continues as if it had not been stopped, on the CPU to the same bits.
pub struct Trainer {
    model_config: ModelConfig,
    config: TrainConfig,
    /// With autodiff.
    device: Device,
    train: Batches,
    valid: Batches,
    test: Batches,
    /// `None` only while an optimiser step has it.
    model: Option<LanguageModel>,
    optimiser: NtAsgd,
    state: TrainerState,
    /// The epoch under way.
    pass: Option<Pass>,
    best: Option<LanguageModel>,
    /// The lines of `metrics.jsonl`.
    metrics: String,
    checkpoint_every: Option<Duration>,
    saved: Instant,
    log_every: usize,
    /// Number of validations of an epoch, about.
    validations: usize,
    ranks: Ranks,
    /// What all ranks go by, if there are several.
    agreed: Agreed,
}

impl Trainer {
    /// A trainer before its first step, with a freshly drawn model, which is trained on `device` with autodiff.
    ///
    /// # Errors
    /// Whatever is wrong with the configurations; [`Error::CorpusTooShort`] if a text does not fill its columns.
    pub fn new(model: &ModelConfig, config: &TrainConfig, corpus: &Corpus, device: &Device) -> Result<Self> {
        model.validate()?;
        config.validate()?;
        let vocab = corpus.vocabulary().len();
        if model.vocab != vocab {
            return Err(Error::invalid("vocab", model.vocab, "the number of words of the corpus"));
        }
        // A single last row is no training step, so one step needs three rows.
        let train = Batches::of("the training text", corpus.train(), config.batch, 3)?;
        let valid = Batches::new("the validation text", corpus.valid(), config.eval_batch, 2)?;
        let test = Batches::new("the test text", corpus.test(), config.test_batch, 2)?;

        let device = device.clone().autodiff();
        device.seed(mix_seed(config.seed, 0, 0));
        let fresh = model.try_init(&device)?;
        let mut optimiser = optimiser(config, &fresh);
        if config.average_from_start {
            optimiser.start_averaging();
        }
        let state = TrainerState {
            epoch: 0,
            position: None,
            averaging: config.average_from_start,
            iterates: 0,
            rule: NonMonotone::new(config.nonmono),
            ended: false,
            unimproved: 0,
            decays: 0,
            best: None,
            tokens: 0,
            seconds: 0.0,
            step_bytes: 0,
        };
        let validations = config.validate_every.map_or(1, |every| {
            let TrainConfig { bptt, max_seq_len_delta, seed, .. } = *config;
            let first = Schedule::new(train.rows(), bptt, max_seq_len_delta, seed, 1);
            first.steps().len().div_ceil(every)
        });
        Ok(Self {
            model_config: model.clone(),
            config: config.clone(),
            device,
            train,
            valid,
            test,
            model: Some(fresh),
            optimiser,
            state,
            pass: None,
            best: None,
            metrics: String::new(),
            checkpoint_every: None,
            saved: Instant::now(),
            log_every: LOG_INTERVAL,
            validations,
            ranks: Ranks::alone(),
            agreed: Agreed::default(),
        })
    }

    /// Also saves the run within an epoch, whenever this much time has passed since it was saved last.
    pub fn with_checkpoint_every(mut self, interval: Duration) -> Self {
        self.checkpoint_every = Some(interval);
        self
    }

    /// Reports an [`Interval`] every so many steps, and adds it to the run's `steps.jsonl`. More often than every
    /// [`LOG_INTERVAL`], a GPU waits for it.
    ///
    /// Of a run that is resumed with another number, training perplexities may differ by rounding; weights do not.
    ///
    /// # Panics
    /// If `steps` is 0.
    pub fn with_log_every(mut self, steps: usize) -> Self {
        assert!(steps > 0, "with_log_every: steps is 0, but must be at least 1");
        self.log_every = steps;
        self
    }

    /// Starts from saved weights, those of a run's best model, instead of random ones. The trainer must be before its first step.
    ///
    /// The weights are evaluated, and are the best model until a validation finds a better one.
    ///
    /// # Errors
    /// What [`load_weights`] says; [`Error::NonFinitePerplexity`].
    ///
    /// # Panics
    /// If training has begun.
    pub fn start_from(&mut self, weights: &std::path::Path) -> Result<()> {
        assert!(self.state.epoch == 0 && self.pass.is_none(), "start_from: training has begun");
        let model = self.ranks.all_good(load_weights(self.model().clone(), weights))?;
        let valid = model.valid();
        let nll = mean_nll_among(&self.ranks, &valid, &self.valid)?;
        if !nll.exp().is_finite() {
            return Err(Error::NonFinitePerplexity { what: "validation", epoch: 0 });
        }
        let best = Best { epoch: 0, step: None, nll, train_nll: None };
        (self.model, self.best, self.state.best) = (Some(model), Some(valid), Some(best));
        Ok(())
    }

    /// The model under training.
    pub fn model(&self) -> &LanguageModel {
        self.model.as_ref().expect("only an optimiser step takes the model")
    }

    /// The state besides weights and averages.
    pub fn state(&self) -> &TrainerState {
        &self.state
    }

    /// The model with the lowest validation loss so far, on the plain device; `None` before the first validation.
    pub fn best(&self) -> Option<&LanguageModel> {
        self.best.as_ref()
    }

    /// Trains to the last epoch and tests the best model. With a run folder, each epoch is saved to it, and each validation
    /// inside of an epoch that makes a new best model.
    ///
    /// Training ends earlier by the configuration's `patience` or `max_minutes`, and finetuning, that is training with
    /// `average_from_start`, if its validation loss meets the non-monotone criterion. An [`EndReason`] says which it was.
    ///
    /// # Errors
    /// [`Error::NonFiniteLoss`] or [`Error::NonFinitePerplexity`], which leave the last checkpoint as it is;
    /// [`Error::Io`] if the run folder cannot be written.
    ///
    /// # Panics
    /// If this process does not hold the run's lock: see [`RunFolder::is_locked`].
    ///
    /// # Several ranks
    /// Only rank 0 is given the run folder. Where an error does not say that it [is everywhere](Error::is_everywhere), the other
    /// ranks wait for this one: [abort](Ranks::abort).
    pub fn fit(&mut self, run: Option<&RunFolder>, observer: &mut dyn TrainObserver) -> Result<Fitted> {
        assert!(run.is_none_or(RunFolder::is_locked), "fit: the run folder was opened to read it only");
        self.agreed = Agreed::new(self.ranks.first_says(run.is_some())?);
        if let (Some(run), Some(Best { epoch: 0, .. })) = (run, self.state.best) {
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
                if self.agreed.saves {
                    self.save(run)?;
                }
                return Ok(Fitted::Stopped);
            }
        };
        let Some(metrics) = self.finish(ended, observer)? else { return Ok(Fitted::Stopped) };
        if let Some(run) = run {
            let line = to_line(&metrics);
            run.append_metrics(&line)?;
        }
        Ok(Fitted::Finished(metrics))
    }

    /// Trains up to the next validation, and validates. Returns `false` if the observer said stop.
    fn advance(&mut self, run: Option<&RunFolder>, observer: &mut dyn TrainObserver) -> Result<bool> {
        if !self.pass(run, observer)? {
            return Ok(false);
        }
        let Some(validation) = self.validate(observer)? else { return Ok(false) };
        self.record(&validation, run, observer)?;
        Ok(true)
    }

    /// How far the epoch under way is.
    fn reached(&self) -> Option<Reached> {
        let of =
            |pass: &Pass| Reached { step: pass.step, validated: pass.validated, seconds: pass.seconds() };
        self.pass.as_ref().map(of)
    }

    fn end(&self) -> Option<EndReason> {
        end_of(&self.config, &self.state, self.reached())
    }

    /// The steps of the epoch up to its next validation. Returns `false` if the observer said stop before it.
    fn pass(&mut self, run: Option<&RunFolder>, observer: &mut dyn TrainObserver) -> Result<bool> {
        if self.pass.is_none() {
            self.pass = Some(self.new_pass());
        }
        while !self.is_validation_due() {
            if self.is_stopped(observer) {
                return Ok(false);
            }
            if let Some(interval) = self.step(observer)? {
                if let Some(run) = run {
                    let line = to_line(&StepMetrics::from(&interval));
                    run.append_step(&line)?;
                    self.state.step_bytes += line.len() as u64;
                }
                observer.on_interval(&interval);
            }
            if self.is_save_due() {
                self.save(run)?;
            }
        }
        Ok(true)
    }

    /// Whether the epoch under way is done, or is to be validated where it is.
    fn is_validation_due(&self) -> bool {
        let pass = self.pass.as_ref().expect("a pass is under way");
        if pass.is_done() || pass.step == pass.validated {
            return pass.is_done();
        }
        self.config.validate_every.is_some_and(|every| pass.step.is_multiple_of(every))
            || is_time_over(&self.config, &self.state, self.reached())
    }

    fn new_pass(&self) -> Pass {
        let TrainConfig { batch, bptt, max_seq_len_delta, seed, .. } = self.config;
        let schedule = Schedule::new(self.train.rows(), bptt, max_seq_len_delta, seed, self.state.epoch + 1);
        let own = self.ranks.part(batch);
        Pass::new(schedule, self.model().zero_state(own.len()))
    }

    /// One step of the pass. Returns what it was since the last read, if it is time for one.
    fn step(&mut self, observer: &mut dyn TrainObserver) -> Result<Option<Interval>> {
        let TrainConfig { batch, seed, epochs, clip, .. } = self.config;
        let epoch = self.state.epoch + 1;
        let lr = learning_rate(&self.config, &self.state);
        let pass = self.pass.as_mut().expect("a pass is under way");
        let step = pass.schedule.steps()[pass.step];
        let (done, steps) = (pass.step + 1, pass.schedule.steps().len());
        self.device.seed(mix_seed(seed, epoch as u64, done as u64));
        let window = self.train.window(step.start, step.length, &self.device);
        let model = self.model.take().expect("only an optimiser step takes the model");
        let of_priors = if model.head.context.has_priors() { self.config.prior_cv } else { 0.0 };
        let lr = lr * step.lr_scale;
        let hidden = pass.hidden.clone();
        let own = own_gradients(&model, window, hidden, &self.config, &self.ranks)?;
        let (stepped, grads) = self.add_up(&model, own, observer)?;
        let (model, stepped) = update(model, &mut self.optimiser, stepped, grads, &self.config, lr);
        self.model = Some(model);
        let pass = self.pass.as_mut().expect("a pass is under way");
        pass.meter.add(&stepped, step.length * batch, clip, of_priors);
        pass.hidden = stepped.state;
        pass.step = done;
        self.state.iterates += usize::from(self.state.averaging);
        if !done.is_multiple_of(self.log_every) && done != steps {
            return Ok(None);
        }
        let Some(reading) = pass.meter.read() else {
            return Err(Error::NonFiniteLoss { epoch, step: done, steps });
        };
        pass.whole.add(reading.sum);
        let nll = reading.sum.mean();
        let (tokens, seconds) = (self.state.tokens + pass.whole.tokens, self.state.seconds + pass.seconds());
        let tokens_per_s = pass.whole.tokens as f64 / pass.training_seconds();
        Ok(Some(Interval {
            epoch,
            epochs,
            step: done,
            steps,
            tokens,
            seconds,
            tokens_per_s,
            lr,
            nll,
            ppl: nll.exp(),
            gradient_norm: reading.gradient_norm,
            clipped: reading.clipped,
            latent_share: reading.latent_share,
            prior_cv: reading.prior_cv,
            ar: reading.ar,
            tar: reading.tar,
            averaging: self.state.averaging,
            share: self.share(),
            waiting: self.agreed.read_waiting(),
        }))
    }

    /// Share of the run's work that is done, from 0 to 1; or of its time, if it is limited and that is more.
    fn share(&self) -> f64 {
        let [train, valid, test] =
            [&self.train, &self.valid, &self.test].map(|text| text.predictions() as f64);
        let cost = |columns: usize| if columns == 1 { ONE_COLUMN_COST } else { EVALUATION_COST };
        let validation = cost(self.config.eval_batch) * valid;
        let epoch = train + validation * self.validations as f64;
        let last = if self.config.test { cost(self.config.test_batch) * test } else { 0.0 };
        let of_pass = self.pass.as_ref().map_or(0.0, |pass| {
            // The epoch's last validation is part of it once it is done, and then there is no pass.
            let validations = self.config.validate_every.map_or(0, |every| pass.validated / every);
            let validations = validations.min(self.validations - 1);
            train * pass.step as f64 / pass.schedule.steps().len() as f64 + validation * validations as f64
        });
        let done = self.state.epoch as f64 * epoch + of_pass;
        let of_work = (done / (self.config.epochs as f64 * epoch + last)).min(1.0);
        let seconds = self.state.seconds + self.pass.as_ref().map_or(0.0, Pass::seconds);
        let of_time = self.config.max_minutes.map_or(0.0, |minutes| (seconds / (minutes * 60.0)).min(1.0));
        of_work.max(of_time)
    }

    /// The weights that are evaluated and kept, on the plain device: averaged once averaging has begun.
    fn evaluated(&self) -> LanguageModel {
        if self.state.averaging {
            self.optimiser.averaged(self.model()).valid()
        } else {
            self.model().valid()
        }
    }

    /// Tests the best model, if it is to be tested. Returns `None` if the observer says stop.
    fn finish(&self, ended: EndReason, observer: &mut dyn TrainObserver) -> Result<Option<FinalMetrics>> {
        let (Some(best), Some(weights)) = (self.state.best, &self.best) else {
            return Err(Error::invalid("epochs", self.config.epochs, "at least 1"));
        };
        let seconds = self.state.seconds + self.pass.as_ref().map_or(0.0, Pass::seconds);
        let mut test_ppl = None;
        if self.config.test {
            let evaluated = mean_nll_unless(&self.ranks, weights, &self.test, &mut || observer.stop())?;
            let Some(test_nll) = evaluated else { return Ok(None) };
            if !test_nll.exp().is_finite() {
                return Err(Error::NonFinitePerplexity { what: "test", epoch: best.epoch });
            }
            test_ppl = Some(test_nll.exp());
        }
        Ok(Some(FinalMetrics {
            best_epoch: best.epoch,
            best_step: best.step,
            seconds,
            train_ppl: best.train_nll.map(f64::exp),
            valid_ppl: best.nll.exp(),
            test_ppl,
            ended: Some(ended),
        }))
    }
}

/// The optimiser of `model` before its first step.
fn optimiser(config: &TrainConfig, model: &LanguageModel) -> NtAsgd {
    let plain = NtAsgdConfig::new().with_weight_decay(config.weight_decay).init();
    plain.with_factor(&model.head.context, config.latent_lr)
}

/// A line of `metrics.jsonl` or `steps.jsonl`.
fn to_line(metrics: &impl Serialize) -> String {
    let mut line = serde_json::to_string(metrics).expect("metrics are plain numbers");
    line.push('\n');
    line
}

#[cfg(all(test, feature = "flex"))]
mod tests;
