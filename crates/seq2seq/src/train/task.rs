//! The model of dialogues as a trainer's task.

use std::path::Path;

use burn::optim::ModuleOptimizer;
use burn::tensor::Device;
use runs::error::check;
use runs::optim::{adam, load_adam, number_parameters, save_optimiser};
use runs::ranks::Ranks;
use runs::{Peers, Score, Split, Task, TrainerState, Work, mix_seed};

use super::evaluate::score_unless;
use super::run::{DialogState, Dialogues};
use super::step::step as train_step;
use crate::config::{EarlyStop, ModelConfig, TrainConfig};
use crate::data::{Batch, Corpus, Schedule};
use crate::error::Result;
use crate::model::Seq2Seq;

/// Approximate work of scoring a response token over that of training with it.
const EVALUATION_COST: f64 = 0.35;

/// The optimiser's state in a checkpoint, once there is any.
const OPTIMISER: &str = "optimiser.bpk";

/// A trainer of dialogues.
pub type Trainer<'a> = runs::Trainer<DialogTask<'a>>;

/// Training of a model by Adam, on the sum of a response's losses averaged over the responses of a batch, with clipping to the global
/// norm and early stopping (Zhao et al., arXiv 1703.10960).
pub struct DialogTask<'a> {
    model_config: ModelConfig,
    config: TrainConfig,
    /// With autodiff.
    device: Device,
    corpus: &'a Corpus,
    schedule: Schedule,
    /// `None` only while an optimiser step has it.
    model: Option<Seq2Seq>,
    optimiser: ModuleOptimizer,
}

impl<'a> DialogTask<'a> {
    /// The task before its first step, with a freshly drawn model, which is trained on `device` with autodiff.
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
        check(model.vocab == vocab, "vocab", model.vocab, expected)?;
        for (name, split) in
            [("pairs of the validation text", corpus.valid()), ("pairs of the test text", corpus.test())]
        {
            check(split.num_pairs() > 0, name, 0, "at least 1")?;
        }
        let schedule = Schedule::new(corpus.train(), config.run, config.batch, config.seed)?;
        let device = device.clone().autodiff();
        device.seed(mix_seed(config.seed, 0, 0));
        let fresh = number_parameters(model.try_init(&device)?);
        Ok(Self {
            model_config: model.clone(),
            config: config.clone(),
            device,
            corpus,
            schedule,
            model: Some(fresh),
            optimiser: adam(),
        })
    }
}

impl Task for DialogTask<'_> {
    type Settings = Dialogues;
    type Model = Seq2Seq;

    fn device(&self) -> &Device {
        &self.device
    }

    fn model_config(&self) -> &ModelConfig {
        &self.model_config
    }

    fn procedure(&self) -> &TrainConfig {
        &self.config
    }

    fn fresh_state(&self) -> DialogState {
        TrainerState::new(EarlyStop::new(self.config.stop.clone()))
    }

    fn model(&self) -> &Seq2Seq {
        self.model.as_ref().expect("only an optimiser step takes the model")
    }

    fn set_model(&mut self, model: Seq2Seq) {
        self.model = Some(model);
        self.optimiser = adam();
    }

    fn steps(&self, _epoch: usize) -> usize {
        self.config.updates
    }

    fn learning_rate(&self, _state: &DialogState) -> f64 {
        self.config.lr
    }

    fn step(
        &mut self,
        done: usize,
        state: &mut DialogState,
        _peers: &mut Peers,
    ) -> runs::error::Result<runs::Stepped> {
        let pairs = self.schedule.pairs((state.epoch * self.config.updates + done) as u64);
        let batch = Batch::new(self.corpus.train(), &pairs, self.model_config.window);
        let model = self.model.take().expect("only an optimiser step takes the model");
        let (model, stepped) = train_step(model, &mut self.optimiser, &batch, &self.config);
        self.model = Some(model);
        Ok(runs::Stepped {
            gradient_norm: Some(stepped.norm),
            ..runs::Stepped::new(stepped.tokens, self.config.lr, stepped.nll)
        })
    }

    fn evaluate(
        &self,
        model: &Seq2Seq,
        split: Split,
        _ranks: &Ranks,
        stop: &mut dyn FnMut() -> bool,
    ) -> runs::error::Result<Option<Score>> {
        let text = match split {
            Split::Valid => self.corpus.valid(),
            Split::Test => self.corpus.test(),
        };
        Ok(score_unless(model, text, stop))
    }

    fn validated(&mut self, state: &mut DialogState, nll: f64, _best: bool) -> Option<&'static str> {
        state.task.record(nll);
        None
    }

    fn save(&self, state: &DialogState, folder: &Path) -> runs::error::Result<()> {
        match state.has_begun() {
            true => save_optimiser(&self.optimiser, &folder.join(OPTIMISER)),
            false => Ok(()),
        }
    }

    fn load(&mut self, state: &mut DialogState, folder: &Path, _ranks: &Ranks) -> runs::error::Result<()> {
        state.task = state.task.clone().with_patience(self.config.stop.patience);
        if state.has_begun() {
            self.optimiser = load_adam(adam(), self.model(), &self.shards(), &folder.join(OPTIMISER))?;
        }
        Ok(())
    }

    fn work(&self) -> Work {
        let train = self.corpus.train();
        let of_pair = train.response_tokens() as f64 / train.num_pairs() as f64;
        let [valid, test] =
            [self.corpus.valid(), self.corpus.test()].map(|s| EVALUATION_COST * s.response_tokens() as f64);
        let steps = (self.config.updates * self.config.batch) as f64;
        Work { train: steps * of_pair, valid, test }
    }
}

#[cfg(all(test, feature = "flex"))]
mod tests;
