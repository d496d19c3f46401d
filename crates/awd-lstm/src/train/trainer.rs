//! The training loop.

use std::time::Instant;

use burn::module::AutodiffModule;
use burn::tensor::Tensor;
use burn::tensor::backend::{AutodiffBackend, Backend};
use serde::{Deserialize, Serialize};

use super::averages;
use super::checkpoint::{load_weights, save_weights};
use super::evaluate::mean_nll;
use super::files;
use super::observer::{EpochMetrics, FinalMetrics, Interval, TrainObserver};
use super::run::{AVERAGE, MODEL, RunFolder, STATE};
use super::step::step as train_step;
use crate::config::{ModelConfig, TrainConfig};
use crate::data::{Batches, Corpus, Schedule, mix_seed};
use crate::error::{Error, Result};
use crate::model::{LanguageModel, LmBackend};
use crate::optim::{NonMonotone, NtAsgd, NtAsgdConfig};

/// Steps between two readings of the loss. A reading waits for the device; nothing else in a step does.
pub const LOG_INTERVAL: usize = 20;

/// What a trainer remembers besides weights and averages.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainerState {
    /// Epochs that are done.
    pub epoch: usize,
    /// Whether averaging has begun.
    pub averaging: bool,
    /// Iterates in the averages.
    pub iterates: usize,
    /// The rule that starts averaging, with the validation losses that it has seen.
    pub rule: NonMonotone,
    /// The epoch with the lowest validation loss and that loss in nats.
    pub best: Option<(usize, f64)>,
    /// Wall-clock time of the epochs that are done, in seconds.
    pub seconds: f64,
}

/// Trains a language model as AWD-LSTM does (Merity et al., arXiv 1708.02182): truncated backpropagation with a
/// carried hidden state, activation regularisation, clipping to the global norm, and NT-ASGD.
///
/// Everything random is a function of the seed, the epoch and the step.
pub struct Trainer<B>
where
    B: AutodiffBackend + LmBackend,
    B::InnerBackend: LmBackend,
{
    config: TrainConfig,
    device: B::Device,
    train: Batches,
    valid: Batches,
    test: Batches,
    /// Absent only while an optimiser step has it.
    model: Option<LanguageModel<B>>,
    optimiser: NtAsgd<LanguageModel<B>, B>,
    state: TrainerState,
    best: Option<LanguageModel<B::InnerBackend>>,
}

