//! Contexts: how a hidden state `g` becomes the vectors `h_k` that meet the decoder.
//!
//! `g → (h_k [N, K, d], log π_k [N, K])`. A direct head uses `g` itself; the two mixtures share one
//! prior/latent pair and differ only in where they mix. A direct output connection has such a pair whose contexts come from several
//! layers. A Mixtape's words mix its contexts by gates of their own. The contexts of a multi-facet softmax read [`Facets`] in place of
//! the hidden state.

mod connection;
mod context_path;
mod direct;
mod dropout;
mod facets;
mod kind;
mod mixtape;
mod mixture;
mod start;
mod tokens;

pub use connection::{ConnectedLayer, DirectOutputConnection, DirectOutputConnectionConfig};
pub use direct::{Direct, DirectConfig};
pub use dropout::{LatentDropout, TimeAxis};
pub use facets::{Facets, FacetsConfig};
pub(crate) use kind::{Contexts, Sizes};
pub use mixtape::{Mixtape, MixtapeConfig};
pub(crate) use mixture::linear_initializer;
pub use mixture::{Mixture, MixtureConfig};
pub use start::Start;
pub(crate) use tokens::Tokens;

use burn::module::{Content, DisplaySettings, Module, ModuleDisplay};
use burn::tensor::{Device, Tensor};
pub(crate) use context_path::ContextPath;
use highrank_kernels::Precision;
use serde::{Deserialize, Serialize};

use crate::checks::TensorChecks;
use crate::error::HeadError;
use dropout::Latent;
use kind::{ContextKind, ContextModule, ContextOptions, ContextSettings};

pub use crate::ops::{Activation, UnknownActivation};

// A context is one file, with its `mod` and `pub use`, and one line in this list. The file holds the formula, the module with
// its parameters, the configuration and what it computes: `kind.rs` says what it provides, `direct.rs` is a short example.
//
// It hands the sweep a `ContextSource`. `Given` is a tensor of all tokens; of `Latent` and `Gated` the sweep makes the
// contexts block by block. A context that is made there in another way needs a variant of its own in `ops/likelihood.rs`, and
// its part in `likelihood/portable/` (chunk, gradients), `backends/flex/` (call, contexts, few_dimensions), `backends/cube/sweep.rs`
// and `shard/` (head, sweep).
kind::contexts! {
    Direct(DirectConfig, Direct): direct::Direct, "One context, the hidden state itself, `h = g`.";
    MixtureOfContexts(MixtureConfig, Mixture): mixture::MixedBefore, "Mixture of Contexts: one context `Σ_k π_k h_k`, mixed before the softmax. Higher capacity, but the rank bound of a softmax (Yang et al., ICLR 2018, section 3.1, baseline).";
    MixtureOfSoftmaxes(MixtureConfig, Mixture): mixture::MixedAfter, "Mixture of Softmaxes: `K` contexts, whose distributions are mixed (Yang et al., ICLR 2018, section 2.3).";
    DirectOutputConnection(DirectOutputConnectionConfig, DirectOutputConnection): DirectOutputConnection, "Direct output connection: contexts from several layers, whose distributions are mixed (Takase et al., EMNLP 2018).";
    Mixtape(MixtapeConfig, Mixtape): Mixtape, "Mixtape: four contexts that every word mixes by gates of its own, before the softmax (Yang et al., NeurIPS 2019).";
}

impl ContextConfig {
    /// The latent dropout, if there is any.
    pub fn latent_dropout(&self) -> Option<LatentDropout> {
        self.clone().options().dropout.and_then(|dropout| *dropout)
    }
}

impl Context {
    /// The latent dropout, if there is any.
    pub(crate) fn latent_dropout(&self) -> Option<LatentDropout> {
        self.latent()?.dropout
    }

    /// Draws a mask for [`OutputHead::with_latent_mask`](crate::OutputHead::with_latent_mask): the one that the next loss would draw
    /// for hidden states of so many sequences, which [`LatentDropout`] says how to count. `None` where nothing would be dropped:
    /// outside of training, and without latent dropout.
    ///
    /// With it a batch can be computed in parts whose masks are those of the whole.
    ///
    /// # Shapes
    /// - returns `[sequences, K·d]`, on the plain device
    pub fn draw_latent_mask(&self, sequences: usize) -> Option<Tensor<2>> {
        self.latent()?.draw(sequences).map(Tensor::inner)
    }

    /// `K·d`, the number of latent features.
    pub(crate) fn latent_features(&self) -> usize {
        self.latent().map_or(0, |latent| latent.width())
    }

    /// The number of sequences among tokens of such leading dimensions: latent dropout draws a mask for each.
    pub(crate) fn sequences(&self, leading: &[usize]) -> usize {
        let time = self.latent_dropout().map_or(TimeAxis::First, |dropout| dropout.time_axis);
        dropout::sequences(leading, time).0
    }
}
