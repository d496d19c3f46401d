//! The AWD-LSTM language model (Merity et al., arXiv 1708.02182) with any of the heads of [`highrank`].

use burn::module::{Initializer, Module, Param, ParamId};
use burn::tensor::{Device, Int, Tensor};
use highrank::shard::{GroupHandle, ShardedHead, Share};
use highrank::{LossOptions, OutputHead};

use crate::config::{Dropouts, ModelConfig};
use crate::dropout::{LayerMasks, Lookup, Masks};
use crate::lstm::{self, Lstm, LstmConfig, LstmState};
use crate::regularisation::Penalties;
use crate::{dropout, regularisation};
use runs::error::Result;
use runs::{WordRows, draw_all, drawn_rows};

/// An AWD-LSTM language model. Should be created with [`ModelConfig::try_init`].
///
/// ```text
/// x_0 = locked dropout( embed(tokens) )                 whole words dropped from the embedding
/// r_l, state_l = LSTM_l(x_{l-1}, state_l)               DropConnect on the recurrent weights
/// x_l = locked dropout( r_l )                           hidden dropout inside, output dropout at the end
/// log P = head(x_L)                                     decoder matrix: the raw embedding, if tied
/// ```
///
/// A direct output connection reads the dropped outputs of several layers: `head([x_l, .., x_L])`, side by side, lowest first.
///
/// Tokens are time-major, `[T, B]`. Dropout acts while the weights are on an autodiff device: evaluate `model.valid()`.
#[derive(Module, Debug)]
pub struct LanguageModel {
    /// Embedding `[V, d]`, uniform(±0.1). If tied it is the decoder matrix too, and its gradient the sum of both.
    pub embedding: Param<Tensor<2>>,
    /// The LSTM layers, first to last.
    pub lstms: Vec<Lstm>,
    /// The output layer without its decoder matrix: see [`LanguageModel::head`].
    pub head: OutputHead,
    /// Decoder matrix `[V, d]`, or `[V, H_last]` under a head without mixture; uniform(±0.1). None if it is the embedding. With
    /// clusters of rare words the matrix of their head cluster, and if tied its last rows alone, one a cluster.
    pub decoder: Option<Param<Tensor<2>>>,
    #[module(skip)]
    dropouts: Dropouts,
    /// The layers whose outputs the head reads, lowest first; 0 is the embedding.
    #[module(skip)]
    connected: Vec<usize>,
    /// The words that embedding, decoder and its bias have rows of.
    #[module(skip)]
    pub(crate) vocabulary: WordRows,
}

/// State of all LSTM layers between two chunks of text.
#[derive(Clone, Debug)]
pub struct LmState {
    /// One state a layer, first to last.
    pub layers: Vec<LstmState>,
}

/// The loss of a training step and what it is made of.
#[derive(Clone, Debug)]
pub struct StepLoss {
    /// Mean nll over all T·B tokens, in nats, `[1]`.
    pub nll: Tensor<1>,
    /// `nll` + AR + TAR + the priors' term, the loss to differentiate, `[1]`.
    pub total: Tensor<1>,
    /// AR, `alpha · mean(x_L²)`, in nats, `[1]`; 0 if `alpha` is.
    pub ar: Tensor<1>,
    /// TAR, `beta · mean((r_L[t+1] - r_L[t])²)`, in nats, `[1]`; 0 if `beta` is.
    pub tar: Tensor<1>,
    /// The term of a mixture's priors, `prior_cv · cv²`, `[1]`; 0 if `prior_cv` is, or without priors.
    pub prior_cv: Tensor<1>,
}

impl StepLoss {
    /// In the order of the fields.
    pub(crate) fn into_array(self) -> [Tensor<1>; 5] {
        let Self { nll, total, ar, tar, prior_cv } = self;
        [nll, total, ar, tar, prior_cv]
    }

    /// The same outside of their graph.
    pub(crate) fn inner(self) -> Self {
        let [nll, total, ar, tar, prior_cv] = self.into_array().map(Tensor::inner);
        Self { nll, total, ar, tar, prior_cv }
    }
}

impl ModelConfig {
    /// Makes the model with random weights: embedding and decoder uniform(±0.1), decoder bias 0, LSTM
    /// uniform(±1/√H). All are drawn here, in a fixed order, so the device's seed fixes them.
    ///
    /// # Errors
    ///
    /// Those of [`ModelConfig::validate`].
    pub fn try_init(&self, device: &Device) -> Result<LanguageModel> {
        self.draw(None, device)
    }

    /// The same model with the rows of this rank alone, of embedding, decoder and its bias. All of its operations are steps that all
    /// ranks of the group take together.
    ///
    /// # Errors
    ///
    /// Those of [`ModelConfig::validate`], and of [`OutputHead::shard`].
    pub fn try_init_shared(&self, group: GroupHandle, device: &Device) -> Result<LanguageModel> {
        self.draw(Some(group), device)
    }

