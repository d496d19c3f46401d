//! The prior/latent pair that Mixture of Contexts and Mixture of Softmaxes share.

use burn::module::{Content, Initializer, Module};
use burn::nn::{Linear, LinearConfig};
use burn::tensor::{Device, Tensor};
use highrank_kernels::{Floats, Precision};
use serde::{Deserialize, Serialize};

use super::context_ops::ContextOps;
use super::contexts::Contexts;
use super::dropout::{self, LatentDropout};
use super::kind::{ContextKind, ContextModule, ContextSettings, Sizes};
use super::tokens::Tokens;
use crate::checks::TensorChecks;
use crate::error::HeadError;
use crate::math::log_softmax;
use crate::ops::{ContextSource, LatentArgs, wide};
use crate::parameters::value;

/// Configuration of a [`Mixture`] in a head, whose sizes are the head's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MixtureConfig {
    /// `K`.
    pub components: usize,
    /// Of the latent features. None by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropout: Option<LatentDropout>,
    /// Of both layers, weights and biases. Uniform in `±1/√H` by default, as Burn's linear layers.
    #[serde(default = "linear_initializer")]
    pub initializer: Initializer,
}

/// What Burn's linear layers start from: uniform in `±1/√d_input`.
pub(crate) fn linear_initializer() -> Initializer {
    LinearConfig::new(1, 1).initializer
}

/// `K` latent contexts with their priors (Yang et al., ICLR 2018, arXiv 1711.03953, section 2.3):
///
/// ```text
/// π   = softmax(W_π g)
/// h_k = dropout(tanh(W_h,k g + b_h,k))
/// ```
///
/// Should be created with [`HeadConfig::mos`](crate::HeadConfig::mos) or [`HeadConfig::moc`](crate::HeadConfig::moc).
#[derive(Module, Debug)]
pub struct Mixture {
    /// `W_π`, a linear layer `H → K` without bias.
    pub prior: Linear,
    /// `W_h, b_h`, a linear layer `H → K·d`; component `k` owns outputs `k·d .. (k+1)·d`.
    pub latent: Linear,
    /// `K`.
    pub components: usize,
    /// Of the latent features.
    #[module(skip)]
    pub dropout: Option<LatentDropout>,
}

impl MixtureConfig {
    /// A mixture of `K` contexts, all else by default.
    pub fn new(components: usize) -> Self {
        Self { components, dropout: None, initializer: linear_initializer() }
    }

    /// Sets [`initializer`](Self::initializer).
    pub fn with_initializer(self, initializer: Initializer) -> Self {
        Self { initializer, ..self }
    }
}

impl ContextSettings for MixtureConfig {
    type Module = Mixture;

    fn validate(&self, _: Sizes) -> Result<(), HeadError> {
        match self.components {
            0 => Err(HeadError::ZeroSize { name: "components" }),
            _ => Ok(()),
        }
    }

    fn init(&self, Sizes { d_hidden, d_embedding, .. }: Sizes, device: &Device) -> Mixture {
        let linear =
            |d_output| LinearConfig::new(d_hidden, d_output).with_initializer(self.initializer.clone());
        Mixture {
            prior: linear(self.components).with_bias(false).init(device),
            latent: linear(self.components * d_embedding).init(device),
            components: self.components,
            dropout: self.dropout,
        }
    }

    fn dropout(&mut self) -> Option<&mut Option<LatentDropout>> {
        Some(&mut self.dropout)
    }

    fn components(&self) -> usize {
        self.components
    }
}

impl ContextModule for Mixture {
    fn d_hidden(&self) -> Option<usize> {
        Some(self.prior.weight.shape().dims::<2>()[0])
    }

    fn latent(&self) -> (usize, Option<LatentDropout>) {
        (self.latent.weight.shape().dims::<2>()[1], self.dropout)
    }

    fn draw_mask(&self, sequences: usize) -> Option<Tensor<2>> {
        dropout::draw_values(&value(&self.latent.weight), sequences, self.latent())
    }

    fn check(&self, d_embedding: usize, checks: &TensorChecks) -> Result<(), HeadError> {
        let [h, _] = self.prior.weight.shape().dims();
        let features = self.components * d_embedding;
        checks.param("the mixture's prior.weight", &self.prior.weight, [h, self.components])?;
        checks.param("the mixture's latent.weight", &self.latent.weight, [h, features])?;
        checks.optional("the mixture's latent.bias", self.latent.bias.as_ref(), [features])
    }

    fn display(&self, content: Content) -> Content {
        let [d_hidden, features] = self.latent.weight.shape().dims();
        let content = content
            .add("d_hidden", &d_hidden)
            .add("d_embedding", &(features / self.components))
            .add("components", &self.components);
        dropout::display(content, self.dropout)
    }
}

impl Mixture {
    /// The latent layer's inputs, and `log π`, `[N, K]`, in the type of sums.
    fn latent_and_log_prior(
        &self,
        tokens: Tokens,
        precision: Precision,
        ops: ContextOps,
    ) -> (LatentArgs, Floats) {
        let log_prior = log_prior(&self.prior, tokens.hidden.clone(), precision, ops);
        let weight = value(&self.latent.weight);
        let [_, features] = weight.dims();
        let (hidden, mask) = dropout::of_tokens(&weight, tokens, [features, 1], self.dropout);
        let bias = self.latent.bias.as_ref().map(|bias| value(bias).into());
        let latent = LatentArgs { hidden, weight: weight.into(), bias, mask, precision };
        (latent, log_prior)
    }
}

/// `log softmax(W_π g)`, `[N, K]`, in the type of sums.
pub(super) fn log_prior(prior: &Linear, hidden: Floats, precision: Precision, ops: ContextOps) -> Floats {
    let weight = Floats::from(value(&prior.weight));
    let dtype = wide(weight.dtype());
    log_softmax(ops.product(hidden.cast(dtype), weight.cast(dtype), precision))
}

/// The kind of context whose components are mixed before the softmax.
pub struct MixedBefore;

impl ContextKind<Mixture> for MixedBefore {
    const HAS_PRIORS: bool = true;

    fn contexts(mixture: &Mixture, tokens: Tokens, precision: Precision, ops: ContextOps) -> Contexts {
        let (latent, log_prior) = mixture.latent_and_log_prior(tokens, precision, ops);
        let mixed = ops.mix(log_prior.clone().exp(), ops.latent(latent));
        Contexts {
            contexts: ContextSource::Given(mixed),
            log_prior: None,
            component_log_prior: Some(log_prior),
        }
    }
}

/// The kind of context whose components' distributions are mixed after it.
pub struct MixedAfter;

impl ContextKind<Mixture> for MixedAfter {
    const HAS_PRIORS: bool = true;

    fn distributions(mixture: &Mixture) -> usize {
        mixture.components
    }

    fn contexts(mixture: &Mixture, tokens: Tokens, precision: Precision, ops: ContextOps) -> Contexts {
        let (latent, log_prior) = mixture.latent_and_log_prior(tokens, precision, ops);
        Contexts {
            contexts: ContextSource::Latent(latent),
            log_prior: Some(log_prior.clone()),
            component_log_prior: Some(log_prior),
        }
    }
}
