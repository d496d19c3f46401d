//! The work that benches and throughput programs time: a whole training step, the stack of LSTM layers by itself, the
//! output layer by itself, and the matrix product that all are measured by.

mod float_type;
mod output;
mod product;

pub use float_type::FloatType;
pub use output::{LossOption, Mode, OutputLayer, OutputPrediction, OutputStep, TargetWords};
pub use product::SquareProduct;

use awd_lstm::data::Window;
use awd_lstm::lstm::{Lstm, LstmConfig};
use awd_lstm::{LanguageModel, LmState, ModelConfig, TrainConfig, train};
use burn::tensor::{Device, Distribution, Int, Tensor};
use highrank::Precision;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use runs::optim::NtAsgd;

use program::failure::Failure;

/// Training of a model on one batch of random tokens, over and over.
pub struct Training {
    config: TrainConfig,
    model: Option<LanguageModel>,
    optimiser: NtAsgd,
    state: LmState,
    tokens: Tensor<2, Int>,
    targets: Tensor<2, Int>,
}

impl Training {
    /// A fresh model that has made one step, whose loss is that of a model which knows nothing; with clusters of words, any finite
    /// loss, for the words are then not equally probable.
    ///
    /// # Errors
    /// If that loss is anything else.
    pub fn new(model: &ModelConfig, config: TrainConfig, device: &Device) -> Result<Self, Failure> {
        let device = device.clone().autodiff();
        device.seed(0);
        let (head, vocab, has_clusters) = (model.head, model.vocab, model.clusters().is_some());
        let model = model.try_init(&device)?;
        let mut rng = Pcg64::seed_from_u64(0);
        let mut draw = || {
            let count = config.bptt * config.batch;
            let words: Vec<i64> = (0..count).map(|_| rng.random_range(0..vocab as i64)).collect();
            Tensor::<1, Int>::from_data(words.as_slice(), &device).reshape([config.bptt, config.batch])
        };
        let (tokens, targets) = (draw(), draw());
        let optimiser = NtAsgd::new(config.weight_decay);
        let state = model.zero_state(config.batch);
        let mut training = Self { config, model: Some(model), optimiser, state, tokens, targets };
        // Small weights cannot be far from the uniform distribution.
        let (nll, uniform) = (training.step(), (vocab as f64).ln());
        let plausible = if has_clusters { nll.is_finite() } else { (nll - uniform).abs() <= 0.1 };
        if !plausible {
            return Err(format!("{head}: the first loss is {nll} nats, expected about {uniform}").into());
        }
        Ok(training)
    }

    /// Tokens of a step.
    pub fn tokens(&self) -> usize {
        self.config.bptt * self.config.batch
    }

    /// Forward, backward, clipping, update; the mean nll before it, in nats.
    pub fn step(&mut self) -> f64 {
        let model = self.model.take().expect("put back by every step");
        let window = Window { tokens: self.tokens.clone(), targets: self.targets.clone() };
        let (state, lr) = (self.state.clone(), self.config.lr);
        let (model, stepped) = train::step(model, &mut self.optimiser, window, state, &self.config, lr);
        (self.model, self.state) = (Some(model), stepped.state);
        stepped.losses.nll.into_scalar()
    }
}

/// A stack of LSTM layers with its input.
pub struct LstmStack {
    /// The layers, from the first to the last.
    pub layers: Vec<Lstm>,
    /// `[T, B, sizes[0]]`
    pub x: Tensor<3>,
}

impl LstmStack {
    /// Layers from `sizes[0]` inputs to `sizes[1]` units and so on.
    pub fn new(sizes: &[usize], steps: usize, batch: usize, precision: Precision, device: &Device) -> Self {
        let device = device.clone().autodiff();
        device.seed(0);
        let layer =
            |pair: &[usize]| LstmConfig::new(pair[0], pair[1]).with_precision(precision).init(&device);
        let layers = sizes.windows(2).map(layer).collect();
        let x = Tensor::random([steps, batch, sizes[0]], Distribution::Normal(0.0, 1.0), &device);
        Self { layers, x: x.require_grad() }
    }

    /// Tokens of a step.
    pub fn tokens(&self) -> usize {
        let [steps, batch, _] = self.x.dims();
        steps * batch
    }

    /// Forward and backward of the sum of all outputs, which is returned; each recurrent weight is dropped with the
    /// given probability.
    pub fn step(&self, weight_dropout: f64) -> f64 {
        let [_, batch, _] = self.x.dims();
        let mut y = self.x.clone();
        for layer in &self.layers {
            (y, _) = layer.forward(y, layer.zero_state(batch), weight_dropout);
        }
        let sum = y.sum();
        drop(sum.backward());
        sum.inner().into_scalar()
    }
}
