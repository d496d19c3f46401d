//! The language model as a trainer's task.

use std::path::Path;
use std::sync::Arc;

use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor, TensorData};
use runs::AVERAGE;
use runs::data::Corpus;
use runs::error::{Error, Result};
use runs::optim::NtAsgd;
use runs::ranks::Ranks;
use runs::{Peers, Score, Setup, Shards, Split, Task, TrainerState, Work, load_weights, save_weights};

use super::evaluate::score_unless;
use super::procedure::{LmTrainerState, ProcedureState, learning_rate};
use super::run::AwdLstm;
use super::step::{Pass, own_gradients, update};
use crate::config::{ModelConfig, TrainConfig};
use crate::data::{Batches, TrainStep, rows_of, schedule};
use crate::lstm::LstmState;
use crate::model::{LanguageModel, LmState};

/// Approximate work of evaluating a token over that of training with it: in several columns, and in a single one.
const EVALUATION_COST: f64 = 0.4;
const ONE_COLUMN_COST: f64 = 0.55;

/// State of an unfinished epoch in a checkpoint.
const EPOCH: &str = "epoch.safetensors";

/// Training of a language model as AWD-LSTM does it (Merity et al., arXiv 1708.02182): truncated backpropagation with a
/// carried hidden state, activation regularisation, clipping to the global norm, and NT-ASGD.
///
/// Several ranks share the columns of the batch. Others may share the vocabulary: each has its rows of embedding and decoder.
pub struct LmTask {
    setup: Setup<AwdLstm>,
    pub(super) train: Batches,
    pub(super) valid: Batches,
    /// None if it is not scored.
    pub(super) test: Option<Batches>,
    /// `None` only while an optimiser step has it.
    model: Option<LanguageModel>,
    optimiser: NtAsgd,
    /// The epoch under way and its steps.
    steps: (usize, Vec<TrainStep>),
    /// Number of steps of the first epoch.
    first_steps: usize,
    /// State after the last step, without its history, of the own columns.
    hidden: LmState,
    /// The same of all columns, for a checkpoint.
    whole: Option<LmState>,
}

/// A trainer of language models.
pub type Trainer = runs::Trainer<LmTask>;

/// The state of an unfinished epoch as a module, the form in which it is saved.
#[derive(Module, Debug)]
struct Carried {
    hidden: Vec<Param<Tensor<2>>>,
    cell: Vec<Param<Tensor<2>>>,
}

impl Carried {
    fn new(state: &LmState) -> Self {
        let matrices = |of: fn(&LstmState) -> &Tensor<2>| {
            state.layers.iter().map(|layer| Param::from_tensor(of(layer).clone().inner())).collect()
        };
        Self { hidden: matrices(|layer| &layer.hidden), cell: matrices(|layer| &layer.cell) }
    }

    fn state(self) -> LmState {
        let layers = self.hidden.into_iter().zip(self.cell).map(|(hidden, cell)| LstmState {
            hidden: Tensor::from_inner(hidden.val()),
            cell: Tensor::from_inner(cell.val()),
        });
        LmState { layers: layers.collect() }
    }
}

