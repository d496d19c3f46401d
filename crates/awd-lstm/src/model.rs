//! The AWD-LSTM language model (Merity et al., arXiv 1708.02182) with any of the heads of [`highrank`].

use burn::module::{Initializer, Module, ModuleVisitor, Param};
use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor};
use highrank::{BoundHead, LikelihoodBackend, OutputHead};

use crate::config::{Dropouts, ModelConfig};
use crate::lstm::{Lstm, LstmBackend, LstmConfig, LstmState};
use crate::optim::UpdateBackend;
use crate::{Error, dropout, regularisation};

/// A backend that can run and train the model: any with the fused likelihood, the LSTM operation and the update.
pub trait LmBackend: LikelihoodBackend + LstmBackend + UpdateBackend {}

impl<B: LikelihoodBackend + LstmBackend + UpdateBackend> LmBackend for B {}

/// An AWD-LSTM language model. Should be created with [`ModelConfig::try_init`].
///
/// ```text
/// x_0 = locked dropout( embed(tokens) )                 whole words dropped from the embedding
/// r_l, state_l = LSTM_l(x_{l-1}, state_l)               DropConnect on the recurrent weights
/// x_l = locked dropout( r_l )                           hidden dropout inside, output dropout at the end
/// log P = head(x_L)                                     decoder matrix: the raw embedding, if tied
/// ```
///
/// Tokens are time-major, `[T, B]`. Dropout acts on autodiff backends only: evaluate on `model.valid()`.
#[derive(Module, Debug)]
pub struct LanguageModel<B: Backend> {
    /// Embedding `[V, d]`, uniform(±0.1). If tied it is the decoder matrix too, and its gradient the sum of both.
    pub embedding: Param<Tensor<B, 2>>,
    /// The LSTM layers, first to last.
    pub lstms: Vec<Lstm<B>>,
    /// The output layer without its decoder matrix: see [`LanguageModel::head`].
    pub head: OutputHead<B>,
    /// Decoder matrix `[V, d]`, uniform(±0.1), if it is not the embedding.
    pub decoder: Option<Param<Tensor<B, 2>>>,
    #[module(skip)]
    dropouts: Dropouts,
}

/// State of all LSTM layers between two chunks of text.
#[derive(Clone, Debug)]
pub struct LmState<B: Backend> {
    /// One state a layer, first to last.
    pub layers: Vec<LstmState<B>>,
}

/// What a training step returns.
#[derive(Clone, Debug)]
pub struct StepLoss<B: Backend> {
    /// Mean nll over all T·B tokens, in nats, `[1]`.
    pub nll: Tensor<B, 1>,
    /// `nll` + AR + TAR, to be differentiated, `[1]`.
    pub total: Tensor<B, 1>,
    /// State after the last time step. It still has its history: see [`LmState::detach`].
    pub state: LmState<B>,
}

impl ModelConfig {
    /// Makes the model with random weights: embedding and decoder uniform(±0.1), decoder bias 0, LSTM
    /// uniform(±1/√H). All are drawn here, in a fixed order, so that a seed fixes them.
    ///
    /// # Errors
    ///
    /// Those of [`ModelConfig::validate`].
    pub fn try_init<B: Backend>(&self, device: &B::Device) -> Result<LanguageModel<B>, Error> {
        self.validate()?;
        let uniform = Initializer::Uniform { min: -0.1, max: 0.1 };
        let matrix = || uniform.init([self.vocab, self.d_embedding], device);
        let inputs = std::iter::once(&self.d_embedding).chain(&self.lstm_sizes);
        let model = LanguageModel {
            embedding: matrix(),
            lstms: inputs
                .zip(&self.lstm_sizes)
                .map(|(&input, &hidden)| {
                    LstmConfig::new(input, hidden).with_precision(self.precision).init(device)
                })
                .collect(),
            head: self.head_config().try_init(device)?,
            decoder: (!self.tied).then(matrix),
            dropouts: self.dropouts,
        };
        // Burn draws weights when they are first read; left to that, their values would depend on who reads first.
        model.visit(&mut Draw);
        Ok(model)
    }
}

struct Draw;

impl<B: Backend> ModuleVisitor<B> for Draw {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        param.val();
    }
}

impl<B: Backend> LmState<B> {
    /// The same values without their history: no gradient flows into earlier chunks.
    pub fn detach(self) -> Self {
        Self { layers: self.layers.into_iter().map(LstmState::detach).collect() }
    }
}

impl<B: Backend> LanguageModel<B> {
    /// The state before any text: zeros, for `batch` parallel streams.
    pub fn zero_state(&self, batch: usize) -> LmState<B> {
        LmState { layers: self.lstms.iter().map(|lstm| lstm.zero_state(batch)).collect() }
    }

