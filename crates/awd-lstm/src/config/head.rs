//! The output layers by name.

use serde::{Deserialize, Serialize};

/// The output layer of a language model.
///
/// Written and parsed as `softmax`, `moc`, `mos`, `doc`, `mixtape`, `sigsoftmax`, `gss`, `plif`, `mos-plif` and `adaptive`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HeadKind {
    /// Plain softmax over the logits, with a bias: rank at most d + 2.
    Softmax,
    /// Mixture of Contexts: mixes before the softmax, rank at most d + 2, too (arXiv 1711.03953, section 2.4).
    Moc,
    /// Mixture of Softmaxes: mixes probabilities, any rank (arXiv 1711.03953, section 2.3).
    Mos,
    /// Direct output connection: a Mixture of Softmaxes whose contexts come from several layers (Takase et al., EMNLP 2018).
    Doc,
    /// Mixtape: one softmax over logits that every word mixes of four contexts by gates of its own (Yang et al., NeurIPS 2019).
    Mixtape,
    /// Softmax of `z + log sigmoid(z)` (Kanai et al., 2018).
    Sigsoftmax,
    /// Generalised sigsoftmax: sigsoftmax with a learned slope and a learned centre (Parthiban et al., 2021).
    Gss,
    /// Softmax after a learned increasing piecewise linear function, the PLIF (arXiv 1902.08077, section 4).
    Plif,
    /// Mixture of Softmaxes whose logits pass through one shared PLIF (arXiv 1902.08077, section 5).
    MosPlif,
    /// Softmax with clusters of rare words (Grave et al., arXiv 1609.04309).
    Adaptive,
}

impl HeadKind {
    /// Whether the head has K components with a prior and latent contexts.
    pub fn is_mixture(self) -> bool {
        matches!(self, Self::Moc | Self::Mos | Self::Doc | Self::MosPlif)
    }

    /// Whether the head makes latent contexts of width d of the last LSTM's output, of whatever size that is: a mixture or a
    /// Mixtape.
    pub fn has_contexts(self) -> bool {
        self.is_mixture() || self == Self::Mixtape
    }

    /// Whether the head reads the outputs of several layers.
    pub fn reads_layers(self) -> bool {
        self == Self::Doc
    }

    /// Whether the head has a PLIF, hence knots and a bound.
    pub fn has_plif(self) -> bool {
        matches!(self, Self::Plif | Self::MosPlif)
    }
}

runs::by_name! {
    HeadKind, "head":
    Softmax => "softmax", Moc => "moc", Mos => "mos", Doc => "doc", Mixtape => "mixtape", Sigsoftmax => "sigsoftmax",
    Gss => "gss", Plif => "plif", MosPlif => "mos-plif", Adaptive => "adaptive",
}