    fn draw(&self, group: Option<GroupHandle>, device: &Device) -> Result<LanguageModel> {
        self.validate()?;
        let head = self.head_config();
        head.validate()?;
        let uniform = Initializer::Uniform { min: -0.1, max: 0.1 };
        let inputs = std::iter::once(&self.d_embedding).chain(&self.lstm_sizes);
        let share = group.as_ref().map(|group| Share::new(self.vocab, group.clone())).transpose()?;
        let matrix = |shape| drawn_rows(&uniform, shape, share.as_ref(), device);
        // Burn draws a weight when it is first read. Each part is drawn here, or its values would depend on the order of reading.
        let embedding = matrix([self.vocab, self.d_embedding]);
        let lstms: Vec<Lstm> = inputs
            .zip(&self.lstm_sizes)
            .map(|(&input, &hidden)| {
                LstmConfig::new(input, hidden).with_precision(self.precision).init(device)
            })
            .collect();
        draw_all(&lstms);
        let head = head.init(device);
        draw_all(&head);
        let (head, vocabulary) = match group {
            None => (head, WordRows::Whole),
            Some(group) => {
                let ShardedHead { head, shared } = head.shard(group)?;
                (head, WordRows::Shared(Box::new(shared)))
            }
        };
        Ok(LanguageModel {
            embedding,
            lstms,
            head,
            decoder: self.decoder_shape().map(matrix),
            dropouts: self.dropouts,
            connected: self.connections().iter().map(|connection| connection.layer).collect(),
            vocabulary,
        })
    }
}

impl LmState {
    /// The same values without their history: no gradient flows into earlier chunks.
    pub fn detach(self) -> Self {
        Self { layers: self.layers.into_iter().map(LstmState::detach).collect() }
    }

    /// The state of `count` streams from `start` on.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn columns(&self, start: usize, count: usize) -> Self {
        let rows = |tensor: &Tensor<2>| tensor.clone().narrow(0, start, count);
        let layer = |layer: &LstmState| LstmState { hidden: rows(&layer.hidden), cell: rows(&layer.cell) };
        Self { layers: self.layers.iter().map(layer).collect() }
    }

    /// The state of all streams from those of parts of them.
    ///
    /// # Panics
    /// If there is no part, or parts are of different models.
    pub fn join(parts: Vec<Self>) -> Self {
        let of = |layer: usize, part: fn(&LstmState) -> &Tensor<2>| {
            Tensor::cat(parts.iter().map(|state| part(&state.layers[layer]).clone()).collect(), 0)
        };
        Self {
            layers: (0..parts[0].layers.len())
                .map(|n| LstmState { hidden: of(n, |layer| &layer.hidden), cell: of(n, |layer| &layer.cell) })
                .collect(),
        }
    }
}

impl LanguageModel {
    /// The state before any text: zeros, for `batch` parallel streams.
    pub fn zero_state(&self, batch: usize) -> LmState {
        LmState { layers: self.lstms.iter().map(|lstm| lstm.zero_state(batch)).collect() }
    }

    /// The output layer together with its decoder matrix, if ranks share the vocabulary over this rank's words alone. It takes hidden states `[.., H_last]`, or those of all layers that it is
    /// connected with, side by side.
    pub fn head(&self) -> OutputHead {
        let Some(decoder) = &self.decoder else { return self.head.tied_to(&self.embedding) };
        match self.head.decoder.rows() - decoder.lazy_shape()[0] {
            0 => self.head.tied_to(decoder),
            // The frequent words share the embedding's rows.
            shared => {
                let rows = self.embedding.val().narrow(0, 0, shared);
                self.head.tied_to(Tensor::cat(vec![rows, decoder.val()], 0))
            }
        }
    }

    /// The layers whose outputs the output layer reads, lowest first: 0 is the embedding, l the l-th LSTM.
    pub fn connected(&self) -> &[usize] {
        &self.connected
    }

    /// The device of the weights.
    pub fn device(&self) -> Device {
        self.embedding.lazy_device()
    }

    /// V, the number of words.
    pub fn vocab(&self) -> usize {
        self.vocabulary.share().map_or_else(|| self.embedding.lazy_shape()[0], |share| share.all)
    }

    /// Which rows of embedding, decoder and its bias this rank holds, and these parameters; `None` if it holds all.
    pub fn shared_rows(&self) -> Option<(&Share, Vec<ParamId>)> {
        let decoder = self.decoder.as_ref().map(|matrix| matrix.id);
        let bias = self.head.decoder.bias.as_ref().map(|bias| bias.id);
        self.vocabulary.shared([Some(self.embedding.id), decoder, bias])
    }

