//! The training loop.

mod save;
#[cfg(all(test, feature = "flex"))]
mod tests;

pub(super) use save::saved_state;

use std::time::{Duration, Instant};

use burn::module::Module;
use burn::optim::ModuleOptimizer;
use burn::tensor::Device;
use runs::mix_seed;
use serde::{Deserialize, Serialize};

use super::evaluate::mean_nll_unless;
use super::observer::{EndReason, EpochMetrics, FinalMetrics, Interval, StepMetrics, TrainObserver};
use super::pass::{LOG_INTERVAL, Pass, Position};
use super::run::RunFolder;
use super::step::step as train_step;
use crate::config::{EarlyStop, ModelConfig, TrainConfig};
use crate::data::{Batch, Corpus, Schedule};
use crate::error::Result;
use crate::model::Seq2Seq;
use runs::optim::{adam, number_parameters};

/// Approximate work of scoring a response token over that of training with it.
const EVALUATION_COST: f64 = 0.35;

/// How [`Trainer::fit`] ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Fitted {
    /// Training is over, and the best model was tested.
    Finished(FinalMetrics),
    /// The observer asked to stop. Everything was saved, if there is a run folder.
    Stopped,
}

/// The state of a trainer besides weights and the optimiser's moments.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainerState {
    /// Number of epochs that are done.
    pub epoch: usize,
    /// Progress of the next epoch, if it was begun.
    pub position: Option<Position>,
    /// The rule that ends training early, with the validation losses that it has seen.
    pub stop: EarlyStop,
    /// The best validation.
    pub best: Option<Best>,
    /// Response tokens of the epochs that are done.
    pub tokens: usize,
    /// Wall-clock time of the epochs that are done, in seconds.
    pub seconds: f64,
    /// The part of it without validation.
    pub training_seconds: f64,
    /// Bytes of `steps.jsonl`.
    pub step_bytes: u64,
}

/// The best validation so far.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Best {
    /// The epoch, counted from 1.
    pub epoch: usize,
    /// The mean validation loss of a token in nats.
    #[serde(with = "runs::exact")]
    pub nll: f64,
    /// The mean training loss of the epoch, in nats.
    #[serde(with = "runs::exact")]
    pub train_nll: f64,
}

/// Trains a model by Adam, on the sum of a response's losses averaged over the responses of a batch, with clipping to the global norm
/// and early stopping (Zhao et al., arXiv 1703.10960).
///
/// Every random number depends on the seed, the epoch and the step alone. So training that was stopped between any two
/// steps, saved and [restored](Trainer::restore) continues as if it had not been stopped, on the CPU to the same bits.
pub struct Trainer<'a> {
    model_config: ModelConfig,
    config: TrainConfig,
    /// With autodiff.
    device: Device,
    corpus: &'a Corpus,
    schedule: Schedule,
    /// `None` only while an optimiser step has it.
    model: Option<Seq2Seq>,
    optimiser: ModuleOptimizer,
    state: TrainerState,
    /// The epoch under way.
    pass: Option<Pass>,
    best: Option<Seq2Seq>,
    /// The lines of `metrics.jsonl`.
    metrics: String,
    checkpoint_every: Option<Duration>,
    saved: Instant,
    log_every: usize,
}

