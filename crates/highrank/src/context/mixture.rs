//! The prior/latent pair that Mixture of Contexts and Mixture of Softmaxes share.

use burn::module::{Content, Initializer, Module, Param};
use burn::nn::{Linear, LinearConfig};
use burn::tensor::{Device, Distribution, Tensor};
use highrank_kernels::{Floats, Precision};
use serde::{Deserialize, Serialize};

use super::context_path::ContextPath;
use super::dropout::{self, Latent, LatentDropout};
use super::kind::{ContextKind, ContextModule, ContextOptions, ContextSettings, Contexts, Sizes, is_default};
use super::start::{self, Start};
use super::tokens::Tokens;
use crate::checks::TensorChecks;
use crate::error::{HeadError, at_least_one};
use crate::math::log_softmax;
use crate::ops::{Activation, ContextSource, LatentArgs, wide};
use crate::parameters::{constant, value};

/// Configuration of a [`Mixture`] in a head, whose sizes are the head's.
///
/// ```
/// use burn::module::Initializer;
/// use highrank::context::MixtureConfig;
/// use highrank::{ContextConfig, HeadConfig};
///
/// let mixture = MixtureConfig { initializer: Initializer::Zeros, ..MixtureConfig::new(5) };
/// let head = HeadConfig::new(32, 16, 100).with_context(ContextConfig::MixtureOfSoftmaxes(mixture));
/// assert!(head.validate().is_ok());
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MixtureConfig {
    /// `K`.
    pub components: usize,
    /// What makes a context of `W_h,k g + b_h,k`. Tanh by default.
    #[serde(default, skip_serializing_if = "is_default")]
    pub activation: Activation,
    /// Where contexts and priors start. At random by default.
    #[serde(default, skip_serializing_if = "is_default")]
    pub start: Start,
    /// Of the latent features. None by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropout: Option<LatentDropout>,
    /// Of both layers, weights and biases, that start at random. Uniform in `±1/√H` by default, as Burn's linear layers.
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
/// h_k = dropout(a(W_h,k g + b_h,k))                a the tanh, or another activation
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
    /// `a`.
    #[module(skip)]
    pub activation: Activation,
    /// Of the latent features.
    #[module(skip)]
    pub dropout: Option<LatentDropout>,
}

impl MixtureConfig {
    /// A mixture of `K` contexts, all else by default.
    pub fn new(components: usize) -> Self {
        Self {
            components,
            activation: Activation::Tanh,
            start: Start::Random,
            dropout: None,
            initializer: linear_initializer(),
        }
    }
}

impl Mixture {
    /// `K` linear contexts that all start as a projection `h = g·P` of the hidden state, but for normal noise on their weights, with
    /// priors that start alike. On the projection's device and in its float type.
    ///
    /// Over the same decoder the mixture starts as the softmax of the projected state.
    ///
    /// # Shapes
    /// - projection: `P`, `[H, d]`
    pub fn around(projection: Tensor<2>, components: usize, spread: f64) -> Self {
        let (device, dtype) = (projection.device(), projection.dtype());
        let [d_hidden, d] = projection.dims();
        let weight = Tensor::cat(vec![constant(projection); components], 1);
        // Drawn in f32 or wider: not every backend draws shorter numbers.
        let noise = Distribution::Normal(0.0, spread);
        let noise = Tensor::<2>::random([d_hidden, components * d], noise, (&device, wide(dtype)));
        let latent = Param::from_tensor(weight + noise.cast(dtype));
        let prior = Param::from_tensor(Tensor::zeros([d_hidden, components], (&device, dtype)));
        let bias = Param::from_tensor(Tensor::zeros([components * d], (&device, dtype)));
        Self {
            prior: Linear { weight: prior, bias: None },
            latent: Linear { weight: latent, bias: Some(bias) },
            components,
            activation: Activation::Linear,
            dropout: None,
        }
    }
}

impl ContextSettings for MixtureConfig {
    type Module = Mixture;

    fn validate(&self, Sizes { d_hidden, d_embedding, .. }: Sizes) -> Result<(), HeadError> {
        at_least_one("components", self.components)?;
        if self.start != Start::Random && self.initializer != linear_initializer() {
            let reason = "a mixture that starts at the softmax draws nothing from it: leave it out";
            return Err(HeadError::Unused { option: "the mixture's initializer", reason });
        }
        start::validate(self.start, self.activation, d_hidden, d_embedding)
    }