    /// The dropouts that act in training.
    pub fn dropouts(&self) -> Dropouts {
        self.dropouts
    }

    /// The losses of one training step, and the state after the last time step. That still has its history: see
    /// [`LmState::detach`].
    ///
    /// ```text
    /// total = mean nll + alpha · mean(x_L²) + beta · mean((r_L[t+1] - r_L[t])²) + prior_cv · cv²
    /// ```
    ///
    /// with `cv²` the squared coefficient of variation of the priors, summed over all tokens of the step.
    ///
    /// # Shapes
    ///
    /// - `tokens`, `targets`: `[T, B]`, T at least 1; the target of a token is the next one
    /// - `state`: for B streams; give a [detached](LmState::detach) one to stop gradients at the chunk's start
    ///
    /// # Panics
    ///
    /// If a shape does not fit. On CPUs, if a target is no word of the vocabulary.
    pub fn loss(
        &self,
        tokens: Tensor<2, Int>,
        targets: Tensor<2, Int>,
        state: LmState,
        penalties: Penalties,
    ) -> (StepLoss, LmState) {
        self.loss_of(self.encode(tokens, state), targets, None, penalties)
    }

    /// Draws the masks of a training step of `batch` streams by the device's seed; none of them outside of training. Those of the
    /// latent contexts are left to the output layer.
    pub fn draw_masks(&self, batch: usize) -> Masks {
        let (embedding, p) = (self.embedding.val(), &self.dropouts);
        let [_, width] = embedding.dims();
        let words = dropout::mask(&embedding, [self.vocab()], p.embedding);
        let input = dropout::mask(&embedding, [batch, width], p.input);
        let of_layer = |(n, layer): (usize, &Lstm)| LayerMasks {
            weights: lstm::weight_mask(&layer.w_hh.val(), p.weight),
            output: {
                let after = if n + 1 == self.lstms.len() { p.output } else { p.hidden };
                dropout::mask(&embedding, [batch, layer.d_hidden()], after)
            },
        };
        Masks { words, input, layers: self.lstms.iter().enumerate().map(of_layer).collect(), latent: None }
    }

    /// As [`draw_masks`](Self::draw_masks), with the mask of the latent contexts: all that a training step of the whole batch
    /// draws, in its order.
    pub(crate) fn draw_all_masks(&self, batch: usize) -> Masks {
        let masks = self.draw_masks(batch);
        Masks { latent: self.head.context.draw_latent_mask(batch), ..masks }
    }

    /// As [`loss`](Self::loss) with given masks, but the lookup's gradient must be [finished](Lookup::finish) after the backward
    /// pass.
    ///
    /// # Panics
    ///
    /// As [`loss`](Self::loss), and if the model is not on an autodiff device or a mask does not fit.
    pub(crate) fn loss_beside_lookup(
        &self,
        tokens: Tensor<2, Int>,
        targets: Tensor<2, Int>,
        state: LmState,
        masks: Masks,
        penalties: Penalties,
    ) -> (StepLoss, LmState, Lookup) {
        let (encoded, latent, lookup) = self.encode_beside_lookup(tokens, state, masks);
        let (loss, state) = self.loss_of(encoded, targets, latent, penalties);
        (loss, state, lookup)
    }

    /// The layers below the output layer with given masks, and the mask that is left, that of the latent contexts.
    fn encode_beside_lookup(
        &self,
        tokens: Tensor<2, Int>,
        state: LmState,
        masks: Masks,
    ) -> (Encoded, Option<Tensor<2>>, Lookup) {
        let Masks { words, input, layers, latent } = masks;
        let lookup = Lookup::new(&self.vocabulary, self.embedding.val(), tokens.inner(), words);
        (self.encode_rows(lookup.rows(), state, input, layers), latent, lookup)
    }

    fn loss_of(
        &self,
        encoded: Encoded,
        targets: Tensor<2, Int>,
        latent: Option<Tensor<2>>,
        penalties: Penalties,
    ) -> (StepLoss, LmState) {
        let hidden = self.head_input(&encoded);
        let (nll, variation) = self.head_loss(hidden, targets, latent, penalties.prior_cv);
        let mut total = nll.clone();
        let mut add = |term: Option<Tensor<1>>| match term {
            Some(term) => {
                total = total.clone() + term.clone();
                term
            }
            None => nll.zeros_like(),
        };
        let [ar, tar] = encoded.regularisers(penalties).map(&mut add);
        let prior_cv = add(variation);
        (StepLoss { nll, total, ar, tar, prior_cv }, encoded.state)
    }

