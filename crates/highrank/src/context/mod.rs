//! Contexts: how a hidden state `g` becomes the vectors `h_k` that meet the decoder.
//!
//! `g → (h_k [N, K, d], log π_k [N, K])`. A direct head uses `g` itself; the two mixtures share one
//! prior/latent pair and differ only in where they mix.

mod dropout;
pub mod latent;
mod mixture;

pub use mixture::{Mixture, MixtureConfig};

use burn::config::Config;
use burn::module::Module;
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use crate::likelihood::LikelihoodBackend;
use crate::operations::Operations;
use latent::LatentArgs;

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
#[derive(Module, Clone, Debug, Default)]
pub struct Direct;

/// The map from hidden states to contexts.
#[derive(Module, Debug)]
#[non_exhaustive]
pub enum Context<B: Backend> {
    /// `h = g`.
    Direct(Direct),
    /// `h = Σ_k π_k h_k`: higher capacity, but a softmax with its rank bound (Yang et al., section 3.1, baseline).
    MixtureOfContexts(Mixture<B>),
    /// `K` contexts with priors (Yang et al., section 2.3).
    MixtureOfSoftmaxes(Mixture<B>),
}

/// The contexts `h_k` of a run of tokens, or what they are made of.
#[derive(Debug, Clone)]
pub enum ContextSource<B: Backend> {
    /// `h_k`, shape `[N·K, d]`: row `n·K + k` is component `k` of token `n`.
    Given(Tensor<B, 2>),
    /// Row `n` of the [latent layer](latent)'s output, `[N, K·d]`, holds the components of token `n` side by side.
    Latent(LatentArgs<B>),
}

impl<B: Backend> ContextSource<B> {
    /// The contexts as a tensor `[N·K, d]`.
    pub fn tensor(self, d: usize) -> Tensor<B, 2> {
        self.tensor_by(d, latent::portable::latent)
    }

    /// As [`tensor`](Self::tensor), with the given form of the latent layer.
    pub(crate) fn tensor_by(self, d: usize, latent: fn(LatentArgs<B>) -> Tensor<B, 2>) -> Tensor<B, 2> {
        match self {
            Self::Given(contexts) => contexts,
            Self::Latent(args) => {
                let latent = latent(args);
                let elements = latent.shape().num_elements();
                latent.reshape([elements / d, d])
            }
        }
    }
}

/// Contexts of a run of tokens, ready for the decoder.
#[derive(Debug, Clone)]
pub struct Contexts<B: Backend> {
    /// `h_k`.
    pub contexts: ContextSource<B>,
    /// `log π_k`, shape `[N, K]`; `None` where there is one component only.
    pub log_prior: Option<Tensor<B, 2>>,
}

impl<B: Backend> Context<B> {
    /// The contexts of hidden states, with latent dropout while training; those of a Mixture of Softmaxes as what they
    /// are made of.
    ///
    /// # Shapes
    /// - hidden: `[.., H]`, with dropout `[T, .., H]` for more than two dimensions
    /// - output: `h_k` and `[N, K]`, `N` the product of the leading dimensions
    pub fn forward<const D: usize>(&self, hidden: Tensor<B, D>) -> Contexts<B> {
        self.forward_by(hidden, Operations::COMPOSED)
    }

    fn forward_by<const D: usize>(&self, hidden: Tensor<B, D>, operations: Operations<B>) -> Contexts<B> {
        match self {
            Self::Direct(_) => {
                let width = hidden.dims()[D - 1];
                let tokens = hidden.shape().num_elements() / width;
                Contexts { contexts: ContextSource::Given(hidden.reshape([tokens, width])), log_prior: None }
            }
            Self::MixtureOfContexts(mixture) => mixture.mix(hidden, operations),
            Self::MixtureOfSoftmaxes(mixture) => mixture.components_of(hidden, operations),
        }
    }
}

impl<B: LikelihoodBackend> Context<B> {
    /// As [`forward`](Self::forward), with the backend's own products and [latent layer](latent).
    pub fn forward_fused<const D: usize>(&self, hidden: Tensor<B, D>) -> Contexts<B> {
        self.forward_by(hidden, Operations::NATIVE)
    }
}
