//! The prior/latent pair that Mixture of Contexts and Mixture of Softmaxes share.

use burn::module::{Content, Initializer, Module};
use burn::nn::{Linear, LinearConfig};
use burn::tensor::{Device, Tensor};
use highrank_kernels::{Floats, Precision};
use serde::{Deserialize, Serialize};

use super::bodies::Bodies;
use super::contexts::Contexts;
use super::dropout::{self, LatentDropout, TimeAxis};
use super::kind::{ContextKind, Sizes};
use super::tokens::Tokens;
use crate::error::HeadError;
use crate::fit::Fit;
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

    /// Sets [`dropout`](Self::dropout).
    pub fn with_dropout(self, probability: f64, time_axis: TimeAxis) -> Self {
        Self { dropout: Some(LatentDropout { probability, time_axis }), ..self }
    }

    /// Sets [`initializer`](Self::initializer).
    pub fn with_initializer(self, initializer: Initializer) -> Self {
        Self { initializer, ..self }
    }

    pub(super) fn init(&self, d_hidden: usize, d_embedding: usize, device: &Device) -> Mixture {
        let linear =
            |d_output| LinearConfig::new(d_hidden, d_output).with_initializer(self.initializer.clone());
        Mixture {
            prior: linear(self.components).with_bias(false).init(device),
            latent: linear(self.components * d_embedding).init(device),
            components: self.components,
            dropout: self.dropout,
        }
    }
}

impl Mixture {
    /// `H`.
    pub(super) fn d_hidden(&self) -> usize {
        self.prior.weight.shape().dims::<2>()[0]
    }

    /// `K·d`.
    pub(super) fn features(&self) -> usize {
        self.latent.weight.shape().dims::<2>()[1]
    }

    /// Checks the parameters for a decoder of a width.
    pub(super) fn check(&self, d_embedding: usize, fit: &Fit) -> Result<(), HeadError> {
        let (h, k) = (self.d_hidden(), self.components);
        fit.param("the mixture's prior.weight", &self.prior.weight, [h, k])?;
        fit.param("the mixture's latent.weight", &self.latent.weight, [h, k * d_embedding])?;
        fit.optional("the mixture's latent.bias", self.latent.bias.as_ref(), [k * d_embedding])
    }

    /// A mask for the latent dropout of so many sequences, `[sequences, K·d]`; none if nothing is dropped.
    pub(super) fn draw_mask(&self, sequences: usize) -> Option<Tensor<2>> {
        let weight = value(&self.latent.weight);
        let [_, features] = weight.dims();
        dropout::draw_values(&weight, [sequences, features], self.dropout)
    }

    /// All components with their priors, for a Mixture of Softmaxes.
    pub(super) fn components_of(&self, tokens: Tokens, precision: Precision, bodies: Bodies) -> Contexts {
        let (latent, log_prior) = self.latent_and_log_prior(tokens, precision, bodies);
        Contexts {
            contexts: ContextSource::Latent(latent),
            log_prior: Some(log_prior.clone()),
            component_log_prior: Some(log_prior),
        }
    }

    /// The one mixed context of a Mixture of Contexts.
    pub(super) fn mix(&self, tokens: Tokens, precision: Precision, bodies: Bodies) -> Contexts {
        let (latent, log_prior) = self.latent_and_log_prior(tokens, precision, bodies);
        let latent = bodies.latent(latent);
        let mixed = bodies.mix(log_prior.clone().exp(), latent);
        Contexts {
            contexts: ContextSource::Given(mixed),
            log_prior: None,
            component_log_prior: Some(log_prior),
        }
    }

    /// The latent layer's inputs, and `log π`, `[N, K]`, in the type of sums.
    fn latent_and_log_prior(
        &self,
        tokens: Tokens,
        precision: Precision,
        bodies: Bodies,
    ) -> (LatentArgs, Floats) {
        let log_prior = log_prior(&self.prior, tokens.hidden.clone(), precision, bodies);
        let weight = value(&self.latent.weight);
        let [_, features] = weight.dims();
        let (hidden, mask) = dropout::of_tokens(&weight, tokens, [features, 1], self.dropout);
        let bias = self.latent.bias.as_ref().map(|bias| value(bias).into());
        let latent = LatentArgs { hidden, weight: weight.into(), bias, mask, precision };
        (latent, log_prior)
    }
}

/// `log softmax(W_π g)`, `[N, K]`, in the type of sums.
pub(super) fn log_prior(prior: &Linear, hidden: Floats, precision: Precision, bodies: Bodies) -> Floats {
    let weight = Floats::from(value(&prior.weight));
    let dtype = wide(weight.dtype());
    log_softmax(bodies.product(hidden.cast(dtype), weight.cast(dtype), precision))
}

/// The kind of context whose components are mixed before the softmax.
pub struct MixedBefore;

/// The kind of context whose components' distributions are mixed after it.
pub struct MixedAfter;

/// What both kinds share.
macro_rules! kind_of_mixture {
    ($kind:ident, $contexts:ident, $distributions:expr) => {
        impl ContextKind for $kind {
            type Config = MixtureConfig;
            type Module = Mixture;

            const HAS_PRIORS: bool = true;

            fn validate(config: &MixtureConfig, _: Sizes) -> Result<(), HeadError> {
                match config.components {
                    0 => Err(HeadError::ZeroSize { name: "components" }),
                    _ => Ok(()),
                }
            }

            fn init(config: &MixtureConfig, sizes: Sizes, device: &Device) -> Mixture {
                config.init(sizes.d_hidden, sizes.d_embedding, device)
            }

            fn dropout(config: &mut MixtureConfig) -> Option<&mut Option<LatentDropout>> {
                Some(&mut config.dropout)
            }

            fn components(config: &MixtureConfig) -> usize {
                config.components
            }

            fn d_hidden(module: &Mixture) -> Option<usize> {
                Some(module.d_hidden())
            }

            fn latent(module: &Mixture) -> (usize, Option<LatentDropout>) {
                (module.features(), module.dropout)
            }

            fn draw_mask(module: &Mixture, sequences: usize) -> Option<Tensor<2>> {
                module.draw_mask(sequences)
            }

            fn distributions(module: &Mixture) -> usize {
                let of: fn(&Mixture) -> usize = $distributions;
                of(module)
            }

            fn check(module: &Mixture, d_embedding: usize, fit: &Fit) -> Result<(), HeadError> {
                module.check(d_embedding, fit)
            }

            fn contexts(module: &Mixture, tokens: Tokens, precision: Precision, bodies: Bodies) -> Contexts {
                module.$contexts(tokens, precision, bodies)
            }

            fn display(module: &Mixture, content: Content) -> Content {
                let content = content
                    .add("d_hidden", &module.d_hidden())
                    .add("d_embedding", &(module.features() / module.components))
                    .add("components", &module.components);
                dropout::display(content, module.dropout)
            }
        }
    };
}
kind_of_mixture!(MixedBefore, mix, |_| 1);
kind_of_mixture!(MixedAfter, components_of, |mixture| mixture.components);