impl<'a> Trainer<'a> {
    /// A trainer before its first step, with a freshly drawn model, which is trained on `device` with autodiff.
    ///
    /// # Errors
    /// [`InvalidSetting`](runs::Error::InvalidSetting) for whatever is wrong with the configurations, or a text without any
    /// response.
    pub fn new(
        model: &ModelConfig,
        config: &TrainConfig,
        corpus: &'a Corpus,
        device: &Device,
    ) -> Result<Self> {
        model.validate()?;
        config.validate()?;
        let vocab = corpus.vocabulary().len();
        let expected = "the number of words of the corpus";
        runs::error::check(model.vocab == vocab, "vocab", model.vocab, expected)?;
        for (name, split) in
            [("pairs of the validation text", corpus.valid()), ("pairs of the test text", corpus.test())]
        {
            runs::error::check(split.num_pairs() > 0, name, 0, "at least 1")?;
        }
        let schedule = Schedule::new(corpus.train(), config.run, config.batch, config.seed)?;
        let device = device.clone().autodiff();
        device.seed(mix_seed(config.seed, 0, 0));
        let fresh = number_parameters(model.try_init(&device)?);
        let state = TrainerState {
            epoch: 0,
            position: None,
            stop: EarlyStop::new(config.stop.clone()),
            best: None,
            tokens: 0,
            seconds: 0.0,
            training_seconds: 0.0,
            step_bytes: 0,
        };
        Ok(Self {
            model_config: model.clone(),
            config: config.clone(),
            device,
            corpus,
            schedule,
            model: Some(fresh),
            optimiser: adam(),
            state,
            pass: None,
            best: None,
            metrics: String::new(),
            checkpoint_every: None,
            saved: Instant::now(),
            log_every: LOG_INTERVAL,
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
    /// # Panics
    /// If `steps` is 0.
    pub fn with_log_every(mut self, steps: usize) -> Self {
        assert!(steps > 0, "with_log_every: steps is 0, but must be at least 1");
        self.log_every = steps;
        self
    }

    /// The model under training.
    pub fn model(&self) -> &Seq2Seq {
        self.model.as_ref().expect("only an optimiser step takes the model")
    }

    /// The state besides weights and moments.
    pub fn state(&self) -> &TrainerState {
        &self.state
    }

    /// The model with the lowest validation loss so far, on the plain device; `None` before the first validation.
    pub fn best(&self) -> Option<&Seq2Seq> {
        self.best.as_ref()
    }

    /// Trains to the last epoch, or until the rule of early stopping ends training, and tests the best model. With a run folder,
    /// each epoch is saved to it.
    ///
    /// # Errors
    /// [`NonFiniteLoss`](runs::Error::NonFiniteLoss) or [`NonFinitePerplexity`](runs::Error::NonFinitePerplexity), which
    /// leave the last checkpoint as it is; [`Io`](runs::Error::Io) if the run folder cannot be written.
    ///
    /// # Panics
    /// If this process does not hold the run's lock: see [`Folder::is_locked`](runs::Folder::is_locked).
    pub fn fit(&mut self, run: Option<&RunFolder>, observer: &mut dyn TrainObserver) -> Result<Fitted> {
        assert!(run.is_none_or(RunFolder::is_locked), "fit: the run folder was opened to read it only");
        observer.on_start(self.share());
        self.saved = Instant::now();
        let ended = loop {
            if let Some(ended) = end_of(&self.config, &self.state) {
                break ended;
            }
            if !(self.train_epoch(run, observer)? && self.validate(run, observer)?) {
                if let Some(run) = run {
                    self.save(run)?;
                }
                return Ok(Fitted::Stopped);
            }
        };
        let Some(metrics) = self.test(ended, observer)? else { return Ok(Fitted::Stopped) };
        if let Some(run) = run {
            run.append_metrics(&to_line(&metrics))?;
        }
        Ok(Fitted::Finished(metrics))
    }

    /// The epoch under way.
    fn pass(&mut self) -> &mut Pass {
        self.pass.get_or_insert_with(|| Pass::new(Position::default()))
    }

    /// The steps of the epoch. Returns `false` if the observer said stop before its end.
    fn train_epoch(&mut self, run: Option<&RunFolder>, observer: &mut dyn TrainObserver) -> Result<bool> {
        while self.pass().step() < self.config.updates {
            if observer.stop() {
                return Ok(false);
            }
            self.step();
            let step = self.pass().step();
            if step.is_multiple_of(self.log_every) || step == self.config.updates {
                let interval = self.report()?;
                if let Some(run) = run {
                    let line = to_line(&StepMetrics::from(&interval));
                    run.append_step(&line)?;
                    self.state.step_bytes += line.len() as u64;
                }
                observer.on_interval(&interval);
            }
            if let (Some(run), Some(every)) = (run, self.checkpoint_every)
                && self.saved.elapsed() >= every
            {
                self.save(run)?;
            }
        }
        Ok(true)
    }

    fn step(&mut self) {
        let TrainConfig { updates, seed, .. } = self.config;
        let (epoch, step) = (self.state.epoch, self.pass().step());
        let pairs = self.schedule.pairs((epoch * updates + step) as u64);
        let batch = Batch::new(self.corpus.train(), &pairs, self.model_config.window);
        self.device.seed(mix_seed(seed, epoch as u64 + 1, step as u64 + 1));
        let model = self.model.take().expect("only an optimiser step takes the model");
        let (model, stepped) = train_step(model, &mut self.optimiser, &batch, &self.config);
        self.model = Some(model);
        self.pass().add(stepped);
    }

    /// Reads what was since the last report.
    fn report(&mut self) -> Result<Interval> {
        self.read()?;
        let (epoch, share) = (self.state.epoch + 1, self.share());
        let TrainConfig { epochs, updates, lr, .. } = self.config;
        let (tokens, seconds) = (self.state.tokens, self.state.seconds);
        let pass = self.pass();
        let (whole, sum) = (pass.whole(), pass.take_interval());
        Ok(Interval {
            epoch,
            epochs,
            step: pass.step(),
            steps: updates,
            tokens: tokens + whole.tokens,
            seconds: seconds + pass.seconds(),
            tokens_per_s: whole.tokens as f64 / pass.seconds(),
            lr,
            nll: sum.mean(),
            ppl: sum.mean().exp(),
            gradient_norm: sum.norm / sum.steps as f64,
            clipped: sum.clipped as f64 / sum.steps as f64,
            share,
        })
    }

    /// Reads the losses that are on the device.
    fn read(&mut self) -> Result<()> {
        let (epoch, steps, clip) = (self.state.epoch + 1, self.config.updates, self.config.clip);
        let pass = self.pass();
        let step = pass.step();
        pass.read(clip).ok_or_else(|| runs::Error::NonFiniteLoss { epoch, step, steps }.into())
    }

    /// Scores the validation text at the end of an epoch, and saves the run. Returns `false` if the observer said stop before.
    fn validate(&mut self, run: Option<&RunFolder>, observer: &mut dyn TrainObserver) -> Result<bool> {
        self.read()?;
        let epoch = self.state.epoch + 1;
        let training_seconds = self.pass().seconds();
        let weights = self.model().valid();
        let nll = mean_nll_unless(&weights, self.corpus.valid(), &mut || observer.stop());
        let Some(nll) = nll else { return Ok(false) };
        if !nll.exp().is_finite() {
            return Err(runs::Error::NonFinitePerplexity { what: "validation", epoch }.into());
        }
        let best = self.state.stop.record(nll);
        let pass = self.pass.take().expect("the pass is done");
        let (whole, seconds) = (pass.whole(), pass.seconds());
        self.state.epoch = epoch;
        self.state.tokens += whole.tokens;
        self.state.seconds += seconds;
        self.state.training_seconds += training_seconds;
        if best {
            self.state.best = Some(Best { epoch, nll, train_nll: whole.mean() });
            self.best = Some(weights);
        }
        let metrics = EpochMetrics {
            epoch,
            seconds,
            tokens_per_s: whole.tokens as f64 / training_seconds,
            train_ppl: whole.mean().exp(),
            valid_ppl: nll.exp(),
            best,
        };
        let line = to_line(&metrics);
        self.metrics.push_str(&line);
        if let Some(run) = run {
            self.save(run)?;
            // After the checkpoint: until then, a crash must leave the old checkpoint's best model.
            if best {
                self.save_best(run)?;
            }
            run.append_metrics(&line)?;
        }
        observer.on_epoch(&metrics, self.share());
        Ok(true)
    }

    /// Scores the test text with the best model. Returns `None` if the observer says stop.
    fn test(&self, ended: EndReason, observer: &mut dyn TrainObserver) -> Result<Option<FinalMetrics>> {
        let (Some(best), Some(weights)) = (self.state.best, &self.best) else {
            // Every validation was finite, so the first one was a best.
            return Err(runs::Error::invalid("epochs", self.config.epochs, "at least 1").into());
        };
        let nll = mean_nll_unless(weights, self.corpus.test(), &mut || observer.stop());
        let Some(nll) = nll else { return Ok(None) };
        if !nll.exp().is_finite() {
            return Err(runs::Error::NonFinitePerplexity { what: "test", epoch: best.epoch }.into());
        }
        Ok(Some(FinalMetrics {
            best_epoch: best.epoch,
            seconds: self.state.seconds,
            tokens_per_s: self.state.tokens as f64 / self.state.training_seconds,
            train_ppl: best.train_nll.exp(),
            valid_ppl: best.nll.exp(),
            test_ppl: nll.exp(),
            ended,
        }))
    }

    /// Share of the run's work that is done, from 0 to 1, if it does not end early.
    fn share(&self) -> f64 {
        let train = self.corpus.train();
        let of_pair = train.response_tokens() as f64 / train.num_pairs() as f64;
        let [valid, test] =
            [self.corpus.valid(), self.corpus.test()].map(|s| EVALUATION_COST * s.response_tokens() as f64);
        let step = self.config.batch as f64 * of_pair;
        let epoch = self.config.updates as f64 * step + valid;
        let of_pass = self.pass.as_ref().map_or(0.0, |pass| pass.step() as f64 * step);
        let done = self.state.epoch as f64 * epoch + of_pass;
        (done / (self.config.epochs as f64 * epoch + test)).min(1.0)
    }
}

/// Why training is over, if it is, by a procedure that may have been [extended](runs::Folder::extend) since the state was
/// saved. It never is inside of an epoch.
pub(super) fn end_of(config: &TrainConfig, state: &TrainerState) -> Option<EndReason> {
    if state.position.is_some() {
        None
    } else if state.epoch >= config.epochs {
        Some(EndReason::Epochs)
    } else {
        state.stop.clone().with_patience(config.stop.patience).is_over().then_some(EndReason::EarlyStop)
    }
}

/// A line of `metrics.jsonl` or `steps.jsonl`.
fn to_line(metrics: &impl Serialize) -> String {
    let mut line = serde_json::to_string(metrics).expect("metrics are plain numbers");
    line.push('\n');
    line
}
