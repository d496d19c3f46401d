//! The prior/latent pair that Mixture of Contexts and Mixture of Softmaxes share.

use std::fmt::{self, Display, Formatter};

use burn::config::{Config, config_to_json};
use burn::module::{Content, DisplaySettings, Initializer, Module, ModuleDisplay};
use burn::nn::{Linear, LinearConfig};
use burn::tensor::{Device, Tensor};
use highrank_kernels::{Floats, Precision};
use serde::{Deserialize, Serialize};

use super::bodies::Bodies;
use super::contexts::Contexts;
use super::dropout::{self, TimeAxis};
use super::tokens::Tokens;
use crate::math::log_softmax;
use crate::ops::{ContextSource, LatentArgs, wide};
use crate::parameters::value;

/// Configuration of a [`Mixture`].
// Not by the derive macro, whose configurations cannot read a file that was written before a field was added.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MixtureConfig {
    /// `H`, width of the hidden state.
    pub d_hidden: usize,
    /// `d`, width of a latent context.
    pub d_embedding: usize,
    /// `K`.
    pub components: usize,
    /// Probability of dropping a latent feature while training, in `[0, 1)`. 0 by default.
    pub dropout: f64,
    /// Which leading dimension of a hidden state is time, for the dropout. The first by default.
    #[serde(default)]
    pub time_axis: TimeAxis,
    /// Of both layers, weights and biases. Uniform in `±1/√H` by default, as Burn's linear layers.
    #[serde(default = "linear_initializer")]
    pub initializer: Initializer,
    /// Of the products. Full by default.
    pub precision: Precision,
}

impl Config for MixtureConfig {}

impl Display for MixtureConfig {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&config_to_json(self))
    }
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
/// Should be created with [`MixtureConfig`].
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct Mixture {
    /// `W_π`, a linear layer `H → K` without bias.
    pub prior: Linear,
    /// `W_h, b_h`, a linear layer `H → K·d`; component `k` owns outputs `k·d .. (k+1)·d`.
    pub latent: Linear,
    /// `K`.
    pub components: usize,
    /// Probability of dropping a latent feature while training.
    pub dropout: f64,
    /// Which leading dimension of a hidden state is time, for the dropout.
    #[module(skip)]
    pub time_axis: TimeAxis,
    /// Of the products.
    #[module(skip)]
    pub precision: Precision,
}

impl MixtureConfig {
    /// A mixture of `K` contexts of width `d` for hidden states of width `H`, all else by default.
    pub fn new(d_hidden: usize, d_embedding: usize, components: usize) -> Self {
        Self {
            d_hidden,
            d_embedding,
            components,
            dropout: 0.0,
            time_axis: TimeAxis::First,
            initializer: linear_initializer(),
            precision: Precision::Full,
        }
    }

    /// Sets [`dropout`](Self::dropout).
    pub fn with_dropout(self, dropout: f64) -> Self {
        Self { dropout, ..self }
    }

    /// Sets [`time_axis`](Self::time_axis).
    pub fn with_time_axis(self, time_axis: TimeAxis) -> Self {
        Self { time_axis, ..self }
    }

    /// Sets [`initializer`](Self::initializer).
    pub fn with_initializer(self, initializer: Initializer) -> Self {
        Self { initializer, ..self }
    }

    /// Sets [`precision`](Self::precision).
    pub fn with_precision(self, precision: Precision) -> Self {
        Self { precision, ..self }
    }

    /// Creates the mixture, weights uniform in `±1/√H` if no other initialiser is set.
    pub fn init(&self, device: &Device) -> Mixture {
        let linear =
            |d_output| LinearConfig::new(self.d_hidden, d_output).with_initializer(self.initializer.clone());
        Mixture {
            prior: linear(self.components).with_bias(false).init(device),
            latent: linear(self.components * self.d_embedding).init(device),
            components: self.components,
            dropout: self.dropout,
            time_axis: self.time_axis,
            precision: self.precision,
        }
    }
}

impl Mixture {
    /// A mask for the latent dropout of so many sequences, `[sequences, K·d]`; none if nothing is dropped.
    pub(super) fn draw_mask(&self, sequences: usize) -> Option<Tensor<2>> {
        let weight = value(&self.latent.weight);
        let [_, features] = weight.dims();
        dropout::draw(&weight, [sequences, features], self.dropout)
    }

    /// All components with their priors, for a Mixture of Softmaxes.
    pub(super) fn components_of(&self, tokens: Tokens, bodies: Bodies) -> Contexts {
        let (latent, log_prior) = self.latent_and_log_prior(tokens, bodies);
        Contexts {
            contexts: ContextSource::Latent(latent),
            log_prior: Some(log_prior.clone()),
            component_log_prior: Some(log_prior),
        }
    }

    /// The one mixed context of a Mixture of Contexts.
    pub(super) fn mix(&self, tokens: Tokens, bodies: Bodies) -> Contexts {
        let (latent, log_prior) = self.latent_and_log_prior(tokens, bodies);
        let latent = bodies.latent(latent);
        let mixed = bodies.mix(log_prior.clone().exp(), latent);
        Contexts {
            contexts: ContextSource::Given(mixed),
            log_prior: None,
            component_log_prior: Some(log_prior),
        }
    }

    /// The latent layer's inputs, and `log π`, `[N, K]`, in the type of sums.
    fn latent_and_log_prior(&self, tokens: Tokens, bodies: Bodies) -> (LatentArgs, Floats) {
        let log_prior = log_prior(&self.prior, tokens.hidden.clone(), self.precision, bodies);
        let weight = value(&self.latent.weight);
        let [_, features] = weight.dims();
        let (hidden, mask) = dropout::of_tokens(&weight, tokens, [features, 1], self.time_axis, self.dropout);
        let bias = self.latent.bias.as_ref().map(|bias| value(bias).into());
        let latent = LatentArgs { hidden, weight: weight.into(), bias, mask, precision: self.precision };
        (latent, log_prior)
    }
}

/// `log softmax(W_π g)`, `[N, K]`, in the type of sums.
pub(super) fn log_prior(prior: &Linear, hidden: Floats, precision: Precision, bodies: Bodies) -> Floats {
    let weight = Floats::from(value(&prior.weight));
    let dtype = wide(weight.dtype());
    log_softmax(bodies.product(hidden.cast(dtype), weight.cast(dtype), precision))
}

impl ModuleDisplay for Mixture {
    fn custom_settings(&self) -> Option<DisplaySettings> {
        DisplaySettings::new().with_new_line_after_attribute(false).optional()
    }

    fn custom_content(&self, content: Content) -> Option<Content> {
        let [d_hidden, features] = self.latent.weight.shape().dims();
        let content = content
            .add("d_hidden", &d_hidden)
            .add("d_embedding", &(features / self.components))
            .add("components", &self.components)
            .add("dropout", &self.dropout);
        match self.dropout > 0.0 {
            true => content.add_debug_attribute("time_axis", &self.time_axis).optional(),
            false => content.optional(),
        }
    }
}
