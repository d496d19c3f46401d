//! The transformer as a trainer's task.

use std::path::Path;
use std::sync::Arc;

use burn::optim::{AdamW, AdamWConfig, GradientsParams};
use burn::tensor::Device;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use runs::data::Corpus;
use runs::error::{Result, check};
use runs::optim::{Adam, number_parameters};
use runs::ranks::Ranks;
use runs::{Peers, Score, Setup, Shards, Split, Stepped, Task, TrainerState, Work, mix_seed};

use crate::config::{GptConfig, TrainConfig};
use crate::data::{Windows, batch};
use crate::evaluate::score_unless;
use crate::model::Gpt;
use crate::run::{GptState, Nothing, Transformer};

/// Approximate work of scoring a token over that of training with it.
const EVALUATION_COST: f64 = 0.35;

/// The optimiser's state in a checkpoint, once there is any.
const OPTIMISER: &str = "optimiser.bpk";

/// A trainer of transformers.
pub type Trainer = runs::Trainer<GptTask>;

/// Training by AdamW on sequences from random places of the training text, with clipping to the global norm and a learning rate that
/// rises linearly and falls as a cosine that would reach 0 one step after the last. An epoch is a round, which ends with a validation.
///
/// Several ranks share the sequences of a step. Others may share the vocabulary: each has its rows of embedding and decoder.
pub struct GptTask {
    setup: Setup<Transformer>,
    train: Windows,
    valid: Vec<u32>,
    test: Vec<u32>,
    /// `None` only while an optimiser step has it.
    model: Option<Gpt>,
    optimiser: Adam,
}

impl GptTask {
    /// The task before its first step, with a freshly drawn model, which is trained on `device` with autodiff.
    ///
    /// # Errors
    /// As [`GptConfig::validate`] and [`TrainConfig::validate_for`], and [`InvalidSetting`](runs::Error::InvalidSetting) if the model
    /// does not have the words of the corpus.
    pub fn new(model: &GptConfig, config: &TrainConfig, corpus: &Corpus, device: &Device) -> Result<Self> {
        Self::among(&Ranks::alone(), model, config, corpus, device)
    }

    /// The task of one of the ranks that share the vocabulary, which has its rows alone.
    ///
    /// # Errors
    /// As [`new`](Self::new), and as [`GptConfig::try_init_shared`].
    pub fn among(
        vocabulary: &Ranks,
        model: &GptConfig,
        config: &TrainConfig,
        corpus: &Corpus,
        device: &Device,
    ) -> Result<Self> {
        model.validate()?;
        let (vocab, words) = (model.head.vocab, corpus.vocabulary().len());
        check(vocab == words, "vocab", vocab, "the number of words of the corpus")?;
        config.validate_for(corpus, model.context)?;
        let setup = Setup::new(vocabulary, model, config, device);
        let fresh = match vocabulary.are_several() {
            true => model.try_init_shared(Arc::new(vocabulary.clone()), &setup.device)?,
            false => model.try_init(&setup.device)?,
        };
        let beginning = |text: &[u32], tokens: Option<usize>| {
            text[..tokens.unwrap_or(text.len()).min(text.len())].to_vec()
        };
        Ok(Self {
            setup,
            train: Windows::everywhere(corpus.train().clone(), model.context),
            valid: beginning(corpus.valid(), config.valid_tokens),
            test: if config.tests() { beginning(corpus.test(), config.eval_tokens) } else { vec![] },
            model: Some(number_parameters(fresh)),
            optimiser: Adam::new(optimiser(config)),
        })
    }
}

fn optimiser(config: &TrainConfig) -> AdamW {
    AdamWConfig::new()
        .with_beta_2(0.99)
        // The rows of rare words have gradients far below Burn's default of 1e-5.
        .with_epsilon(1e-8)
        .with_weight_decay(config.weight_decay as f32)
        .build()
}

/// The learning rate of a step, after `done` others in all.
fn learning_rate(config: &TrainConfig, done: usize) -> f64 {
    let TrainConfig { steps, lr, warmup, .. } = *config;
    if done < warmup {
        return lr * (done + 1) as f64 / warmup as f64;
    }
    let part = (done - warmup) as f64 / (steps - warmup) as f64;
    lr * 0.5 * (1.0 + (std::f64::consts::PI * part).cos())
}

