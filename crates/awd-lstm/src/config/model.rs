//! The shape of a model.

use std::num::Saturating;

use highrank::{HeadConfig, Precision};
use serde::{Deserialize, Serialize};

use super::dropouts::Dropouts;
use super::head::HeadKind;
use crate::error::{Error, Result, check};

/// The shape of a language model: embedding, LSTM layers, output layer, dropouts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelConfig {
    /// V, the number of words.
    pub vocab: usize,
    /// d, the width of the embedding, and of the decoder matrix: see [`d_decoder`](Self::d_decoder).
    pub d_embedding: usize,
    /// Hidden size of every LSTM, first to last. The last must be `d_embedding` for a tied head without mixture.
    pub lstm_sizes: Vec<usize>,
    /// The output layer.
    pub head: HeadKind,
    /// K, the number of mixture components. Heads without mixture ignore it.
    pub components: usize,
    /// Number of pieces of the PLIF. Heads without one ignore it.
    pub knots: usize,
    /// T: the PLIF is piecewise linear on [-T, T]. Heads without one ignore it.
    pub plif_bound: f64,
    /// The dropouts, active in training only.
    pub dropouts: Dropouts,
    /// Whether the decoder matrix of the output layer is the embedding matrix. If a file does not say, it is.
    #[serde(default = "tied")]
    pub tied: bool,
    /// What the inputs of matrix products are rounded to.
    #[serde(default)]
    pub precision: Precision,
}

fn tied() -> bool {
    true
}

impl ModelConfig {
    /// The most learnt scalars that a model may have: 2^40, in f32 four tebibytes.
    pub const MAX_PARAMETERS: usize = 1 << 40;

    /// A model that trains in seconds, for tests and small studies: d = 8, two LSTM layers, a mixture of two components, no
    /// dropout, one tied matrix.
    ///
    /// Other sizes take the place of these one by one:
    ///
    /// ```
    /// use awd_lstm::{HeadKind, ModelConfig};
    ///
    /// let config = ModelConfig { components: 3, ..ModelConfig::tiny(HeadKind::Mos, 100) };
    /// config.validate().unwrap();
    /// ```
    pub fn tiny(head: HeadKind, vocab: usize) -> Self {
        Self {
            vocab,
            d_embedding: 8,
            lstm_sizes: vec![12, 8],
            head,
            components: 2,
            knots: 100,
            plif_bound: 20.0,
            dropouts: Dropouts::NONE,
            tied: true,
            precision: Precision::Full,
        }
    }

    /// Checks every size, their [number of parameters](Self::num_params) and every probability, so that [`ModelConfig::try_init`] cannot fail on them.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidSetting`] names the first setting that is out of range and the range,
    /// [`Error::LastLstmSize`] the two sizes that a tied head without mixture needs to be equal.
    pub fn validate(&self) -> Result<()> {
        check(self.vocab > 0, "vocab", self.vocab, "at least 1")?;
        check(self.d_embedding > 0, "d_embedding", self.d_embedding, "at least 1")?;
        check(!self.lstm_sizes.is_empty(), "lstm_sizes", "[]", "at least one layer")?;
        check(
            !self.lstm_sizes.contains(&0),
            "lstm_sizes",
            format!("{:?}", self.lstm_sizes),
            "without zeros",
        )?;
        if self.head.is_mixture() {
            check(self.components > 0, "components", self.components, "at least 1")?;
        } else if self.tied && self.last_lstm() != self.d_embedding {
            return Err(Error::LastLstmSize {
                head: self.head.name(),
                last: self.last_lstm(),
                d_embedding: self.d_embedding,
            });
        }
        if self.head.has_plif() {
            check((1..=1_000_000).contains(&self.knots), "knots", self.knots, "from 1 to 1000000")?;
            let ok = self.plif_bound.is_finite() && self.plif_bound > 0.0;
            check(ok, "plif_bound", self.plif_bound, "finite and above 0")?;
        }
        let parameters = self.num_params();
        check(parameters <= Self::MAX_PARAMETERS, "parameters", parameters, "at most 2^40")?;
        self.dropouts.validate()
    }

    /// The configuration of the output layer. Its decoder matrix always comes from the model, which holds the embedding and,
    /// if `tied` is false, a separate decoder matrix.
    pub fn head_config(&self) -> HeadConfig {
        let (hidden, d, v, k) = (self.last_lstm(), self.d_decoder(), self.vocab, self.components);
        let head = match self.head {
            HeadKind::Softmax => HeadConfig::softmax(d, v),
            HeadKind::Moc => HeadConfig::moc(hidden, d, v, k),
            HeadKind::Mos => HeadConfig::mos(hidden, d, v, k),
            HeadKind::Sigsoftmax => HeadConfig::sigsoftmax(d, v),
            HeadKind::Gss => HeadConfig::gss(d, v),
            HeadKind::Plif => HeadConfig::plif(d, v, self.knots),
            HeadKind::MosPlif => HeadConfig::mos_plif(hidden, d, v, k, self.knots),
        };
        let head = if self.head.has_plif() { head.with_plif_bound(self.plif_bound) } else { head };
        let head = if self.head.is_mixture() { head.with_latent_dropout(self.dropouts.latent) } else { head };
        head.with_tied(true).with_precision(self.precision)
    }

    /// Number of learnt scalars, in closed form. A tied matrix counts once. A number that is too large for its type is that type's
    /// largest.
    ///
    /// ```text
    /// V·d + Σ_layers 4H(I + H + 2) + V [+ V·d_decoder if not tied]
    ///     + K·H_last + K·d·(H_last + 1)   (mixtures)    + knots + 1   (PLIF)    + 2   (GSS)
    /// ```
    pub fn num_params(&self) -> usize {
        let [none, one, two, four] = [0, 1, 2, 4].map(Saturating);
        let [hidden, d, v, k, knots] =
            [self.last_lstm(), self.d_embedding, self.vocab, self.components, self.knots].map(Saturating);
        let sizes = || self.lstm_sizes.iter().copied().map(Saturating);
        let inputs = std::iter::once(d).chain(sizes());
        let lstm = inputs.zip(sizes()).fold(none, |sum, (i, h)| sum + four * h * (i + h + two));
        let decoder = if self.tied { v } else { v * Saturating(self.d_decoder()) + v };
        let mixture = if self.head.is_mixture() { k * hidden + k * d * (hidden + one) } else { none };
        let plif = if self.head.has_plif() { knots + one } else { none };
        let gss = if self.head == HeadKind::Gss { two } else { none };
        (v * d + lstm + decoder + mixture + plif + gss).0
    }

    /// Width of the decoder matrix, which bounds the rank of a head without mixture: `d_embedding`, but the last LSTM's size for
    /// an untied head without mixture, as in the AWD-LSTM programs.
    pub fn d_decoder(&self) -> usize {
        if self.tied || self.head.is_mixture() { self.d_embedding } else { self.last_lstm() }
    }

    /// Hidden size of the last LSTM, the width of the output layer's input. 0 without any layer.
    pub fn last_lstm(&self) -> usize {
        self.lstm_sizes.last().copied().unwrap_or(0)
    }
}
