//! Contexts: how a hidden state `g` becomes the vectors `h_k` that meet the decoder.
//!
//! `g → (h_k [N, K, d], log π_k [N, K])`. A direct head uses `g` itself; the two mixtures share one
//! prior/latent pair and differ only in where they mix.

mod bodies;
mod contexts;
mod dropout;
pub mod latent;
pub mod mixed;
mod mixture;
mod tokens;

pub use contexts::Contexts;
pub use dropout::TimeAxis;
pub(crate) use mixture::linear_initializer;
pub use mixture::{Mixture, MixtureConfig};
pub use tokens::Tokens;

use crate::ops::ContextSource;
use bodies::Bodies;
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
}

impl ContextConfig {
    /// `K`, the number of latent contexts: 1 for a direct head.
    pub fn components(&self) -> usize {
        match *self {
            Self::Direct => 1,
            Self::MixtureOfContexts { components } | Self::MixtureOfSoftmaxes { components } => components,
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
pub enum Context {
    /// `h = g`.
    Direct(Direct),
    /// `h = Σ_k π_k h_k`: higher capacity, but a softmax with its rank bound (Yang et al., section 3.1, baseline).
    MixtureOfContexts(Mixture),
    /// `K` contexts with priors (Yang et al., section 2.3).
    MixtureOfSoftmaxes(Mixture),
}

impl Context {
    /// The contexts of hidden states, composed of Burn's operations, with latent dropout while training; those of a Mixture
    /// of Softmaxes as what they are made of.
    ///
    /// # Shapes
    /// - hidden: `[.., H]`; which dimension is time, for latent dropout, says [`TimeAxis`]
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
            Self::Direct(_) => Contexts { contexts: ContextSource::Given(tokens.hidden), log_prior: None },
            Self::MixtureOfContexts(mixture) => mixture.mix(tokens, bodies),
            Self::MixtureOfSoftmaxes(mixture) => mixture.components_of(tokens, bodies),
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
        }
    }
}
