//! The training loop.

mod save;

use std::time::{Duration, Instant};

use burn::module::Module;
use burn::tensor::Device;
use serde::{Deserialize, Serialize};

use super::checkpoint::load_weights;
use super::evaluate::{mean_nll, mean_nll_unless};
use super::observer::{EpochMetrics, FinalMetrics, Interval, TrainObserver};
use super::pass::{LOG_INTERVAL, Pass, Position};
use super::run::RunFolder;
use super::step::step as train_step;
use crate::config::{ModelConfig, TrainConfig};
use crate::data::{Batches, Corpus, Schedule, mix_seed};
use crate::error::{Error, Result};
use crate::model::LanguageModel;
use crate::optim::{NonMonotone, NtAsgd, NtAsgdConfig};

/// Approximate work of evaluating a token over that of training with it: in several columns, and in a single one.
const EVALUATION_COST: f64 = 0.4;
const ONE_COLUMN_COST: f64 = 0.55;

/// The state of a trainer besides weights, averages and carried states.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainerState {
    /// Number of epochs that are done.
    pub epoch: usize,
    /// Progress of the next epoch, if it was begun.
    pub position: Option<Position>,
    /// Whether averaging has begun.
    pub averaging: bool,
    /// Number of iterates in the averages.
    pub iterates: usize,
    /// The rule that starts averaging, or ends finetuning, with the validation losses that it has seen.
    pub rule: NonMonotone,
    /// Whether the rule has ended finetuning.
    pub ended: bool,
    /// The epoch with the lowest validation loss.
    pub best: Option<Best>,
    /// Wall-clock time of the epochs that are done, in seconds.
    pub seconds: f64,
}

/// The best epoch so far.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Best {
    /// The epoch, counted from 1; 0 is the model that finetuning started from.
    pub epoch: usize,
    /// Its mean validation loss in nats.
    #[serde(with = "crate::exact")]
    pub nll: f64,
}

