//! Models with random weights.

use awd_lstm::HeadKind;
use awd_lstm::lstm::Lstm;
use burn::module::{Initializer, Param};
use burn::nn::Linear;
use burn::tensor::{Device, Tensor};
use highrank::context::{Context, MixtureConfig};
use highrank::shard::{GroupHandle, ShardedHead, Share};
use highrank::{ContextConfig, HeadConfig, LogitMapConfig, Precision};
use runs::error::Result;
use runs::{WordRows, draw_all};

use super::Seq2Seq;
use crate::config::ModelConfig;
use crate::data::PAD;

impl ModelConfig {
    /// Makes the model with random weights: all uniform in ±[`init`](Self::init), biases 0, those of forget gates 1, the
    /// embedding of `<pad>` 0; a PLIF or generalised sigsoftmax begins as in [`highrank`]. All are drawn here, in a fixed order, so
    /// the device's seed fixes them.
    ///
    /// # Errors
    /// Those of [`ModelConfig::validate`].
    pub fn try_init(&self, device: &Device) -> Result<Seq2Seq> {
        self.validate()?;
        let uniform = self.initializer();
        let mut head = self.head_config().init(device);
        if let Context::MixtureOfContexts(mixture) | Context::MixtureOfSoftmaxes(mixture) = &mut head.context
        {
            // A mixture's initialiser is for weights and biases alike.
            let features = self.components * self.d_latent();
            mixture.latent.bias = Some(Initializer::Zeros.init([features], device));
        }
        // A parameter must be a leaf of the graph.
        let embedding = uniform.init([self.vocab, self.d_embedding], device).val();
        let lstm = |input, hidden| self.lstm(input, hidden, device);
        let model = Seq2Seq {
            embedding: Param::from_tensor(without_padding(embedding).detach()),
            forward: lstm(self.d_embedding, self.d_utterance),
            backward: lstm(self.d_embedding, self.d_utterance),
            context: lstm(2 * self.d_utterance + 2, self.d_context),
            start: Linear {
                weight: uniform.init([self.d_context, self.d_decoder], device),
                bias: Some(Initializer::Zeros.init([self.d_decoder], device)),
            },
            decoder: lstm(self.d_embedding, self.d_decoder),
            head,
            dropout: self.dropout,
            window: self.window,
            words: WordRows::Whole,
        };
        // Burn draws a weight when it is first read. Without this, the values would depend on the order of reading.
        draw_all(&model);
        Ok(model)
    }

    /// The same model, of which this rank keeps its rows of embedding, output matrix and bias. All of its operations are steps that all
    /// ranks of the group take together.
    ///
    /// # Errors
    /// As [`try_init`](Self::try_init), and as [`OutputHead::shard`](highrank::OutputHead::shard).
    pub fn try_init_shared(&self, group: GroupHandle, device: &Device) -> Result<Seq2Seq> {
        let share = Share::new(self.vocab, group.clone())?;
        let model = self.try_init(device)?;
        let ShardedHead { head, shared } = model.head.shard(group)?;
        let embedding = model.embedding.val().slice_dim(0, share.rows.clone()).detach();
        let (embedding, words) = (Param::from_tensor(embedding), WordRows::Shared(Box::new(shared)));
        Ok(Seq2Seq { embedding, head, words, ..model })
    }

    /// The output layer, with a decoder matrix of its own.
    pub fn head_config(&self) -> HeadConfig {
        let (hidden, d, v, k) = (self.d_decoder, self.d_latent(), self.vocab, self.components);
        let plif = LogitMapConfig::Plif { knots: self.knots, bound: self.plif_bound };
        let mixture = MixtureConfig { initializer: self.initializer(), ..MixtureConfig::new(k) };
        let mixed = |context| HeadConfig::new(hidden, d, v).with_context(context);
        let head = match self.head {
            // Adaptive is refused by `validate`.
            HeadKind::Softmax | HeadKind::Adaptive => HeadConfig::softmax(d, v),
            HeadKind::Moc => mixed(ContextConfig::MixtureOfContexts(mixture)),
            HeadKind::Mos => mixed(ContextConfig::MixtureOfSoftmaxes(mixture)),
            // Refused by `validate`.
            HeadKind::Doc => HeadConfig::direct_output_connection(&[(hidden, k)], d, v),
            // Refused too.
            HeadKind::Mixtape => HeadConfig::mixtape(hidden, d, v),
            HeadKind::Sigsoftmax => HeadConfig::sigsoftmax(d, v),
            HeadKind::Gss => HeadConfig::generalised_sigsoftmax(d, v),
            HeadKind::Plif => HeadConfig::softmax(d, v).with_logit_map(plif),
            HeadKind::MosPlif => mixed(ContextConfig::MixtureOfSoftmaxes(mixture)).with_logit_map(plif),
        };
        head.with_initializer(self.initializer())
    }

    fn initializer(&self) -> Initializer {
        Initializer::Uniform { min: -self.init, max: self.init }
    }

    fn lstm(&self, input: usize, hidden: usize, device: &Device) -> Lstm {
        let uniform = self.initializer();
        let rows = 4 * hidden;
        // In one bias of the two: the forget gate's is their sum.
        let gates = [(0.0, hidden), (1.0, hidden), (0.0, 2 * hidden)];
        let gates = gates.map(|(value, count)| Tensor::full([count], value, device));
        Lstm {
            w_ih: uniform.init([rows, input], device),
            w_hh: uniform.init([rows, hidden], device),
            b_ih: Param::from_tensor(Tensor::cat(gates.into(), 0)),
            b_hh: Initializer::Zeros.init([rows], device),
            precision: Precision::Full,
        }
    }
}

/// An embedding whose row of `<pad>` is 0. No gradient ever reaches it, so it remains so.
fn without_padding(embedding: Tensor<2>) -> Tensor<2> {
    let [_, width] = embedding.dims();
    let pad = PAD as usize;
    let zeros = embedding.clone().narrow(0, pad, 1).zeros_like();
    embedding.slice_assign([pad..pad + 1, 0..width], zeros)
}
