//! The shape of a model.

use std::num::Saturating;

use awd_lstm::HeadKind;
use runs::error::{Result, check};
use serde::{Deserialize, Serialize};

use crate::data::SPECIAL;

/// The shape of a [`Seq2Seq`](crate::Seq2Seq), whose formulas these names are from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelConfig {
    /// V, the number of words.
    pub vocab: usize,
    /// e, the width of the embedding.
    pub d_embedding: usize,
    /// Hidden size of the utterance encoder in each direction.
    pub d_utterance: usize,
    /// Hidden size of the context encoder.
    pub d_context: usize,
    /// H, the hidden size of the decoder.
    pub d_decoder: usize,
    /// Entries of a context.
    pub window: usize,
    /// The output layer. Its decoder matrix is its own.
    pub head: HeadKind,
    /// K, the number of mixture components. Heads without mixture ignore it.
    pub components: usize,
    /// Number of pieces of the PLIF. Heads without one ignore it.
    pub knots: usize,
    /// T: the PLIF is piecewise linear on [-T, T]. Heads without one ignore it.
    pub plif_bound: f64,
    /// Probability of dropping a feature while training, of embedded words, of `u_j` and of the output of the decoder, in `[0, 1)`.
    pub dropout: f64,
    /// All weights are uniform in ± this at the start. Biases are 0, but 1 for forget gates.
    pub init: f64,
}

impl ModelConfig {
    /// Checks every size, their [number of parameters](Self::num_params) and every probability.
    ///
    /// # Errors
    /// [`InvalidSetting`](runs::Error::InvalidSetting) names the first setting that is out of range and the range,
    /// [`Head`](runs::Error::Head) what the output layer cannot take.
    pub fn validate(&self) -> Result<()> {
        check(self.vocab > SPECIAL.len(), "vocab", self.vocab, "at least 6")?;
        for (name, size) in [
            ("d_embedding", self.d_embedding),
            ("d_utterance", self.d_utterance),
            ("d_context", self.d_context),
            ("d_decoder", self.d_decoder),
            ("window", self.window),
        ] {
            check(size > 0, name, size, "at least 1")?;
        }
        let expected = "one that reads the last layer alone: the decoder has one layer";
        check(!self.head.reads_layers(), "head", self.head, expected)?;
        let expected = "one over all words together: responses have a small vocabulary";
        check(self.head != HeadKind::Adaptive, "head", self.head, expected)?;
        let expected = "one without gates for words: sizes are solved for without them";
        check(self.head != HeadKind::Mixtape, "head", self.head, expected)?;
        if self.head.is_mixture() {
            let expected = "at least 1, and so few that latent contexts have a feature";
            check(self.components > 0 && self.d_latent() > 0, "components", self.components, expected)?;
        }
        if self.head.has_plif() {
            check((1..=1_000_000).contains(&self.knots), "knots", self.knots, "from 1 to 1000000")?;
            let ok = self.plif_bound.is_finite() && self.plif_bound > 0.0;
            check(ok, "plif_bound", self.plif_bound, "finite and above 0")?;
        }
        let parameters = self.num_params();
        let most = awd_lstm::ModelConfig::MAX_PARAMETERS;
        check(parameters <= most, "parameters", parameters, "at most 2^40")?;
        check((0.0..1.0).contains(&self.dropout), "dropout", self.dropout, "in [0, 1)")?;
        check(self.init.is_finite() && self.init > 0.0, "init", self.init, "finite and above 0")?;
        Ok(self.head_config().validate()?)
    }

    /// d, the width of the head's decoder matrix: H without a mixture, the [largest](largest_latent) that makes a mixture no larger
    /// than a softmax with one.
    pub fn d_latent(&self) -> usize {
        match self.head.is_mixture() {
            true => largest_latent(self.vocab, self.d_decoder, self.components),
            false => self.d_decoder,
        }
    }

    /// Number of learned scalars of the head alone, as [`head_params`].
    pub fn head_params(&self) -> usize {
        let components = if self.head.is_mixture() { self.components } else { 0 };
        let mixture = head_params(self.vocab, self.d_decoder, self.d_latent(), components);
        let of_map = match self.head {
            HeadKind::Gss => 2,
            head if head.has_plif() => self.knots.saturating_add(1),
            _ => 0,
        };
        mixture.saturating_add(of_map)
    }

    /// Number of learned scalars, in closed form, with two bias vectors for an LSTM. A number that is too large for its type is that
    /// type's largest.
    ///
    /// ```text
    /// V·e + 2·L(e, d_utterance) + L(2·d_utterance + 2, d_context) + H·(d_context + 1) + L(e, H) + head
    /// L(I, H) = 4H(I + H + 2)
    /// ```
    pub fn num_params(&self) -> usize {
        let [vocab, embedding, utterance, context, hidden] =
            [self.vocab, self.d_embedding, self.d_utterance, self.d_context, self.d_decoder].map(Saturating);
        let [one, two, four] = [1, 2, 4].map(Saturating);
        let lstm = |input: Saturating<usize>, hidden| four * hidden * (input + hidden + two);
        let encoder = two * lstm(embedding, utterance) + lstm(two * utterance + two, context);
        let decoder = hidden * (context + one) + lstm(embedding, hidden);
        (vocab * embedding + encoder + decoder + Saturating(self.head_params())).0
    }
}

/// The largest d with which a mixture of K components on H units and V words is no larger than a softmax on H units.
///
/// ```text
/// V·d + V + K·H + K·d·(H + 1) ≤ V·H + V    ⟺    d ≤ (V·H − K·H) / (V + K·(H + 1))
/// ```
///
/// 0 if there is none.
///
/// ```
/// use seq2seq::config::{head_params, largest_latent};
///
/// let d = largest_latent(10_002, 400, 10);
/// assert_eq!(d, 285);
/// assert_eq!(head_params(10_002, 400, d, 10), 4_007_422);
/// assert_eq!(head_params(10_002, 400, 400, 0), 4_010_802);
/// ```
pub fn largest_latent(vocab: usize, hidden: usize, components: usize) -> usize {
    // In 128 bits no product of two sizes overflows.
    let [v, h, k] = [vocab, hidden, components].map(|size| size as u128);
    let room = v.saturating_sub(k) * h;
    let latent = room.checked_div(v + k * (h + 1)).unwrap_or(0);
    // It is less than H.
    latent as usize
}

/// Number of learned scalars of a head with its own decoder matrix `[V, d]` and bias, and for K ≥ 1 components the prior `[K, H]`
/// without bias and the latent layer `[K·d, H]` with bias. Saturates.
///
/// ```text
/// V·d + V + K·H + K·d·(H + 1)
/// ```
pub fn head_params(vocab: usize, hidden: usize, latent: usize, components: usize) -> usize {
    let [v, h, d, k, one] = [vocab, hidden, latent, components, 1].map(Saturating);
    (v * d + v + k * h + k * d * (h + one)).0
}