impl<B> Trainer<B>
where
    B: AutodiffBackend + LmBackend,
    B::InnerBackend: LmBackend,
{
    /// A trainer before its first step, with a freshly drawn model.
    ///
    /// # Errors
    /// Whatever is wrong with the configurations; [`Error::CorpusTooShort`] if a text does not fill its columns.
    pub fn new(
        model: &ModelConfig,
        config: &TrainConfig,
        corpus: &Corpus,
        device: &B::Device,
    ) -> Result<Self> {
        model.validate()?;
        config.validate()?;
        let vocab = corpus.vocabulary().len();
        if model.vocab != vocab {
            return Err(Error::invalid("vocab", model.vocab, "the number of words of the corpus"));
        }
        // A single last row is no training step, hence three rows for one step.
        let train = Batches::new("the training text", corpus.train(), config.batch, 3)?;
        let valid = Batches::new("the validation text", corpus.valid(), config.eval_batch, 2)?;
        let test = Batches::new("the test text", corpus.test(), config.test_batch, 2)?;

        B::seed(device, mix_seed(config.seed, 0, 0));
        let model = model.try_init::<B>(device)?;
        let mut optimiser = NtAsgdConfig::new().with_weight_decay(config.weight_decay).init();
        if config.average_from_start {
            optimiser.start_averaging();
        }
        let state = TrainerState {
            epoch: 0,
            averaging: config.average_from_start,
            iterates: 0,
            rule: NonMonotone::new(config.nonmono),
            best: None,
            seconds: 0.0,
        };
        Ok(Self {
            config: config.clone(),
            device: device.clone(),
            train,
            valid,
            test,
            model: Some(model),
            optimiser,
            state,
            best: None,
        })
    }

    /// The model under training.
    pub fn model(&self) -> &LanguageModel<B> {
        self.model.as_ref().expect("only an optimiser step takes the model")
    }

    /// What the trainer remembers besides weights and averages.
    pub fn state(&self) -> &TrainerState {
        &self.state
    }

    /// The model with the lowest validation loss so far; none before the first epoch.
    pub fn best(&self) -> Option<&LanguageModel<B::InnerBackend>> {
        self.best.as_ref()
    }

    /// Trains to the last epoch and tests the best model. With a run folder, each epoch is saved to it.
    ///
    /// # Errors
    /// [`Error::NonFiniteLoss`] or [`Error::NonFinitePerplexity`], which leave the last checkpoint as it is;
    /// [`Error::Io`] if the run folder cannot be written.
    pub fn fit(&mut self, run: Option<&RunFolder>, observer: &mut dyn TrainObserver) -> Result<FinalMetrics> {
        while self.state.epoch < self.config.epochs {
            let metrics = self.epoch(observer)?;
            if let Some(run) = run {
                self.save(run, metrics.best)?;
                run.append_metrics(&metrics)?;
            }
            observer.on_epoch(&metrics);
        }
        let metrics = self.finish()?;
        if let Some(run) = run {
            run.append_metrics(&metrics)?;
        }
        Ok(metrics)
    }

    /// One pass over the training text and one over the validation text. Nothing is saved.
    fn epoch(&mut self, observer: &mut dyn TrainObserver) -> Result<EpochMetrics> {
        let started = Instant::now();
        let epoch = self.state.epoch + 1;
        let train_nll = self.pass(epoch, observer)?;
        let trained = started.elapsed().as_secs_f64();

        let weights = self.evaluated();
        let valid_nll = mean_nll(&weights, &self.valid, &self.device);
        if !valid_nll.exp().is_finite() {
            return Err(Error::NonFinitePerplexity { what: "validation", epoch });
        }
        let best = self.state.best.is_none_or(|(_, lowest)| valid_nll < lowest);
        if best {
            self.state.best = Some((epoch, valid_nll));
            self.best = Some(weights);
        }
        let averaging = self.state.averaging;
        if !averaging && self.state.rule.observe(valid_nll) {
            self.state.averaging = true;
            self.optimiser.start_averaging();
            observer.on_message(&format!("averaging begins after epoch {epoch}"));
        }
        let seconds = started.elapsed().as_secs_f64();
        self.state.epoch = epoch;
        self.state.seconds += seconds;
        Ok(EpochMetrics {
            epoch,
            seconds,
            tokens_per_s: self.train.predictions() as f64 / trained,
            train_ppl: train_nll.exp(),
            valid_ppl: valid_nll.exp(),
            lr: self.config.lr,
            averaging,
            best,
        })
    }

    /// One pass over the training text; the mean nll of its tokens in nats.
    fn pass(&mut self, epoch: usize, observer: &mut dyn TrainObserver) -> Result<f64> {
        let TrainConfig { batch, bptt, max_seq_len_delta, seed, .. } = self.config;
        let schedule = Schedule::new(self.train.rows(), bptt, max_seq_len_delta, seed, epoch);
        let steps = schedule.steps().len();
        let started = Instant::now();
        let mut hidden = self.model().zero_state(batch);
        let mut whole = Sum::default();
        let mut meter = Meter::<B::InnerBackend>::default();
        for (index, step) in schedule.steps().iter().enumerate() {
            let done = index + 1;
            B::seed(&self.device, mix_seed(seed, epoch as u64, done as u64));
            let window = self.train.window::<B>(step.start, step.length, &self.device);
            let model = self.model.take().expect("only an optimiser step takes the model");
            let lr = self.config.lr * step.lr_scale;
            let (model, stepped) = train_step(model, &mut self.optimiser, window, hidden, &self.config, lr);
            self.model = Some(model);
            hidden = stepped.state;
            meter.add(stepped.nll, stepped.total, step.length * batch);
            self.state.iterates += usize::from(self.state.averaging);

            if done.is_multiple_of(LOG_INTERVAL) || done == steps {
                let Some(sum) = meter.read() else {
                    return Err(Error::NonFiniteLoss { epoch, step: done, steps });
                };
                whole.nll += sum.nll;
                whole.tokens += sum.tokens;
                let nll = sum.nll / sum.tokens as f64;
                observer.on_interval(&Interval {
                    epoch,
                    epochs: self.config.epochs,
                    step: done,
                    steps,
                    tokens_per_s: whole.tokens as f64 / started.elapsed().as_secs_f64(),
                    nll,
                    ppl: nll.exp(),
                });
            }
        }
        Ok(whole.nll / whole.tokens as f64)
    }

    /// The weights that are evaluated and kept: averaged once averaging has begun.
    fn evaluated(&self) -> LanguageModel<B::InnerBackend> {
        if self.state.averaging {
            self.optimiser.averaged(self.model()).valid()
        } else {
            self.model().valid()
        }
    }

    /// Saves the latest epoch, and the best model if it is that.
    fn save(&self, run: &RunFolder, best: bool) -> Result<()> {
        // The best model first: a crash in between leaves a checkpoint from which this epoch is made again.
        if let (true, Some(weights)) = (best, &self.best) {
            files::replace_folder(&run.best(), |folder| save_weights(weights, &folder.join(MODEL)))?;
        }
        files::replace_folder(&run.checkpoint(), |folder| {
            save_weights(self.model(), &folder.join(MODEL))?;
            if self.state.iterates > 0 {
                save_weights(&self.optimiser.averaged(self.model()), &folder.join(AVERAGE))?;
            }
            files::write_json(&folder.join(STATE), &self.state)
        })
    }

    /// Goes back to the latest checkpoint of a run.
    ///
    /// # Errors
    /// [`Error::Io`] or what [`load_weights`] says of the weights.
    pub fn restore(&mut self, run: &RunFolder) -> Result<()> {
        let folder = run.checkpoint();
        let state: TrainerState = files::read_json(&folder.join(STATE))?;
        let model = load_weights(self.model().clone(), &folder.join(MODEL))?;
        let mut optimiser = NtAsgdConfig::new().with_weight_decay(self.config.weight_decay).init();
        if state.averaging {
            optimiser.start_averaging();
        }
        if state.iterates > 0 {
            let averaged = load_weights(model.clone(), &folder.join(AVERAGE))?;
            optimiser = averages::restore(optimiser, &averaged, state.iterates);
        }
        let best = match state.best {
            Some(_) => Some(load_weights(model.valid(), &run.best_weights()?)?),
            None => None,
        };
        (self.model, self.optimiser, self.state, self.best) = (Some(model), optimiser, state, best);
        Ok(())
    }

    /// Tests the best model.
    fn finish(&self) -> Result<FinalMetrics> {
        let (Some((best_epoch, valid_nll)), Some(weights)) = (self.state.best, &self.best) else {
            return Err(Error::invalid("epochs", self.config.epochs, "at least 1"));
        };
        let test_ppl = mean_nll(weights, &self.test, &self.device).exp();
        if !test_ppl.is_finite() {
            return Err(Error::NonFinitePerplexity { what: "test", epoch: best_epoch });
        }
        Ok(FinalMetrics { best_epoch, seconds: self.state.seconds, valid_ppl: valid_nll.exp(), test_ppl })
    }
}

