//! The shape of a model.

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
    /// d, the width of the embedding and of the decoder matrix.
    pub d_embedding: usize,
    /// Hidden size of every LSTM, first to last. The last must be `d_embedding` for a head without mixture.
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
    /// Whether the decoder matrix of the output layer is the embedding matrix.
    pub tied: bool,
    /// What the inputs of matrix products are rounded to.
    #[serde(default)]
    pub precision: Precision,
}

impl ModelConfig {
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

    /// Checks every size and probability, so that [`ModelConfig::try_init`] cannot fail on them.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidSetting`] names the first setting that is out of range and the range,
    /// [`Error::LastLstmSize`] the two sizes that a head without mixture needs to be equal.
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
        } else if self.last_lstm() != self.d_embedding {
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
        self.dropouts.validate()
    }

    /// The configuration of the output layer. Its decoder matrix always comes from the model, which holds the embedding and,
    /// if `tied` is false, a separate decoder matrix.
    pub fn head_config(&self) -> HeadConfig {
        let (hidden, d, v, k) = (self.last_lstm(), self.d_embedding, self.vocab, self.components);
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

    /// Number of learnt scalars, in closed form. A tied matrix counts once.
    ///
    /// ```text
    /// V·d + Σ_layers 4H(I + H + 2) + V [+ V·d if not tied]
    ///     + K·H_last + K·d·(H_last + 1)   (mixtures)    + knots + 1   (PLIF)    + 2   (GSS)
    /// ```
    pub fn num_params(&self) -> usize {
        let (hidden, d, v, k) = (self.last_lstm(), self.d_embedding, self.vocab, self.components);
        let inputs = std::iter::once(&d).chain(&self.lstm_sizes);
        let lstm: usize = inputs.zip(&self.lstm_sizes).map(|(i, h)| 4 * h * (i + h + 2)).sum();
        let decoder = if self.tied { v } else { v * d + v };
        let mixture = if self.head.is_mixture() { k * hidden + k * d * (hidden + 1) } else { 0 };
        let plif = if self.head.has_plif() { self.knots + 1 } else { 0 };
        let gss = if self.head == HeadKind::Gss { 2 } else { 0 };
        v * d + lstm + decoder + mixture + plif + gss
    }

    /// Hidden size of the last LSTM, the width of the output layer's input. 0 without any layer.
    pub fn last_lstm(&self) -> usize {
        self.lstm_sizes.last().copied().unwrap_or(0)
    }
}
