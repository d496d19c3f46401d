//! A task of 36 parameters: each word's distribution of the next one. Its random numbers are its own, for all threads of a process
//! share those of the CPU's backend.

use std::time::Duration;

use burn::module::{Module, Param};
use burn::optim::GradientsParams;
use burn::tensor::activation::log_softmax;
use burn::tensor::{Device, Int, Tensor, TensorData};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde::{Deserialize, Serialize};

use crate::data::{Corpus, Fingerprint, Vocabulary};
use crate::error::{Result, check};
use crate::folder::{Folder, StateOf};
use crate::metrics::{EndReason, Score};
use crate::optim::{Adam, adam, number_parameters};
use crate::peers::Peers;
use crate::ranks::Ranks;
use crate::seed::mix_seed;
use crate::settings::{Common, Extension, Procedure, RunConfig, Settings};
use crate::state::TrainerState;
use crate::task::{Setup, Split, Stepped, Task, Work};
use crate::testing;
use crate::trainer::Trainer;

pub const WORDS: usize = 6;
/// Steps of an epoch.
pub const STEPS: usize = 30;
const BATCH: usize = 8;

#[derive(Debug, Clone, PartialEq)]
pub enum Tiny {}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Model {
    pub words: usize,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Train {
    pub epochs: usize,
    pub lr: f64,
    pub clip: f64,
    pub seed: u64,
    pub validate_every: Option<usize>,
    pub patience: Option<usize>,
    pub max_minutes: Option<f64>,
    pub test: bool,
}

pub fn train(epochs: usize) -> Train {
    let (validate_every, patience, max_minutes) = (None, None, None);
    Train { epochs, lr: 0.05, clip: 0.3, seed: 3, validate_every, patience, max_minutes, test: true }
}

impl Settings for Tiny {
    const KIND: &'static str = "tiny";
    const TRAINS: &'static str = "tiny model";

    type Text = ();
    type Model = Model;
    type Train = Train;

    fn validate(_text: &(), model: &Model) -> Result<()> {
        check(model.words > 0, "words", model.words, "at least 1")
    }

    fn vocab(model: &Model) -> usize {
        model.words
    }
}

impl Procedure for Train {
    /// Sum of all validation losses.
    type State = (usize, Vec<String>);

    const CHANGEABLE: &'static [&'static str] = &["train.epochs", "train.max_minutes", "train.patience"];

    fn validate(&self) -> Result<()> {
        check(self.epochs > 0, "epochs", self.epochs, "at least 1")?;
        let minutes = self.max_minutes.unwrap_or(1.0);
        check(minutes > 0.0, "max_minutes", minutes, "above 0")
    }

    fn common(&self) -> Common {
        let Self { epochs, seed, clip, validate_every, max_minutes, test, .. } = *self;
        Common { epochs, seed, clip, validate_every, max_minutes, test }
    }

    fn rule(&self, state: &StateOf<Tiny>) -> Option<EndReason> {
        let over = self.patience.is_some_and(|patience| state.unimproved >= patience);
        over.then_some(EndReason::Patience)
    }

    fn extend(&mut self, change: &Extension) -> Result<(), String> {
        self.epochs = change.epochs.unwrap_or(self.epochs);
        self.max_minutes = change.max_minutes.or(self.max_minutes);
        self.patience = change.patience.or(self.patience);
        Ok(())
    }

    fn over(&self, _state: &StateOf<Tiny>) -> String {
        format!("its patience is {}: give a larger one", self.patience.unwrap_or_default())
    }
}

#[derive(Module, Debug)]
pub struct Bigram {
    logits: Param<Tensor<2>>,
}

pub struct TinyTask {
    setup: Setup<Tiny>,
    corpus: Corpus,
    model: Option<Bigram>,
    optimiser: Adam,
    /// Whether every further loss is NaN.
    pub breaks: bool,
    /// The step of an epoch that makes all weights NaN after its loss.
    pub spoils: Option<usize>,
    /// How much longer a step takes.
    pub pause: Duration,
}

pub fn corpus() -> Corpus {
    let words: Vec<String> = (0..WORDS).map(|word| format!("w{word}")).collect();
    let text = |seed, tokens| -> Vec<u32> {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let next = |word: &u32| Some((word * 5 + rng.random_range(0..3)) % WORDS as u32);
        std::iter::successors(Some(1), next).take(tokens).collect()
    };
    Corpus::from_ids(Vocabulary::from(words), text(1, 400), text(2, 60), text(3, 60)).unwrap()
}

pub fn trainer(config: &Train) -> Trainer<TinyTask> {
    let setup = Setup::new(&Ranks::alone(), &Model { words: WORDS }, config, &Device::flex());
    let logits = Tensor::<2>::zeros([WORDS, WORDS], &setup.device);
    let model = number_parameters(Bigram { logits: Param::from_tensor(logits) });
    Trainer::new(TinyTask {
        setup,
        corpus: corpus(),
        model: Some(model),
        optimiser: Adam::new(adam()),
        breaks: false,
        spoils: None,
        pause: Duration::ZERO,
    })
}