/// What a text is called, and how many rows its columns have at least.
type Columns = (&'static str, usize);
/// A single last row is no training step, so one step needs three rows.
const TRAIN: Columns = ("the training text", 3);
const VALID: Columns = ("the validation text", 2);
const TEST: Columns = ("the test text", 2);

impl LmTask {
    /// The task before its first step, with a freshly drawn model, which is trained on `device` with autodiff.
    ///
    /// # Errors
    /// Whatever is wrong with the configurations; [`Error::CorpusTooShort`] if a text does not fill its columns.
    pub fn new(model: &ModelConfig, config: &TrainConfig, corpus: &Corpus, device: &Device) -> Result<Self> {
        Self::among(&Ranks::alone(), model, config, corpus, device)
    }

    /// Checks that the texts fill the columns of a training, as [`new`](Self::new) does.
    ///
    /// # Errors
    /// [`Error::CorpusTooShort`]; [`Error::InvalidSetting`] if there are no columns.
    pub fn check_texts(config: &TrainConfig, corpus: &Corpus) -> Result<()> {
        let TrainConfig { batch, eval_batch, test_batch, test, .. } = *config;
        let fills = |(what, least): Columns, tokens, batch| rows_of(what, tokens, batch, least).map(drop);
        fills(TRAIN, corpus.train().len(), batch)?;
        fills(VALID, corpus.valid().len(), eval_batch)?;
        if test { fills(TEST, corpus.test().len(), test_batch) } else { Ok(()) }
    }

    /// The task of one of the ranks that share the vocabulary, which has its rows alone.
    ///
    /// # Errors
    /// As [`new`](Self::new); [`Error::Shard`] of an output layer that cannot be shared out.
    pub fn among(
        vocabulary: &Ranks,
        model: &ModelConfig,
        config: &TrainConfig,
        corpus: &Corpus,
        device: &Device,
    ) -> Result<Self> {
        model.validate()?;
        config.validate()?;
        let vocab = corpus.vocabulary().len();
        if model.vocab != vocab {
            return Err(Error::invalid("vocab", model.vocab, "the number of words of the corpus"));
        }
        let train = Batches::of(TRAIN.0, corpus.train(), config.batch, TRAIN.1)?;
        let valid = Batches::new(VALID.0, corpus.valid(), config.eval_batch, VALID.1)?;
        let test = || Batches::new(TEST.0, corpus.test(), config.test_batch, TEST.1);
        let test = config.test.then(test).transpose()?;

        let setup = Setup::new(vocabulary, model, config, device);
        let fresh = match vocabulary.are_several() {
            true => model.try_init_shared(Arc::new(vocabulary.clone()), &setup.device)?,
            false => model.try_init(&setup.device)?,
        };
        let first = steps_of(config, &train, 1);
        Ok(Self {
            setup,
            train,
            valid,
            test,
            optimiser: optimiser(config, &fresh, vocabulary),
            first_steps: first.len(),
            steps: (1, first),
            hidden: fresh.zero_state(config.batch),
            whole: None,
            model: Some(fresh),
        })
    }
}

fn steps_of(config: &TrainConfig, train: &Batches, epoch: usize) -> Vec<TrainStep> {
    let TrainConfig { bptt, max_seq_len_delta, seed, .. } = *config;
    schedule(train.rows(), bptt, max_seq_len_delta, seed, epoch)
}

/// The parameters of which a model has some rows alone, for the ranks that share the vocabulary.
fn shards(model: &LanguageModel, vocabulary: &Ranks) -> Shards {
    Shards::new(vocabulary, model.shared_rows())
}

/// The optimiser of `model` before its first step.
fn optimiser(config: &TrainConfig, model: &LanguageModel, vocabulary: &Ranks) -> NtAsgd {
    let plain = NtAsgd::new(config.weight_decay);
    let plain = plain.with_shards(shards(model, vocabulary));
    let mut optimiser = plain.with_factor(&model.head.context, config.latent_lr);
    if config.average_from_start {
        optimiser.start_averaging();
    }
    optimiser
}

impl Task for LmTask {
    type Settings = AwdLstm;
    type Model = LanguageModel;

    fn setup(&self) -> &Setup<AwdLstm> {
        &self.setup
    }

    fn fresh_state(&self) -> LmTrainerState {
        TrainerState::new(ProcedureState::new(&self.setup.train))
    }

    fn max_ranks(&self) -> usize {
        self.setup.train.batch
    }

    fn model(&self) -> &LanguageModel {
        self.model.as_ref().expect("only an optimiser step takes the model")
    }

    fn set_model(&mut self, model: LanguageModel) {
        self.optimiser = optimiser(&self.setup.train, &model, &self.setup.vocabulary);
        self.model = Some(model);
    }

    /// Averaged once averaging has begun.
    fn evaluated(&self, state: &LmTrainerState) -> LanguageModel {
        match state.task.averaging {
            true => self.optimiser.averaged(self.model()).valid(),
            false => self.model().valid(),
        }
    }

    fn shards(&self) -> Shards {
        shards(self.model(), &self.setup.vocabulary)
    }

    fn averages(&self, state: &LmTrainerState) -> Option<LanguageModel> {
        (state.task.iterates > 0).then(|| self.optimiser.averaged(self.model()))
    }

    fn is_averaging(&self, state: &LmTrainerState) -> Option<bool> {
        Some(state.task.averaging)
    }

    fn steps(&self, epoch: usize) -> usize {
        match epoch {
            1 => self.first_steps,
            _ if epoch == self.steps.0 => self.steps.1.len(),
            _ => steps_of(&self.setup.train, &self.train, epoch).len(),
        }
    }

    fn begin(&mut self, epoch: usize, ranks: &Ranks) {
        self.steps = (epoch, steps_of(&self.setup.train, &self.train, epoch));
        self.hidden = self.model().zero_state(ranks.part(self.setup.train.batch).len());
    }

    fn learning_rate(&self, state: &LmTrainerState) -> f64 {
        learning_rate(&self.setup.train, state)
    }

    fn step(&mut self, done: usize, state: &mut LmTrainerState, peers: &mut Peers) -> Result<runs::Stepped> {
        let config = &self.setup.train;
        let step = self.steps.1[done];
        let lr = learning_rate(config, state) * step.lr_scale;
        let window = self.train.window(step.start, step.length, &self.setup.device);
        let model = self.model.take().expect("only an optimiser step takes the model");
        let of_priors = if model.head.context.has_priors() { config.prior_cv } else { 0.0 };
        let Pass { losses, state: hidden, grads } =
            own_gradients(&model, window, self.hidden.clone(), config, peers.ranks());
        let (losses, grads) = peers.add_up(&model, losses.into_array(), grads)?;
        let (model, [gradient_norm, latent_norm]) = update(model, &mut self.optimiser, grads, config, lr)?;
        self.model = Some(model);
        self.hidden = hidden;
        state.task.iterates += usize::from(state.task.averaging);

        let [nll, total, ar, tar, prior_cv] = losses;
        let tokens = step.length * config.batch;
        Ok(runs::Stepped {
            total: Some(total),
            gradient_norm,
            latent_norm,
            prior_cv: (of_priors > 0.0).then(|| prior_cv / of_priors),
            ar: Some(ar),
            tar: Some(tar),
            ..runs::Stepped::new(tokens, lr, nll.mul_scalar(tokens as f64))
        })
    }

    fn evaluate(
        &self,
        model: &LanguageModel,
        split: Split,
        ranks: &Ranks,
        stop: &mut dyn FnMut() -> bool,
    ) -> Result<Option<Score>> {
        let text = match split {
            Split::Valid => &self.valid,
            Split::Test => self.test.as_ref().expect("a test text that is not scored is not asked for"),
        };
        score_unless(ranks, model, text, stop)
    }

    fn validated(&mut self, state: &mut LmTrainerState, nll: f64, best: bool) -> Option<&'static str> {
        let what = state.task.validated(&self.setup.train, nll, best);
        if state.task.averaging && !self.optimiser.is_averaging() {
            self.optimiser.start_averaging();
        }
        what
    }

    fn gather(&mut self, ranks: &Ranks) -> Result<()> {
        self.whole = Some(self.whole_state(ranks)?);
        Ok(())
    }

    fn save(&self, state: &LmTrainerState, folder: &Path) -> Result<()> {
        match (&state.position, &self.whole) {
            (Some(_), Some(whole)) => save_weights(&Carried::new(whole), &folder.join(EPOCH)),
            _ => Ok(()),
        }
    }

    fn load(&mut self, state: &mut LmTrainerState, folder: &Path, ranks: &Ranks) -> Result<()> {
        if state.task.averaging && !self.optimiser.is_averaging() {
            self.optimiser.start_averaging();
        }
        if state.task.iterates > 0 {
            let average = self.shards().load(self.model().clone(), &folder.join(AVERAGE))?;
            self.optimiser.resume_averaging(&average, state.task.iterates);
        }
        if state.position.is_some() {
            let whole = Carried::new(&self.model().zero_state(self.setup.train.batch));
            let own = ranks.part(self.setup.train.batch);
            let carried = load_weights(whole, &folder.join(EPOCH))?;
            self.hidden = carried.state().columns(own.start, own.len());
        }
        Ok(())
    }

    fn work(&self) -> Work {
        let [train, valid] = [&self.train, &self.valid].map(|text| text.predictions() as f64);
        let test = self.test.as_ref().map_or(0.0, |text| text.predictions() as f64);
        let cost = |columns: usize| if columns == 1 { ONE_COLUMN_COST } else { EVALUATION_COST };
        let TrainConfig { eval_batch, test_batch, .. } = self.setup.train;
        Work { train, valid: cost(eval_batch) * valid, test: cost(test_batch) * test }
    }
}