    /// The mean nll of the output layer's input, and its priors' term, if there is one.
    fn head_loss(
        &self,
        hidden: Tensor<3>,
        targets: Tensor<2, Int>,
        latent: Option<Tensor<2>>,
        prior_cv: f64,
    ) -> (Tensor<1>, Option<Tensor<1>>) {
        let head = match latent {
            Some(mask) => self.head().with_latent_mask(mask),
            None => self.head(),
        };
        let weight = if self.head.context.has_priors() { prior_cv } else { 0.0 };
        let options = LossOptions::new().with_prior_cv(weight);
        let made = self.vocabulary.loss(head, hidden, targets.inner(), &options);
        let variation = made.prior_cv.map(|squared| squared * weight);
        let nll = match &variation {
            Some(term) => made.value - term.clone(),
            None => made.value,
        };
        (nll, variation)
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
        tokens: Tensor<2, Int>,
        targets: Tensor<2, Int>,
        state: LmState,
    ) -> (Tensor<2>, LmState) {
        let (hidden, state) = self.hidden(tokens, state);
        (self.vocabulary.nll(self.head(), hidden, targets.inner()), state)
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
    /// If the state is for another number of streams, or ranks share the vocabulary.
    pub fn log_probs(&self, tokens: Tensor<2, Int>, state: LmState) -> (Tensor<3>, LmState) {
        assert!(
            self.vocabulary.share().is_none(),
            "language model: no rank has the log-probabilities of all words"
        );
        let (hidden, state) = self.hidden(tokens, state);
        (self.head().forward(hidden), state)
    }

    /// The input of the output layer, which is the last LSTM's output, dropped in training, or those of all
    /// [connected](Self::connected) layers side by side; and the state after it.
    ///
    /// # Shapes
    ///
    /// - `tokens`: `[T, B]`, T at least 1
    /// - returns `[T, B, H_last]`, or the sum of the widths
    ///
    /// # Panics
    ///
    /// If the state is for another number of streams.
    pub fn hidden(&self, tokens: Tensor<2, Int>, state: LmState) -> (Tensor<3>, LmState) {
        let encoded = self.encode(tokens, state);
        (self.head_input(&encoded), encoded.state)
    }

    /// What the output layer reads.
    fn head_input(&self, encoded: &Encoded) -> Tensor<3> {
        let mut outputs = self.connected.iter().map(|layer| encoded.dropped[*layer].clone());
        match (outputs.next(), outputs.len()) {
            (Some(only), 0) => only,
            (first, _) => Tensor::cat(first.into_iter().chain(outputs).collect(), 2),
        }
    }

    fn encode(&self, tokens: Tensor<2, Int>, state: LmState) -> Encoded {
        // Whether this is training depends on the weights alone. Word ids on an autodiff device would draw the whole pass
        // onto it, and dropout would act in an evaluation.
        let Masks { words, input, layers, .. } = self.draw_masks(tokens.dims()[1]);
        let rows = dropout::embed(&self.vocabulary, self.embedding.val(), tokens.inner(), words);
        self.encode_rows(rows, state, input, layers)
    }

    /// The rest of [`encode`](Self::encode), from embedded tokens `[T, B, d]`.
    fn encode_rows(
        &self,
        rows: Tensor<3>,
        state: LmState,
        input: Option<Tensor<2>>,
        masks: Vec<LayerMasks>,
    ) -> Encoded {
        let layers = self.lstms.len();
        for (what, count) in [("state has", state.layers.len()), ("masks have", masks.len())] {
            assert!(count == layers, "language model: the {what} {count} layers, but the model {layers}");
        }
        let mut raw = dropout::locked(rows, input);
        let mut dropped = vec![raw.clone()];
        let mut states = Vec::with_capacity(layers);
        for ((lstm, state), masks) in self.lstms.iter().zip(state.layers).zip(masks) {
            let below = dropped[dropped.len() - 1].clone();
            let (output, state) = lstm.forward_masked(below, state, masks.weights);
            states.push(state);
            dropped.push(dropout::locked(output.clone(), masks.output));
            raw = output;
        }
        Encoded { raw, dropped, state: LmState { layers: states } }
    }
}

struct Encoded {
    /// Output of the last LSTM before dropout.
    raw: Tensor<3>,
    /// Outputs after dropout of the embedding and of every LSTM.
    dropped: Vec<Tensor<3>>,
    /// The new state.
    state: LmState,
}

impl Encoded {
    /// AR and TAR, where they have a weight.
    fn regularisers(&self, penalties: Penalties) -> [Option<Tensor<1>>; 2] {
        let Penalties { alpha, beta, .. } = penalties;
        let dropped = self.dropped.last().expect("the embedding has an output");
        [
            (alpha != 0.0).then(|| regularisation::activation(dropped.clone(), alpha)),
            (beta != 0.0).then(|| regularisation::temporal(self.raw.clone(), beta)),
        ]
    }
}

#[cfg(all(test, feature = "flex"))]
#[path = "model_tests.rs"]
mod tests;