/// Losses summed over tokens, in nats.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    nll: f64,
    tokens: usize,
}

/// Sums losses on the device, so that a step need not wait for it.
struct Meter<B: Backend> {
    /// The summed nll and the summed total loss `[1]`; the latter only tells whether all steps were finite.
    sums: Option<(Tensor<B, 1>, Tensor<B, 1>)>,
    tokens: usize,
}

impl<B: Backend> Default for Meter<B> {
    fn default() -> Self {
        Self { sums: None, tokens: 0 }
    }
}

impl<B: Backend> Meter<B> {
    /// Adds a step of `tokens` tokens with the mean loss `nll` and the loss `total` with regularisation.
    fn add(&mut self, nll: Tensor<B, 1>, total: Tensor<B, 1>, tokens: usize) {
        let nll = nll.mul_scalar(tokens as f64);
        self.tokens += tokens;
        self.sums = Some(match self.sums.take() {
            Some((nlls, totals)) => (nlls + nll, totals + total),
            None => (nll, total),
        });
    }

    /// The sum since the last reading; none if a loss was not finite.
    fn read(&mut self) -> Option<Sum> {
        let (nll, total) = self.sums.take()?;
        let values: Vec<f64> = Tensor::cat(vec![nll, total], 0).into_data().iter::<f64>().collect();
        let tokens = std::mem::take(&mut self.tokens);
        values.iter().all(|value| value.is_finite()).then_some(Sum { nll: values[0], tokens })
    }
}

#[cfg(all(test, feature = "flex"))]
mod tests;
