//! The prior/latent pair that Mixture of Contexts and Mixture of Softmaxes share.

use burn::config::Config;
use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::tensor::{Device, Tensor};
use highrank_kernels::{Floats, Precision};

use super::bodies::Bodies;
use super::contexts::Contexts;
use super::dropout;
use crate::math::log_softmax;
use crate::ops::{ContextSource, LatentArgs};

/// Configuration of a [`Mixture`].
#[derive(Config, Debug)]
pub struct MixtureConfig {
    /// `H`, width of the hidden state.
    pub d_hidden: usize,
    /// `d`, width of a latent context.
    pub d_embedding: usize,
    /// `K`.
    pub components: usize,
    /// Probability of dropping a latent feature while training, in `[0, 1)`.
    #[config(default = 0.0)]
    pub dropout: f64,
    /// Of the products.
    #[config(default = "Precision::Full")]
    pub precision: Precision,
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
pub struct Mixture {
    /// `W_π`, a linear layer `H → K` without bias.
    pub prior: Linear,
    /// `W_h, b_h`, a linear layer `H → K·d`; component `k` owns outputs `k·d .. (k+1)·d`.
    pub latent: Linear,
    /// `K`.
    pub components: usize,
    /// Probability of dropping a latent feature while training.
    pub dropout: f64,
    /// Of the products.
    #[module(skip)]
    pub precision: Precision,
}

impl MixtureConfig {
    /// Creates the mixture, weights uniform in `±1/√H`.
    pub fn init(&self, device: &Device) -> Mixture {
        Mixture {
            prior: LinearConfig::new(self.d_hidden, self.components).with_bias(false).init(device),
            latent: LinearConfig::new(self.d_hidden, self.components * self.d_embedding).init(device),
            components: self.components,
            dropout: self.dropout,
            precision: self.precision,
        }
    }
}

impl Mixture {
    /// All components with their priors, for a Mixture of Softmaxes.
    pub(super) fn components_of<const D: usize>(&self, hidden: Tensor<D>, bodies: Bodies) -> Contexts {
        let (latent, log_prior) = self.latent_and_log_prior(hidden, bodies);
        Contexts { contexts: ContextSource::Latent(latent), log_prior: Some(log_prior) }
    }

    /// The one mixed context of a Mixture of Contexts.
    pub(super) fn mix<const D: usize>(&self, hidden: Tensor<D>, bodies: Bodies) -> Contexts {
        let (latent, log_prior) = self.latent_and_log_prior(hidden, bodies);
        let latent = bodies.latent(latent);
        let [tokens, features] = latent.dims();
        let width = features / self.components;
        let mixed = bodies.mix(log_prior.exp(), latent.reshape([tokens, self.components, width]));
        Contexts { contexts: ContextSource::Given(mixed), log_prior: None }
    }

    /// The latent layer's inputs, and `log π`, `[N, K]`.
    fn latent_and_log_prior<const D: usize>(
        &self,
        hidden: Tensor<D>,
        bodies: Bodies,
    ) -> (LatentArgs, Floats) {
        let dims = hidden.dims();
        let (leading, width) = (&dims[..D - 1], dims[D - 1]);
        let hidden = Floats::from(hidden.reshape([leading.iter().product(), width]));
        let prior = self.prior.weight.val().into();
        let log_prior = log_softmax(bodies.product(hidden.clone(), prior, self.precision));
        let weight = self.latent.weight.val();
        let mask = dropout::locked(&weight, leading, self.dropout);
        let bias = self.latent.bias.as_ref().map(|bias| bias.val().into());
        (LatentArgs { hidden, weight: weight.into(), bias, mask, precision: self.precision }, log_prior)
    }
}