    /// The output layer together with its decoder matrix. It takes hidden states `[.., H_last]`.
    pub fn head(&self) -> BoundHead<'_, B> {
        let matrix = self.decoder.as_ref().unwrap_or(&self.embedding);
        self.head.tied_to(matrix.val())
    }

    /// V, the number of words.
    pub fn vocab(&self) -> usize {
        self.embedding.lazy_shape()[0]
    }

    /// The dropouts that act in training.
    pub fn dropouts(&self) -> Dropouts {
        self.dropouts
    }
}

impl<B: LmBackend> LanguageModel<B> {
    /// The losses of one training step.
    ///
    /// ```text
    /// total = mean nll + alpha · mean(x_L²) + beta · mean((r_L[t+1] - r_L[t])²)
    /// ```
    ///
    /// # Shapes
    ///
    /// - `tokens`, `targets`: `[T, B]`, T at least 1; the target of a token is the next one
    /// - `state`: for B streams; give a [detached](LmState::detach) one to stop gradients at the chunk's start
    ///
    /// # Panics
    ///
    /// If a shape does not fit. On CPU backends, if a target is no word of the vocabulary.
    pub fn loss(
        &self,
        tokens: Tensor<B, 2, Int>,
        targets: Tensor<B, 2, Int>,
        state: LmState<B>,
        alpha: f64,
        beta: f64,
    ) -> StepLoss<B> {
        let Encoded { raw, dropped, state } = self.encode(tokens, state);
        let nll = self.head().loss(dropped.clone(), targets, None);
        let mut total = nll.clone();
        if alpha != 0.0 {
            total = total + regularisation::activation(dropped, alpha);
        }
        if beta != 0.0 {
            total = total + regularisation::temporal(raw, beta);
        }
        StepLoss { nll, total, state }
    }

    /// Negative log-likelihood of every target, in nats, and the state after the last time step.
    ///
    /// # Shapes
    ///
    /// - `tokens`, `targets` and the result: `[T, B]`, T at least 1
    ///
    /// # Panics
    ///
    /// As [`LanguageModel::loss`].
    pub fn nll(
        &self,
        tokens: Tensor<B, 2, Int>,
        targets: Tensor<B, 2, Int>,
        state: LmState<B>,
    ) -> (Tensor<B, 2>, LmState<B>) {
        let (hidden, state) = self.hidden(tokens, state);
        (self.head().nll(hidden, targets), state)
    }

    /// Log-probabilities of all words after each token, in nats, and the state after the last time step.
    ///
    /// # Shapes
    ///
    /// - `tokens`: `[T, B]`, T at least 1
    /// - returns `[T, B, V]`
    ///
    /// # Panics
    ///
    /// If the state is for another number of streams.
    pub fn log_probs(&self, tokens: Tensor<B, 2, Int>, state: LmState<B>) -> (Tensor<B, 3>, LmState<B>) {
        let (hidden, state) = self.hidden(tokens, state);
        (self.head().log_probs(hidden), state)
    }

    /// What the output layer sees: the last LSTM's output, dropped in training. And the state after it.
    ///
    /// # Shapes
    ///
    /// - `tokens`: `[T, B]`, T at least 1
    /// - returns `[T, B, H_last]`
    ///
    /// # Panics
    ///
    /// If the state is for another number of streams.
    pub fn hidden(&self, tokens: Tensor<B, 2, Int>, state: LmState<B>) -> (Tensor<B, 3>, LmState<B>) {
        let Encoded { dropped, state, .. } = self.encode(tokens, state);
        (dropped, state)
    }

    fn encode(&self, tokens: Tensor<B, 2, Int>, state: LmState<B>) -> Encoded<B> {
        let layers = self.lstms.len();
        assert!(
            state.layers.len() == layers,
            "language model: the state has {} layers, but the model {layers}",
            state.layers.len()
        );
        let p = &self.dropouts;
        let embedded = dropout::embed(self.embedding.val(), tokens, p.embedding);
        let mut dropped = dropout::locked(embedded, p.input);
        let mut raw = dropped.clone();
        let mut states = Vec::with_capacity(layers);
        for (n, (lstm, state)) in self.lstms.iter().zip(state.layers).enumerate() {
            let (output, state) = lstm.forward(dropped, state, p.weight);
            states.push(state);
            let after = if n + 1 == layers { p.output } else { p.hidden };
            dropped = dropout::locked(output.clone(), after);
            raw = output;
        }
        Encoded { raw, dropped, state: LmState { layers: states } }
    }
}

/// Output of the last LSTM before and after dropout, and the new state.
struct Encoded<B: Backend> {
    raw: Tensor<B, 3>,
    dropped: Tensor<B, 3>,
    state: LmState<B>,
}

#[cfg(all(test, feature = "flex"))]
#[path = "model_tests.rs"]
mod tests;
