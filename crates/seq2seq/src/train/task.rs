//! The model of dialogues as a trainer's task.

use std::path::Path;
use std::sync::Arc;

use burn::optim::GradientsParams;
use burn::tensor::Device;
use runs::error::{Result, check};
use runs::optim::{Adam, adam, number_parameters};
use runs::ranks::Ranks;
use runs::{Peers, Score, Setup, Shards, Split, Stepped, Task, TrainerState, Work};

use super::evaluate::score_unless;
use super::run::{DialogState, Dialogues};
use crate::config::{EarlyStop, ModelConfig, TrainConfig};
use crate::data::{Batch, Corpus, Schedule};
use crate::model::Seq2Seq;

/// Approximate work of scoring a response token over that of training with it.
const EVALUATION_COST: f64 = 0.35;

/// The optimiser's state in a checkpoint, once there is any.
const OPTIMISER: &str = "optimiser.bpk";

/// A trainer of dialogues.
pub type Trainer<'a> = runs::Trainer<DialogTask<'a>>;

/// Training of a model by Adam, on the sum of a response's losses averaged over the responses of a batch, with clipping to the global
/// norm and early stopping (Zhao et al., arXiv 1703.10960).
///
/// Several ranks share the responses of a batch. Others may share the vocabulary: each has its rows of embedding and output matrix.
pub struct DialogTask<'a> {
    setup: Setup<Dialogues>,
    corpus: &'a Corpus,
    schedule: Schedule,
    /// `None` only while an optimiser step has it.
    model: Option<Seq2Seq>,
    optimiser: Adam,
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
        Self::among(&Ranks::alone(), model, config, corpus, device)
    }

    /// The task of one of the ranks that share the vocabulary, which has its rows alone.
    ///
    /// # Errors
    /// As [`new`](Self::new), and as [`ModelConfig::try_init_shared`].
    pub fn among(
        vocabulary: &Ranks,
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
        let setup = Setup::new(vocabulary, model, config, device);
        let fresh = match vocabulary.are_several() {
            true => model.try_init_shared(Arc::new(vocabulary.clone()), &setup.device)?,
            false => model.try_init(&setup.device)?,
        };
        Ok(Self {
            setup,
            corpus,
            schedule,
            model: Some(number_parameters(fresh)),
            optimiser: Adam::new(adam()),
        })
    }
}

impl Task for DialogTask<'_> {
    type Settings = Dialogues;
    type Model = Seq2Seq;

    fn setup(&self) -> &Setup<Dialogues> {
        &self.setup
    }

    fn fresh_state(&self) -> DialogState {
        TrainerState::new(EarlyStop::new(self.setup.train.stop.clone()))
    }

    fn max_ranks(&self) -> usize {
        self.setup.train.batch
    }

    fn model(&self) -> &Seq2Seq {
        self.model.as_ref().expect("only an optimiser step takes the model")
    }

    fn set_model(&mut self, model: Seq2Seq) {
        // A checkpoint's optimiser knows parameters by their numbers, and a model may come with others.
        self.model = Some(number_parameters(model));
        self.optimiser = Adam::new(adam());
    }

    fn shards(&self) -> Shards {
        Shards::new(&self.setup.vocabulary, self.model().shared_rows())
    }

    fn steps(&self, _epoch: usize) -> usize {
        self.setup.train.updates
    }

    fn learning_rate(&self, _state: &DialogState) -> f64 {
        self.setup.train.lr
    }

    fn step(&mut self, done: usize, state: &mut DialogState, peers: &mut Peers) -> Result<Stepped> {
        let TrainConfig { lr, clip, seed, updates, .. } = self.setup.train;
        let pairs = self.schedule.pairs(state.epoch.saturating_mul(updates).saturating_add(done) as u64);
        let batch_of = |pairs| Batch::new(self.corpus.train(), pairs, self.setup.model.window);
        let ranks = peers.ranks();
        ranks.seed_own_part(&self.setup.device, seed, state.epoch as u64 + 1, done as u64 + 1);
        // The last batch of a pass may have fewer responses than there are ranks: then one counts for nothing.
        let own = ranks.part(pairs.len());
        let counts = f64::from(!own.is_empty());
        let batch = batch_of(if own.is_empty() { &pairs[..1] } else { &pairs[own] });
        let count = |batch: &Batch| batch.targets.count();
        let tokens = if ranks.are_several() { count(&batch_of(&pairs)) } else { count(&batch) };
        let shards = self.shards();
        let model = self.model.take().expect("only an optimiser step takes the model");
        let loss = model.loss(&batch);
        let nll = loss.clone().inner().mul_scalar(counts);
        // Not a division: its backward pass rounds the reciprocal to float32.
        let grads = (loss * (counts / pairs.len() as f64)).backward();
        let grads = GradientsParams::from_grads(grads, &model);
        let ([nll], grads) = peers.add_up(&model, [nll], grads)?;
        let (model, gradient_norm) = self.optimiser.step_clipped(lr, model, grads, clip, &shards)?;
        self.model = Some(model);
        Ok(Stepped { gradient_norm, ..Stepped::new(tokens, lr, nll) })
    }

    fn evaluate(
        &self,
        model: &Seq2Seq,
        split: Split,
        ranks: &Ranks,
        stop: &mut dyn FnMut() -> bool,
    ) -> Result<Option<Score>> {
        let text = match split {
            Split::Valid => self.corpus.valid(),
            Split::Test => self.corpus.test(),
        };
        score_unless(ranks, model, text, stop)
    }

    fn gather(&mut self, ranks: &Ranks) -> Result<()> {
        let shards = self.shards();
        self.optimiser.gather(ranks, &shards)
    }

    fn validated(&mut self, state: &mut DialogState, nll: f64, _best: bool) -> Option<&'static str> {
        state.task.record(nll);
        None
    }

    fn save(&self, state: &DialogState, folder: &Path) -> Result<()> {
        match state.has_begun() {
            true => self.optimiser.save(&self.shards(), &folder.join(OPTIMISER)),
            false => Ok(()),
        }
    }

    fn load(&mut self, state: &mut DialogState, folder: &Path, _ranks: &Ranks) -> Result<()> {
        state.task = state.task.clone().with_patience(self.setup.train.stop.patience);
        if state.has_begun() {
            self.optimiser = Adam::load(adam(), self.model(), &self.shards(), &folder.join(OPTIMISER))?;
        }
        Ok(())
    }

    fn work(&self) -> Work {
        let train = self.corpus.train();
        let of_pair = train.response_tokens() as f64 / train.num_pairs() as f64;
        let [valid, test] =
            [self.corpus.valid(), self.corpus.test()].map(|s| EVALUATION_COST * s.response_tokens() as f64);
        let steps = self.setup.train.updates as f64 * self.setup.train.batch as f64;
        Work { train: steps * of_pair, valid, test }
    }
}

#[cfg(all(test, feature = "flex"))]
mod tests;