impl Task for GptTask {
    type Settings = Transformer;
    type Model = Gpt;

    fn setup(&self) -> &Setup<Transformer> {
        &self.setup
    }

    fn fresh_state(&self) -> GptState {
        TrainerState::new(Nothing {})
    }

    fn max_ranks(&self) -> usize {
        self.setup.train.batch
    }

    fn model(&self) -> &Gpt {
        self.model.as_ref().expect("only an optimiser step takes the model")
    }

    fn set_model(&mut self, model: Gpt) {
        // A checkpoint's optimiser knows parameters by their numbers, and a model may come with others.
        self.model = Some(number_parameters(model));
        self.optimiser = Adam::new(optimiser(&self.setup.train));
    }

    fn shards(&self) -> Shards {
        Shards::new(&self.setup.vocabulary, self.model().shared_rows())
    }

    fn steps(&self, _epoch: usize) -> usize {
        self.setup.train.steps / self.setup.train.rounds
    }

    fn learning_rate(&self, state: &GptState) -> f64 {
        let done = state.position.as_ref().map_or(0, |position| position.step);
        // At a round's end, that of its last step.
        learning_rate(&self.setup.train, (state.epoch * self.steps(1) + done).saturating_sub(1))
    }

    fn step(&mut self, done: usize, state: &mut GptState, peers: &mut Peers) -> Result<Stepped> {
        let TrainConfig { seed, clip, batch: count, .. } = self.setup.train;
        let lr = learning_rate(&self.setup.train, state.epoch * self.steps(1) + done);
        let (round, step) = (state.epoch as u64 + 1, done as u64 + 1);
        let mut rng = Pcg64Mcg::seed_from_u64(mix_seed(seed, round, step));
        let places: Vec<usize> = (0..count).map(|_| rng.random_range(0..self.train.len())).collect();
        let (ranks, tokens) = (peers.ranks(), count * self.setup.model.context);
        ranks.seed_own_part(&self.setup.device, seed, round, step);
        let own = ranks.part(count);
        let sequences: Vec<Vec<u32>> =
            places[own.clone()].iter().map(|place| self.train.get(*place)).collect();

        let shards = self.shards();
        let model = self.model.take().expect("only an optimiser step takes the model");
        let output = model.output(batch(&sequences, &self.setup.device));
        // All sequences are equally long.
        let loss = output.loss.mul_scalar(own.len() as f64 / count as f64);
        let grads = GradientsParams::from_grads(loss.backward(), &model);
        let ([nll, correct], grads) = peers.add_up(&model, [output.nll, output.correct], grads)?;
        let (model, gradient_norm) = self.optimiser.step_clipped(lr, model, grads, clip, &shards)?;
        self.model = Some(model);
        Ok(Stepped { gradient_norm, correct: Some(correct), ..Stepped::new(tokens, lr, nll) })
    }

    fn evaluate(
        &self,
        model: &Gpt,
        split: Split,
        ranks: &Ranks,
        stop: &mut dyn FnMut() -> bool,
    ) -> Result<Option<Score>> {
        let text = match split {
            Split::Valid => &self.valid,
            Split::Test => &self.test,
        };
        score_unless(ranks, model, text, self.setup.train.batch, |_| stop())
    }

    fn gather(&mut self, ranks: &Ranks) -> Result<()> {
        let shards = self.shards();
        self.optimiser.gather(ranks, &shards)
    }

    fn save(&self, state: &GptState, folder: &Path) -> Result<()> {
        match state.has_begun() {
            true => self.optimiser.save(&self.shards(), &folder.join(OPTIMISER)),
            false => Ok(()),
        }
    }

    fn load(&mut self, state: &mut GptState, folder: &Path, _ranks: &Ranks) -> Result<()> {
        if state.has_begun() {
            let (fresh, path) = (optimiser(&self.setup.train), folder.join(OPTIMISER));
            self.optimiser = Adam::load(fresh, self.model(), &self.shards(), &path)?;
        }
        Ok(())
    }

    fn work(&self) -> Work {
        let of = |text: &[u32]| EVALUATION_COST * text.len() as f64;
        let train = self.steps(1) as f64 * (self.setup.train.batch * self.setup.model.context) as f64;
        Work { train, valid: of(&self.valid), test: of(&self.test) }
    }
}

#[cfg(all(test, feature = "flex"))]
mod tests;