/// A run in a folder of its own.
pub fn run_of(train: &Train) -> (tempfile::TempDir, Folder<Tiny>) {
    let root = tempfile::tempdir().unwrap();
    let run = Folder::create(root.path(), &config(train), corpus().vocabulary()).unwrap();
    (root, run)
}

pub fn config(train: &Train) -> RunConfig<Tiny> {
    testing::config(Fingerprint::of(&corpus()), Model { words: WORDS }, train.clone())
}

impl Bigram {
    /// With all weights NaN.
    pub fn spoilt(device: &Device) -> Self {
        Self { logits: Param::from_tensor(Tensor::full([WORDS, WORDS], f64::NAN, device)) }
    }

    /// Summed nll of the pairs of words, and how many were the most probable.
    fn nll(&self, pairs: &[[u32; 2]], device: &Device) -> [Tensor<1>; 2] {
        let column = |place: usize| {
            let ids: Vec<i64> = pairs.iter().map(|pair| i64::from(pair[place])).collect();
            Tensor::<1, Int>::from_data(TensorData::new(ids, [pairs.len()]), device)
        };
        let rows = log_softmax(self.logits.val().select(0, column(0)), 1);
        let targets = column(1).unsqueeze_dim::<2>(1);
        let correct = rows.clone().argmax(1).equal(targets.clone()).int().sum().float();
        [rows.gather(1, targets).sum().neg(), correct.without_autodiff()]
    }
}

impl Task for TinyTask {
    type Settings = Tiny;
    type Model = Bigram;

    fn setup(&self) -> &Setup<Tiny> {
        &self.setup
    }

    fn fresh_state(&self) -> StateOf<Tiny> {
        TrainerState::new((0, vec![]))
    }

    fn model(&self) -> &Bigram {
        self.model.as_ref().unwrap()
    }

    fn set_model(&mut self, model: Bigram) {
        (self.model, self.optimiser) = (Some(model), Adam::new(adam()));
    }

    fn steps(&self, _epoch: usize) -> usize {
        STEPS
    }

    fn learning_rate(&self, _state: &StateOf<Tiny>) -> f64 {
        self.setup.train.lr
    }

    fn step(&mut self, done: usize, state: &mut StateOf<Tiny>, _peers: &mut Peers) -> Result<Stepped> {
        std::thread::sleep(self.pause);
        let seed = mix_seed(self.setup.train.seed, state.epoch as u64, done as u64);
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let crate::data::Tokens::Memory(text) = self.corpus.train() else { panic!("it is in memory") };
        let places = (0..BATCH).map(|_| rng.random_range(1..text.len()));
        let pairs: Vec<[u32; 2]> = places.map(|place| [text[place - 1], text[place]]).collect();
        let model = self.model.take().unwrap();
        let [nll, correct] = model.nll(&pairs, &self.setup.device);
        let grads = GradientsParams::from_grads((nll.clone() / BATCH as f64).backward(), &model);
        let (lr, clip) = (self.setup.train.lr, self.setup.train.clip);
        let (model, gradient_norm) =
            self.optimiser.step_clipped(lr, model, grads, clip, &crate::Shards::default())?;
        let is_spoilt = self.spoils == Some(done + 1);
        self.model = Some(if is_spoilt { Bigram::spoilt(&self.setup.device) } else { model });
        state.task.0 += 1;
        let nll = if self.breaks { nll.inner() * f64::NAN } else { nll.inner() };
        Ok(Stepped { gradient_norm, correct: Some(correct), ..Stepped::new(BATCH, self.setup.train.lr, nll) })
    }

    fn evaluate(
        &self,
        model: &Bigram,
        split: Split,
        _ranks: &Ranks,
        stop: &mut dyn FnMut() -> bool,
    ) -> Result<Option<Score>> {
        let text = match split {
            Split::Valid => self.corpus.valid(),
            Split::Test => self.corpus.test(),
        };
        if stop() {
            return Ok(None);
        }
        let pairs: Vec<[u32; 2]> = text.windows(2).map(|pair| [pair[0], pair[1]]).collect();
        let [nll, correct] = model.nll(&pairs, &self.setup.device.clone().inner());
        let correct = Some(correct.into_scalar::<f64>() as usize);
        Ok(Some(Score { nll: nll.into_scalar(), tokens: pairs.len(), correct }))
    }

    fn validated(&mut self, state: &mut StateOf<Tiny>, nll: f64, best: bool) -> Option<&'static str> {
        state.task.1.push(format!("{nll:?}"));
        (!best && state.unimproved == 1).then_some("it gets worse")
    }

    fn save(&self, state: &StateOf<Tiny>, folder: &std::path::Path) -> Result<()> {
        match state.has_begun() {
            true => self.optimiser.save(&self.shards(), &folder.join("adam.bpk")),
            false => Ok(()),
        }
    }

    fn load(&mut self, state: &mut StateOf<Tiny>, folder: &std::path::Path, _ranks: &Ranks) -> Result<()> {
        if state.has_begun() {
            self.optimiser = Adam::load(adam(), self.model(), &self.shards(), &folder.join("adam.bpk"))?;
        }
        Ok(())
    }

    fn work(&self) -> Work {
        Work { train: (STEPS * BATCH) as f64, valid: 20.0, test: 20.0 }
    }
}
