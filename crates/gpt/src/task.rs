//! The transformer as a trainer's task.

use std::path::Path;

use burn::optim::{AdamWConfig, GradientsParams, ModuleOptimizer};
use burn::tensor::Device;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use runs::data::Corpus;
use runs::error::Result;
use runs::optim::{clip_and_measure, load_adam, number_parameters, save_optimiser};
use runs::ranks::Ranks;
use runs::{Peers, Score, Split, Stepped, Task, TrainerState, Work, mix_seed};

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
/// rises linearly and falls as a cosine to 0. An epoch is a round, which ends with a validation.
pub struct GptTask {
    model_config: GptConfig,
    config: TrainConfig,
    /// With autodiff.
    device: Device,
    train: Windows,
    valid: Vec<u32>,
    test: Vec<u32>,
    /// `None` only while an optimiser step has it.
    model: Option<Gpt>,
    optimiser: ModuleOptimizer,
}

impl GptTask {
    /// The task before its first step, with a freshly drawn model, which is trained on `device` with autodiff.
    ///
    /// # Errors
    /// As [`GptConfig::validate`] and [`TrainConfig::validate_for`].
    pub fn new(model: &GptConfig, config: &TrainConfig, corpus: &Corpus, device: &Device) -> Result<Self> {
        model.validate()?;
        config.validate_for(corpus, model.context)?;
        let device = device.clone().autodiff();
        device.seed(mix_seed(config.seed, 0, 0));
        let fresh = number_parameters(model.try_init(&device)?);
        let beginning = |text: &[u32], tokens: Option<usize>| {
            text[..tokens.unwrap_or(text.len()).min(text.len())].to_vec()
        };
        Ok(Self {
            model_config: model.clone(),
            config: config.clone(),
            device,
            train: Windows::everywhere(corpus.train().clone(), model.context),
            valid: beginning(corpus.valid(), config.valid_tokens),
            test: if config.tests() { beginning(corpus.test(), config.eval_tokens) } else { vec![] },
            model: Some(fresh),
            optimiser: optimiser(config),
        })
    }
}

fn optimiser(config: &TrainConfig) -> ModuleOptimizer {
    AdamWConfig::new()
        .with_beta_2(0.99)
        // The rows of rare words have gradients far below Burn's default of 1e-5.
        .with_epsilon(1e-8)
        .with_weight_decay(config.weight_decay as f32)
        .init()
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

    fn device(&self) -> &Device {
        &self.device
    }

    fn model_config(&self) -> &GptConfig {
        &self.model_config
    }

    fn procedure(&self) -> &TrainConfig {
        &self.config
    }

    fn fresh_state(&self) -> GptState {
        TrainerState::new(Nothing {})
    }

    fn model(&self) -> &Gpt {
        self.model.as_ref().expect("only an optimiser step takes the model")
    }

    fn set_model(&mut self, model: Gpt) {
        // A checkpoint's optimiser knows parameters by their numbers, and a model may come with others.
        self.model = Some(number_parameters(model));
        self.optimiser = optimiser(&self.config);
    }

    fn steps(&self, _epoch: usize) -> usize {
        self.config.steps / self.config.rounds
    }

    fn learning_rate(&self, state: &GptState) -> f64 {
        let done = state.position.as_ref().map_or(0, |position| position.step);
        // At a round's end, that of its last step.
        learning_rate(&self.config, (state.epoch * self.steps(1) + done).saturating_sub(1))
    }

    fn step(&mut self, done: usize, state: &mut GptState, _peers: &mut Peers) -> Result<Stepped> {
        let TrainConfig { seed, clip, .. } = self.config;
        let lr = learning_rate(&self.config, state.epoch * self.steps(1) + done);
        let mut rng = Pcg64Mcg::seed_from_u64(mix_seed(seed, state.epoch as u64 + 1, done as u64 + 1));
        let places = (0..self.config.batch).map(|_| rng.random_range(0..self.train.len()));
        let sequences: Vec<Vec<u32>> = places.map(|place| self.train.get(place)).collect();
        let tokens = sequences.iter().map(|ids| ids.len() - 1).sum();

        let model = self.model.take().expect("only an optimiser step takes the model");
        let output = model.output(batch(&sequences, &self.device));
        let grads = GradientsParams::from_grads(output.loss.backward(), &model);
        let (grads, gradient_norm) = clip_and_measure(&model, grads, clip);
        self.model = Some(self.optimiser.step(lr, model, grads));
        Ok(Stepped { gradient_norm, correct: Some(output.correct), ..Stepped::new(tokens, lr, output.nll) })
    }

    fn evaluate(
        &self,
        model: &Gpt,
        split: Split,
        _ranks: &Ranks,
        stop: &mut dyn FnMut() -> bool,
    ) -> Result<Option<Score>> {
        let text = match split {
            Split::Valid => &self.valid,
            Split::Test => &self.test,
        };
        score_unless(model, text, self.config.batch, |_| stop())
    }

    fn save(&self, state: &GptState, folder: &Path) -> Result<()> {
        match state.has_begun() {
            true => save_optimiser(&self.optimiser, &folder.join(OPTIMISER)),
            false => Ok(()),
        }
    }

    fn load(&mut self, state: &mut GptState, folder: &Path, _ranks: &Ranks) -> Result<()> {
        if state.has_begun() {
            self.optimiser = load_adam(optimiser(&self.config), self.model(), &folder.join(OPTIMISER))?;
        }
        Ok(())
    }

    fn work(&self) -> Work {
        let of = |text: &[u32]| EVALUATION_COST * text.len() as f64;
        let train = (self.steps(1) * self.config.batch * self.model_config.context) as f64;
        Work { train, valid: of(&self.valid), test: of(&self.test) }
    }
}

#[cfg(all(test, feature = "flex"))]
mod tests;
