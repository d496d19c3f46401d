//! What a trainer trains.

use std::path::Path;

use burn::module::Module;
use burn::tensor::{Device, Tensor};

use crate::error::Result;
use crate::folder::StateOf;
use crate::metrics::Score;
use crate::peers::Peers;
use crate::ranks::Ranks;
use crate::seed::mix_seed;
use crate::settings::{Procedure, Settings};
use crate::shards::Shards;

/// A held-out text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Split {
    /// The one that says which model is the best.
    Valid,
    /// The one that the best model is scored on at the end.
    Test,
}

/// The results of a step besides the weights, outside of any graph. None of them waits for the device.
#[derive(Debug, Clone)]
pub struct Stepped {
    /// Number of tokens that were predicted.
    pub tokens: usize,
    /// The step's learning rate.
    pub lr: f64,
    /// Sum of their negative log-likelihoods before the update, in nats, `[1]`.
    pub nll: Tensor<1>,
    /// The loss that was differentiated, if it has other terms: like `nll`, it must be finite.
    pub total: Option<Tensor<1>>,
    /// Norm of the gradient over all parameters together, before clipping, `[1]`; `None` if no parameter has a gradient.
    pub gradient_norm: Option<Tensor<1>>,
    /// Norm of the gradient of the head's contexts, where it is measured.
    pub latent_norm: Option<Tensor<1>>,
    /// Squared coefficient of variation of a mixture's priors, where it is in the loss.
    pub prior_cv: Option<Tensor<1>>,
    /// Activation regularisation, in nats.
    pub ar: Option<Tensor<1>>,
    /// Temporal activation regularisation, in nats.
    pub tar: Option<Tensor<1>>,
    /// Number of tokens that were the most probable word, where it is counted.
    pub correct: Option<Tensor<1>>,
}

impl Stepped {
    /// A step of which nothing else is known.
    pub fn new(tokens: usize, lr: f64, nll: Tensor<1>) -> Self {
        Self {
            tokens,
            lr,
            nll,
            total: None,
            gradient_norm: None,
            latent_norm: None,
            prior_cv: None,
            ar: None,
            tar: None,
            correct: None,
        }
    }
}

/// Work of the parts of a training in proportion to each other, to say how much of it is done.
#[derive(Debug, Clone, Copy)]
pub struct Work {
    /// The steps of an epoch.
    pub train: f64,
    /// A validation.
    pub valid: f64,
    /// The test.
    pub test: f64,
}

/// What every task is made of, besides its data.
#[derive(Debug, Clone)]
pub struct Setup<S: Settings> {
    /// The model's shape.
    pub model: S::Model,
    /// The training procedure.
    pub train: S::Train,
    /// The ranks that share the vocabulary.
    pub vocabulary: Ranks,
    /// With autodiff.
    pub device: Device,
}

impl<S: Settings> Setup<S> {
    /// Training on `device`, which is seeded for the first weights.
    pub fn new(vocabulary: &Ranks, model: &S::Model, train: &S::Train, device: &Device) -> Self {
        let device = device.clone().autodiff();
        device.seed(mix_seed(train.common().seed, 0, 0));
        Self { model: model.clone(), train: train.clone(), vocabulary: vocabulary.clone(), device }
    }
}

/// A model under training, with its data, its optimiser and what it carries from step to step.
///
/// Before every step, [`Trainer`](crate::Trainer) seeds the device with a number that depends on the run's seed, the epoch and the
/// step alone. A task draws all its random numbers from there, or from such a number of its own, so that a run that was stopped goes
/// on as if it had not been.
pub trait Task {
    /// The kind of the run.
    type Settings: Settings;

    /// The model.
    type Model: Module;

    /// What it is made of.
    fn setup(&self) -> &Setup<Self::Settings>;

    /// The state before the first step.
    fn fresh_state(&self) -> StateOf<Self::Settings>;

    /// The most ranks that can share its batch.
    fn max_ranks(&self) -> usize {
        1
    }

    /// The model under training.
    fn model(&self) -> &Self::Model;

    /// Puts weights in the place of the model's, which has the same parameters. The optimiser starts anew.
    fn set_model(&mut self, model: Self::Model);

    /// The weights that are scored and kept, on the plain device.
    fn evaluated(&self, _state: &StateOf<Self::Settings>) -> Self::Model {
        self.model().valid()
    }

    /// Whether these are averaged; `None` if they never are.
    fn is_averaging(&self, _state: &StateOf<Self::Settings>) -> Option<bool> {
        None
    }

    /// The parameters of which this rank holds some rows alone, if ranks share the model's vocabulary.
    fn shards(&self) -> Shards {
        Shards::default()
    }

    /// The averages that a checkpoint keeps beside the weights, if there are any.
    fn averages(&self, _state: &StateOf<Self::Settings>) -> Option<Self::Model> {
        None
    }

    /// Number of steps of an epoch, which are counted from 1.
    fn steps(&self, epoch: usize) -> usize;

    /// Begins an epoch.
    fn begin(&mut self, _epoch: usize, _ranks: &Ranks) {}

    /// Learning rate that a validation reports: of the last step, or of one of average size in its place.
    fn learning_rate(&self, state: &StateOf<Self::Settings>) -> f64;

    /// A training step of the epoch under way, after `done` others.
    ///
    /// # Errors
    /// [`Error::Communication`](crate::Error::Communication).
    fn step(
        &mut self,
        done: usize,
        state: &mut StateOf<Self::Settings>,
        peers: &mut Peers,
    ) -> Result<Stepped>;

    /// Scores a held-out text; `None` if `stop`, which is asked before every chunk, says so.
    ///
    /// # Errors
    /// [`Error::Communication`](crate::Error::Communication).
    fn evaluate(
        &self,
        model: &Self::Model,
        split: Split,
        ranks: &Ranks,
        stop: &mut dyn FnMut() -> bool,
    ) -> Result<Option<Score>>;

    /// Lets the procedure see the loss of a validation, a new best or not, in nats. Returns what is to be said of it after the words
    /// `after epoch 3`.
    fn validated(
        &mut self,
        _state: &mut StateOf<Self::Settings>,
        _nll: f64,
        _best: bool,
    ) -> Option<&'static str> {
        None
    }

    /// Brings together what the ranks carry, for [`save`](Self::save) at the first of them. All ranks call it, with those that share the
    /// batch.
    ///
    /// # Errors
    /// [`Error::Communication`](crate::Error::Communication).
    fn gather(&mut self, _ranks: &Ranks) -> Result<()> {
        Ok(())
    }

    /// Writes everything besides weights, their averages and `state` to `folder`, such as the state of an optimiser.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io).
    fn save(&self, state: &StateOf<Self::Settings>, folder: &Path) -> Result<()>;

    /// Reads what [`save`](Self::save) wrote, and [averages](Self::averages). The model is set already; of an epoch under way, [`begin`](Self::begin) was called.
    ///
    /// # Errors
    /// What is wrong with the files.
    fn load(&mut self, state: &mut StateOf<Self::Settings>, folder: &Path, ranks: &Ranks) -> Result<()>;

    /// How much work there is.
    fn work(&self) -> Work;
}
