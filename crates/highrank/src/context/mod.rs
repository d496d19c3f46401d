//! Contexts: how a hidden state `g` becomes the vectors `h_k` that meet the decoder.
//!
//! `g → (h_k [N, K, d], log π_k [N, K])`. A direct head uses `g` itself; the two mixtures share one
//! prior/latent pair and differ only in where they mix. A direct output connection has such a pair whose contexts come from several
//! layers. A Mixtape's words mix its contexts by gates of their own.

mod bodies;
mod connection;
mod contexts;
mod dropout;
mod mixtape;
mod mixture;
mod tokens;

pub use connection::{ConnectedLayer, DirectOutputConnection, DirectOutputConnectionConfig};
pub use contexts::Contexts;
pub use dropout::TimeAxis;
pub use mixtape::{Mixtape, MixtapeConfig};
pub(crate) use mixture::linear_initializer;
pub use mixture::{Mixture, MixtureConfig};
pub use tokens::Tokens;

use crate::ops::ContextSource;
pub(crate) use bodies::Bodies;
use burn::config::Config;
use burn::module::{Content, DisplaySettings, Module, ModuleDisplay};
use burn::tensor::Tensor;

/// Which context a head uses.
#[derive(Config, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ContextConfig {
    /// One context, the hidden state itself.
    Direct,
    /// Mixture of Contexts: one context `Σ_k π_k h_k`, mixed before the softmax.
    MixtureOfContexts {
        /// `K`.
        components: usize,
    },
    /// Mixture of Softmaxes: `K` contexts, whose distributions are mixed.
    MixtureOfSoftmaxes {
        /// `K`.
        components: usize,
    },
    /// Direct output connection: contexts from several layers, whose distributions are mixed.
    DirectOutputConnection {
        /// The layers, lowest first; the last one gives the priors.
        layers: Vec<ConnectedLayer>,
    },
    /// Mixtape: four contexts that every word mixes by gates of its own, before the softmax.
    Mixtape {
        /// `S`, the words `0..S` have a gate of their own and all others share one.
        frequent: usize,
        /// `G`, width of a gate's features.
        d_gate: usize,
    },
}

impl ContextConfig {
    /// `K`, the number of latent contexts: 1 for a direct head.
    pub fn components(&self) -> usize {
        match self {
            Self::Direct => 1,
            Self::MixtureOfContexts { components } | Self::MixtureOfSoftmaxes { components } => *components,
            Self::DirectOutputConnection { layers } => layers.iter().map(|layer| layer.components).sum(),
            Self::Mixtape { .. } => mixtape::COMPONENTS,
        }
    }
}

/// The hidden state itself: `h = g`.
#[derive(Module, Debug, Default)]
pub struct Direct;

/// The map from hidden states to contexts.
#[derive(Module, Debug)]
#[module(custom_display)]
#[non_exhaustive]
// A model has one of them.
#[allow(clippy::large_enum_variant)]
pub enum Context {
    /// `h = g`.
    Direct(Direct),
    /// `h = Σ_k π_k h_k`: higher capacity, but a softmax with its rank bound (Yang et al., section 3.1, baseline).
    MixtureOfContexts(Mixture),
    /// `K` contexts with priors (Yang et al., section 2.3).
    MixtureOfSoftmaxes(Mixture),
    /// `K` contexts from several layers (Takase et al., EMNLP 2018).
    DirectOutputConnection(DirectOutputConnection),
    /// Four contexts that every word mixes by gates of its own (Yang et al., NeurIPS 2019).
    Mixtape(Mixtape),
}

impl Context {
    /// Width of a hidden state, if the context has weights that say it.
    pub(crate) fn d_hidden(&self) -> Option<usize> {
        match self {
            Self::Direct(_) => None,
            Self::MixtureOfContexts(mixture) | Self::MixtureOfSoftmaxes(mixture) => {
                Some(mixture.prior.weight.shape().dims::<2>()[0])
            }
            Self::DirectOutputConnection(connection) => Some(connection.d_hidden()),
            Self::Mixtape(mixtape) => Some(mixtape.d_hidden()),
        }
    }