/// How [`Trainer::fit`] ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Fitted {
    /// Training is over and the best model was tested.
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
        let train = corpus.train().batches("the training text", config.batch, 3)?;
        let valid = Batches::new("the validation text", corpus.valid(), config.eval_batch, 2)?;
        let test = Batches::new("the test text", corpus.test(), config.test_batch, 2)?;

        let device = device.clone().autodiff();
        device.seed(mix_seed(config.seed, 0, 0));
        let fresh = model.try_init(&device)?;
        let mut optimiser = NtAsgdConfig::new().with_weight_decay(config.weight_decay).init();
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
            best: None,
            seconds: 0.0,
        };
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
        })
    }

    /// Also saves the run within an epoch, whenever this much time has passed since it was saved last.
    pub fn with_checkpoint_every(mut self, interval: Duration) -> Self {
        self.checkpoint_every = Some(interval);
        self
    }

    /// Starts from saved weights, those of a run's best model, instead of random ones. The trainer must be before its first step.
    ///
    /// The weights are evaluated, and are the best model until an epoch makes a better one.
    ///
    /// # Errors
    /// What [`load_weights`] says; [`Error::NonFinitePerplexity`].
    ///
    /// # Panics
    /// If training has begun.
    pub fn start_from(&mut self, weights: &std::path::Path) -> Result<()> {
        assert!(self.state.epoch == 0 && self.pass.is_none(), "start_from: training has begun");
        let model = load_weights(self.model().clone(), weights)?;
        let valid = model.valid();
        let nll = mean_nll(&valid, &self.valid);
        if !nll.exp().is_finite() {
            return Err(Error::NonFinitePerplexity { what: "validation", epoch: 0 });
        }
        (self.model, self.best, self.state.best) = (Some(model), Some(valid), Some(Best { epoch: 0, nll }));
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

    /// The model with the lowest validation loss so far, on the plain device; `None` before the first epoch.
    pub fn best(&self) -> Option<&LanguageModel> {
        self.best.as_ref()
    }

    /// Trains to the last epoch and tests the best model. With a run folder, each epoch is saved to it.
    ///
    /// Finetuning, that is training with `average_from_start`, ends earlier if its validation loss meets the non-monotone
    /// criterion.
    ///
    /// # Errors
    /// [`Error::NonFiniteLoss`] or [`Error::NonFinitePerplexity`], which leave the last checkpoint as it is;
    /// [`Error::Io`] if the run folder cannot be written.
    ///
    /// # Panics
    /// If this process does not hold the run's lock: see [`RunFolder::is_locked`].
    pub fn fit(&mut self, run: Option<&RunFolder>, observer: &mut dyn TrainObserver) -> Result<Fitted> {
        assert!(run.is_none_or(RunFolder::is_locked), "fit: the run folder was opened to read it only");
        if let (Some(run), Some(Best { epoch: 0, .. })) = (run, self.state.best) {
            // The model that finetuning starts from.
            self.save_best(run)?;
        }
        observer.on_start(self.share());
        self.saved = Instant::now();
        while self.state.epoch < self.config.epochs && !self.state.ended {
            let Some(metrics) = self.epoch(run, observer)? else {
                if let Some(run) = run {
                    self.save(run)?;
                }
                return Ok(Fitted::Stopped);
            };
            let line = self.note(&metrics);
            if let Some(run) = run {
                self.save(run)?;
                if metrics.best {
                    self.save_best(run)?;
                }
                run.append_metrics(&line)?;
            }
            observer.on_epoch(&metrics, self.share());
        }
        let Some(metrics) = self.finish(observer)? else { return Ok(Fitted::Stopped) };
        if let Some(run) = run {
            let line = to_line(&metrics);
            run.append_metrics(&line)?;
        }
        Ok(Fitted::Finished(metrics))
    }

    /// Adds a line to the metrics and returns it.
    fn note(&mut self, metrics: &EpochMetrics) -> String {
        let line = to_line(metrics);
        self.metrics.push_str(&line);
        line
    }

    /// One pass over the training text, or the rest of one, and one over the validation text.
    fn epoch(
        &mut self,
        run: Option<&RunFolder>,
        observer: &mut dyn TrainObserver,
    ) -> Result<Option<EpochMetrics>> {
        let epoch = self.state.epoch + 1;
        if !self.pass(run, observer)? {
            return Ok(None);
        }
        let pass = self.pass.as_ref().expect("the pass is done");
        let (trained, train_nll) = (pass.seconds(), pass.whole.nll / pass.whole.tokens as f64);

        let weights = self.evaluated();
        let evaluated = mean_nll_unless(&weights, &self.valid, &mut || observer.stop());
        let Some(valid_nll) = evaluated else { return Ok(None) };
        if !valid_nll.exp().is_finite() {
            return Err(Error::NonFinitePerplexity { what: "validation", epoch });
        }
        let best = self.state.best.is_none_or(|best| valid_nll < best.nll);
        if best {
            self.state.best = Some(Best { epoch, nll: valid_nll });
            self.best = Some(weights);
        }
        let averaging = self.state.averaging;
        if self.config.average_from_start {
            if self.state.rule.observe(valid_nll) {
                self.state.ended = true;
                observer.on_message(&format!("finetuning ends after epoch {epoch}"));
            }
        } else if !averaging && self.state.rule.observe(valid_nll) {
            self.state.averaging = true;
            self.optimiser.start_averaging();
            observer.on_message(&format!("averaging begins after epoch {epoch}"));
        }
        let seconds = self.pass.take().expect("the pass is done").seconds();
        self.state.epoch = epoch;
        self.state.seconds += seconds;
        Ok(Some(EpochMetrics {
            epoch,
            seconds,
            tokens_per_s: self.train.predictions() as f64 / trained,
            train_ppl: train_nll.exp(),
            valid_ppl: valid_nll.exp(),
            lr: self.config.lr,
            averaging,
            best,
        }))
    }

    /// The remaining steps of the epoch. Returns whether all of them were done, or `false` if the observer said stop.
    fn pass(&mut self, run: Option<&RunFolder>, observer: &mut dyn TrainObserver) -> Result<bool> {
        if self.pass.is_none() {
            self.pass = Some(self.new_pass());
        }
        while self.pass.as_ref().is_some_and(|pass| !pass.is_done()) {
            if observer.stop() {
                return Ok(false);
            }
            if let Some(interval) = self.step()? {
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

    fn new_pass(&self) -> Pass {
        let TrainConfig { batch, bptt, max_seq_len_delta, seed, .. } = self.config;
        let schedule = Schedule::new(self.train.rows(), bptt, max_seq_len_delta, seed, self.state.epoch + 1);
        Pass::new(schedule, self.model().zero_state(batch))
    }

    /// One step of the pass. Returns the losses since the last read, if it is time for one.
    fn step(&mut self) -> Result<Option<Interval>> {
        let TrainConfig { batch, seed, epochs, .. } = self.config;
        let epoch = self.state.epoch + 1;
        let pass = self.pass.as_mut().expect("a pass is under way");
        let step = pass.schedule.steps()[pass.step];
        let (done, steps) = (pass.step + 1, pass.schedule.steps().len());
        self.device.seed(mix_seed(seed, epoch as u64, done as u64));
        let window = self.train.window(step.start, step.length, &self.device);
        let model = self.model.take().expect("only an optimiser step takes the model");
        let lr = self.config.lr * step.lr_scale;
        let hidden = pass.hidden.clone();
        let (model, stepped) = train_step(model, &mut self.optimiser, window, hidden, &self.config, lr);
        self.model = Some(model);
        pass.hidden = stepped.state;
        pass.meter.add(stepped.nll, stepped.total, step.length * batch);
        pass.step = done;
        self.state.iterates += usize::from(self.state.averaging);
        if !done.is_multiple_of(LOG_INTERVAL) && done != steps {
            return Ok(None);
        }
        let Some(sum) = pass.meter.read() else {
            return Err(Error::NonFiniteLoss { epoch, step: done, steps });
        };
        pass.whole.add(sum);
        let nll = sum.nll / sum.tokens as f64;
        let tokens_per_s = pass.whole.tokens as f64 / pass.seconds();
        let share = self.share();
        Ok(Some(Interval { epoch, epochs, step: done, steps, tokens_per_s, nll, ppl: nll.exp(), share }))
    }

    /// Share of the run's work that is done, from 0 to 1.
    fn share(&self) -> f64 {
        let [train, valid, test] =
            [&self.train, &self.valid, &self.test].map(|text| text.predictions() as f64);
        let cost = |columns: usize| if columns == 1 { ONE_COLUMN_COST } else { EVALUATION_COST };
        let epoch = train + cost(self.config.eval_batch) * valid;
        let last = cost(self.config.test_batch) * test;
        let of_pass = self
            .pass
            .as_ref()
            .map_or(0.0, |pass| train * pass.step as f64 / pass.schedule.steps().len() as f64);
        let done = self.state.epoch as f64 * epoch + of_pass;
        (done / (self.config.epochs as f64 * epoch + last)).min(1.0)
    }

    /// The weights that are evaluated and kept, on the plain device: averaged once averaging has begun.
    fn evaluated(&self) -> LanguageModel {
        if self.state.averaging {
            self.optimiser.averaged(self.model()).valid()
        } else {
            self.model().valid()
        }
    }

    /// Tests the best model. Returns `None` if the observer says stop.
    fn finish(&self, observer: &mut dyn TrainObserver) -> Result<Option<FinalMetrics>> {
        let (Some(best), Some(weights)) = (self.state.best, &self.best) else {
            return Err(Error::invalid("epochs", self.config.epochs, "at least 1"));
        };
        let evaluated = mean_nll_unless(weights, &self.test, &mut || observer.stop());
        let Some(test_nll) = evaluated else { return Ok(None) };
        let (valid_ppl, test_ppl) = (best.nll.exp(), test_nll.exp());
        if !test_ppl.is_finite() {
            return Err(Error::NonFinitePerplexity { what: "test", epoch: best.epoch });
        }
        let seconds = self.state.seconds;
        Ok(Some(FinalMetrics { best_epoch: best.epoch, seconds, valid_ppl, test_ppl }))
    }
}

/// A line of `metrics.jsonl`.
fn to_line(metrics: &impl Serialize) -> String {
    let mut line = serde_json::to_string(metrics).expect("metrics are plain numbers");
    line.push('\n');
    line
}

#[cfg(all(test, feature = "flex"))]
mod tests;