impl LmTask {
    /// The carried state of all columns, at every rank.
    fn whole_state(&self, ranks: &Ranks) -> Result<LmState> {
        if !ranks.are_several() {
            return Ok(self.hidden.clone());
        }
        let own = self.hidden.layers.iter().flat_map(|layer| [layer.hidden.clone(), layer.cell.clone()]);
        let own: Vec<f32> = own.flat_map(|tensor| tensor.into_data().iter().collect::<Vec<f32>>()).collect();
        let all = ranks.gather(bytemuck::cast_slice(&own))?;
        let of_rank = |(rank, bytes): (usize, Vec<u8>)| {
            let columns = ranks.part_of(rank, self.setup.train.batch).len();
            let mut values = bytemuck::pod_collect_to_vec::<u8, f32>(&bytes).into_iter();
            let mut fill = |zero: Tensor<2>| {
                let (shape, options) = (zero.shape(), (&zero.device(), zero.dtype()));
                let own: Vec<f32> = values.by_ref().take(shape.num_elements()).collect();
                Tensor::from_data(TensorData::new(own, shape), options)
            };
            let layers = self.model().zero_state(columns).layers.into_iter();
            let layers = layers.map(|layer| LstmState { hidden: fill(layer.hidden), cell: fill(layer.cell) });
            LmState { layers: layers.collect() }
        };
        Ok(LmState::join(all.into_iter().enumerate().map(of_rank).collect()))
    }
}

#[cfg(all(test, feature = "flex"))]
mod tests;