    fn init(&self, Sizes { d_hidden, d_embedding, .. }: Sizes, device: &Device) -> Mixture {
        if let Start::Softmax { spread } = self.start {
            let projection = match self.activation {
                Activation::Residual => Tensor::zeros([d_hidden, d_embedding], device),
                _ => {
                    let eye = Tensor::eye(d_hidden.max(d_embedding), device);
                    eye.narrow(0, 0, d_hidden).narrow(1, 0, d_embedding)
                }
            };
            let mixture = Mixture::around(projection, self.components, spread);
            return Mixture { activation: self.activation, dropout: self.dropout, ..mixture };
        }
        let linear =
            |d_output| LinearConfig::new(d_hidden, d_output).with_initializer(self.initializer.clone());
        Mixture {
            prior: linear(self.components).with_bias(false).init(device),
            latent: linear(self.components * d_embedding).init(device),
            components: self.components,
            activation: self.activation,
            dropout: self.dropout,
        }
    }

    fn options(&mut self) -> ContextOptions<'_> {
        let Self { dropout, activation, start, .. } = self;
        ContextOptions { dropout: Some(dropout), activation: Some(activation), start: Some(start) }
    }

    fn components(&self) -> usize {
        self.components
    }
}

impl ContextModule for Mixture {
    fn d_hidden(&self) -> Option<usize> {
        Some(self.prior.weight.shape().dims::<2>()[0])
    }

    fn latent(&self) -> Option<Latent<'_>> {
        let [_, features] = self.latent.weight.shape().dims();
        Some(Latent { like: &self.latent.weight, size: [features, 1], dropout: self.dropout })
    }

    fn check(&self, d_embedding: usize, checks: &TensorChecks) -> Result<(), HeadError> {
        let [h, _] = self.prior.weight.shape().dims();
        let features = self.components * d_embedding;
        start::validate(Start::Random, self.activation, h, d_embedding)?;
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
        dropout::display(start::display(content, self.activation), self.dropout)
    }
}

impl Mixture {
    /// The latent layer's inputs, and `log π`, `[N, K]`, in the type of sums.
    fn latent_and_log_prior(
        &self,
        tokens: Tokens,
        precision: Precision,
        path: ContextPath,
    ) -> (LatentArgs, Floats) {
        let log_prior = log_prior(&self.prior, tokens.hidden.clone(), precision, path);
        let (hidden, mask) = dropout::of_tokens(tokens, self.latent());
        let weight = value(&self.latent.weight);
        let latent = LatentArgs {
            activation: self.activation,
            d: weight.dims()[1] / self.components,
            hidden,
            weight: weight.into(),
            bias: self.latent.bias.as_ref().map(|bias| value(bias).into()),
            mask,
            precision,
        };
        (latent, log_prior)
    }
}

/// `log softmax(W_π g)`, `[N, K]`, in the type of sums.
pub(super) fn log_prior(prior: &Linear, hidden: Floats, precision: Precision, path: ContextPath) -> Floats {
    let weight = Floats::from(value(&prior.weight));
    let dtype = wide(weight.dtype());
    log_softmax(path.product(hidden.cast(dtype), weight.cast(dtype), precision))
}

/// The kind of context whose components are mixed before the softmax.
pub struct MixedBefore;

impl ContextKind<Mixture> for MixedBefore {
    const HAS_PRIORS: bool = true;

    fn contexts(mixture: &Mixture, tokens: Tokens, precision: Precision, path: ContextPath) -> Contexts {
        let (latent, log_prior) = mixture.latent_and_log_prior(tokens, precision, path);
        // LoRA may have another float type in one of the two layers.
        let latent = path.latent(latent);
        let mixed = path.mix(log_prior.clone().exp().cast(latent.dtype()), latent);
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

    fn contexts(mixture: &Mixture, tokens: Tokens, precision: Precision, path: ContextPath) -> Contexts {
        let (latent, log_prior) = mixture.latent_and_log_prior(tokens, precision, path);
        Contexts {
            contexts: ContextSource::Latent(latent),
            log_prior: Some(log_prior.clone()),
            component_log_prior: Some(log_prior),
        }
    }
}