    /// `K·d`, the number of latent features that a dropout mask covers; `None` without latent dropout.
    pub(crate) fn dropped_features(&self) -> Option<usize> {
        let (features, dropout) = match self {
            Self::Direct(_) => return None,
            Self::MixtureOfContexts(mixture) | Self::MixtureOfSoftmaxes(mixture) => {
                (mixture.latent.weight.shape().dims::<2>()[1], mixture.dropout)
            }
            Self::DirectOutputConnection(connection) => (connection.features(), connection.dropout),
            Self::Mixtape(mixtape) => (mixtape.features(), mixtape.dropout),
        };
        (dropout > 0.0).then_some(features)
    }

    /// A mask for the latent dropout of so many sequences, `[sequences, K·d]`; none if nothing is dropped.
    pub(crate) fn draw_mask(&self, sequences: usize) -> Option<Tensor<2>> {
        match self {
            Self::Direct(_) => None,
            Self::MixtureOfContexts(mixture) | Self::MixtureOfSoftmaxes(mixture) => {
                mixture.draw_mask(sequences)
            }
            Self::DirectOutputConnection(connection) => connection.draw_mask(sequences),
            Self::Mixtape(mixtape) => mixtape.draw_mask(sequences),
        }
    }

    /// The number of sequences among tokens of such leading dimensions: latent dropout draws a mask for each.
    pub(crate) fn sequences(&self, leading: &[usize]) -> usize {
        let time = match self {
            Self::Direct(_) => TimeAxis::First,
            Self::MixtureOfContexts(mixture) | Self::MixtureOfSoftmaxes(mixture) => mixture.time_axis,
            Self::DirectOutputConnection(connection) => connection.time_axis,
            Self::Mixtape(mixtape) => mixtape.time_axis,
        };
        dropout::sequences(leading, time).0
    }

    /// Whether there are components whose priors are those of all words, as
    /// [`LossOptions::with_prior_cv`](crate::LossOptions::with_prior_cv) needs them.
    pub fn has_priors(&self) -> bool {
        !matches!(self, Self::Direct(_) | Self::Mixtape(_))
    }

    /// The contexts of hidden states, composed of Burn's operations, with latent dropout while training; those of a Mixture
    /// of Softmaxes as what they are made of.
    ///
    /// # Shapes
    /// - hidden: `[.., H]`, of a direct output connection `[.., Σ_l H_l]`; which dimension is time, for latent dropout, says
    ///   [`TimeAxis`]
    /// - output: `h_k` and `[N, K]`, `N` the product of the leading dimensions
    pub fn forward<const D: usize>(&self, hidden: Tensor<D>) -> Contexts {
        self.forward_composed(Tokens::all(hidden))
    }

    /// As [`forward`](Self::forward), of tokens.
    pub fn forward_composed(&self, tokens: Tokens) -> Contexts {
        self.forward_by(tokens, Bodies::Composed)
    }

    /// As [`forward`](Self::forward), by the native products and latent layer of the device where it has them.
    pub fn forward_native(&self, tokens: Tokens) -> Contexts {
        self.forward_by(tokens, Bodies::Native)
    }

    fn forward_by(&self, tokens: Tokens, bodies: Bodies) -> Contexts {
        match self {
            Self::Direct(_) => Contexts {
                contexts: ContextSource::Given(tokens.hidden),
                log_prior: None,
                component_log_prior: None,
            },
            Self::MixtureOfContexts(mixture) => mixture.mix(tokens, bodies),
            Self::MixtureOfSoftmaxes(mixture) => mixture.components_of(tokens, bodies),
            Self::DirectOutputConnection(connection) => connection.components_of(tokens, bodies),
            Self::Mixtape(mixtape) => mixtape.gated(tokens, bodies),
        }
    }
}

impl ModuleDisplay for Context {
    fn custom_settings(&self) -> Option<DisplaySettings> {
        DisplaySettings::new().with_new_line_after_attribute(false).optional()
    }

    fn custom_content(&self, content: Content) -> Option<Content> {
        match self {
            Self::Direct(_) => content.set_top_level_type("Direct").optional(),
            Self::MixtureOfContexts(mixture) => {
                mixture.custom_content(content.set_top_level_type("MixtureOfContexts"))
            }
            Self::MixtureOfSoftmaxes(mixture) => {
                mixture.custom_content(content.set_top_level_type("MixtureOfSoftmaxes"))
            }
            Self::DirectOutputConnection(connection) => {
                connection.custom_content(content.set_top_level_type("DirectOutputConnection"))
            }
            Self::Mixtape(mixtape) => mixtape.custom_content(content.set_top_level_type("Mixtape")),
        }
    }
}
