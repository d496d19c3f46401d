//! Contexts from several layers of the model below.

use burn::config::Config;
use burn::module::{Content, DisplaySettings, Initializer, Module, ModuleDisplay};
use burn::nn::{Linear, LinearConfig};
use burn::tensor::{Device, Tensor};
use highrank_kernels::{Floats, Precision};
use serde::{Deserialize, Serialize};

use super::bodies::Bodies;
use super::contexts::Contexts;
use super::dropout::{self, TimeAxis};
use super::mixture::{linear_initializer, log_prior};
use super::tokens::Tokens;
use crate::ops::{ContextSource, LatentArgs, LatentMask};
use crate::parameters::value;

/// A layer that contexts come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectedLayer {
    /// `H_l`, width of the layer's output.
    pub d_hidden: usize,
    /// `K_l`, number of contexts that come from it.
    pub components: usize,
}

/// Configuration of a [`DirectOutputConnection`].
#[derive(Config, Debug, PartialEq)]
pub struct DirectOutputConnectionConfig {
    /// The layers, lowest first; the last one gives the priors.
    pub layers: Vec<ConnectedLayer>,
    /// `d`, width of a latent context.
    pub d_embedding: usize,
    /// Probability of dropping a latent feature while training, in `[0, 1)`. 0 by default.
    #[config(default = 0.0)]
    pub dropout: f64,
    /// Which leading dimension of a hidden state is time, for the dropout. The first by default.
    #[config(default = "TimeAxis::First")]
    pub time_axis: TimeAxis,
    /// Of all layers, weights and biases. Uniform in `±1/√H_l` by default, as Burn's linear layers.
    #[config(default = "linear_initializer()")]
    pub initializer: Initializer,
    /// Of the products. Full by default.
    #[config(default = "Precision::Full")]
    pub precision: Precision,
}

/// `K` latent contexts from several layers, with priors from the last (Takase, Suzuki, Nagata, EMNLP 2018, arXiv 1808.10143):
///
/// ```text
/// g   = [g_1, .., g_L]                             the layers' outputs, side by side
/// π   = softmax(W_π g_L)
/// h_k = dropout(tanh(W_k g_l(k) + b_k))            l(k) the layer of component k
/// ```
///
/// A hidden state of a head with this context is the concatenation of the layers' outputs, `Σ_l H_l` wide, lowest layer first, so
/// such a head has the methods of every other. Components are numbered in the same order: those of the lowest layer come first.
/// With one layer it is a [`Mixture`](super::Mixture) but for the dropout.
///
/// # Choices
/// From the authors' program, where the paper leaves it open: biases `b_k`, *one* dropout mask of `d` features a sequence for all of its
/// components, where a [`Mixture`](super::Mixture) draws `K·d`, and layers whose own dropout comes before.
///
/// # Cost
/// The latent layers and the likelihood's products are those of a mixture of as many components. The contexts of all tokens,
/// `N·K·d` numbers, exist at once with their gradient, where a mixture makes them a block at a time.
///
/// Should be created with [`DirectOutputConnectionConfig`].
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct DirectOutputConnection {
    /// `W_π`, a linear layer `H_L → K` without bias.
    pub prior: Linear,
    /// `W_k, b_k` of each layer, `H_l → K_l·d`; the layer's component `k` owns outputs `k·d .. (k+1)·d`.
    pub latents: Vec<Linear>,
    /// Probability of dropping a latent feature while training.
    pub dropout: f64,
    /// Which leading dimension of a hidden state is time, for the dropout.
    #[module(skip)]
    pub time_axis: TimeAxis,
    /// Of the products.
    #[module(skip)]
    pub precision: Precision,
}

impl DirectOutputConnectionConfig {
    /// Creates the layers, weights uniform in `±1/√H_l` if no other initialiser is set.
    ///
    /// # Panics
    /// Without any layer.
    pub fn init(&self, device: &Device) -> DirectOutputConnection {
        let linear = |d_input, d_output| {
            LinearConfig::new(d_input, d_output).with_initializer(self.initializer.clone())
        };
        let last = self.layers.last().expect("contexts come from at least one layer");
        let components = self.layers.iter().map(|layer| layer.components).sum();
        let of_layer =
            |layer: &ConnectedLayer| linear(layer.d_hidden, layer.components * self.d_embedding).init(device);
        DirectOutputConnection {
            prior: linear(last.d_hidden, components).with_bias(false).init(device),
            latents: self.layers.iter().map(of_layer).collect(),
            dropout: self.dropout,
            time_axis: self.time_axis,
            precision: self.precision,
        }
    }
}

impl DirectOutputConnection {
    /// `K`, the number of contexts of all layers together.
    pub fn components(&self) -> usize {
        self.prior.weight.shape().dims::<2>()[1]
    }

    /// `d`, width of a latent context.
    pub fn d_embedding(&self) -> usize {
        self.features() / self.components()
    }

    /// The layers, lowest first.
    pub fn layers(&self) -> Vec<ConnectedLayer> {
        let d_embedding = self.d_embedding();
        let layer = |latent: &Linear| {
            let [d_hidden, features] = latent.weight.shape().dims();
            ConnectedLayer { d_hidden, components: features / d_embedding }
        };
        self.latents.iter().map(layer).collect()
    }

    /// `Σ_l H_l`.
    pub(super) fn d_hidden(&self) -> usize {
        self.latents.iter().map(|latent| latent.weight.shape().dims::<2>()[0]).sum()
    }

    /// `K·d`.
    pub(super) fn features(&self) -> usize {
        self.latents.iter().map(|latent| latent.weight.shape().dims::<2>()[1]).sum()
    }

    /// A mask for the latent dropout of so many sequences, `[sequences, K·d]`, alike for all components; none if nothing is dropped.
    pub(super) fn draw_mask(&self, sequences: usize) -> Option<Tensor<2>> {
        let shape = [sequences, self.d_embedding()];
        let mask = dropout::draw(&value(&self.latents[0].weight), shape, self.dropout)?;
        Some(Tensor::cat(vec![mask; self.components()], 1))
    }

    /// All components with their priors.
    pub(super) fn components_of(&self, tokens: Tokens, bodies: Bodies) -> Contexts {
        let (components, features, d) = (self.components(), self.features(), self.d_embedding());
        let [count, width] = tokens.hidden.dims();
        let [last, _] = self.prior.weight.shape().dims();
        let top = tokens.hidden.clone().narrow(1, width - last..width);
        let log_prior = log_prior(&self.prior, top, self.precision, bodies);
        let like = value(&self.latents[0].weight);
        // One mask for all components.
        let (hidden, mask) = dropout::of_tokens(&like, tokens, [d, components], self.time_axis, self.dropout);
        // Where a layer's columns of the hidden states and its features begin.
        let (mut column, mut feature) = (0, 0);
        let of_layer = |latent: &Linear| {
            let [d_hidden, of_layer] = latent.weight.shape().dims();
            let (columns, range) = (column..column + d_hidden, feature..feature + of_layer);
            (column, feature) = (columns.end, range.end);
            bodies.latent(LatentArgs {
                hidden: hidden.clone().narrow(1, columns),
                weight: value(&latent.weight).into(),
                bias: latent.bias.as_ref().map(|bias| value(bias).into()),
                mask: mask.clone().map(|mask| LatentMask { values: mask.values.narrow(1, range), ..mask }),
                precision: self.precision,
            })
        };
        let latent = Floats::cat(self.latents.iter().map(of_layer).collect(), 1);
        let contexts = latent.reshape([count * components, features / components]);
        Contexts {
            contexts: ContextSource::Given(contexts),
            log_prior: Some(log_prior.clone()),
            component_log_prior: Some(log_prior),
        }
    }
}

impl ModuleDisplay for DirectOutputConnection {
    fn custom_settings(&self) -> Option<DisplaySettings> {
        DisplaySettings::new().with_new_line_after_attribute(false).optional()
    }

    fn custom_content(&self, content: Content) -> Option<Content> {
        let (widths, components): (Vec<_>, Vec<_>) =
            self.layers().iter().map(|layer| (layer.d_hidden, layer.components)).unzip();
        let content = content
            .add_debug_attribute("d_hidden", &widths)
            .add("d_embedding", &self.d_embedding())
            .add_debug_attribute("components", &components)
            .add("dropout", &self.dropout);
        match self.dropout > 0.0 {
            true => content.add_debug_attribute("time_axis", &self.time_axis).optional(),
            false => content.optional(),
        }
    }
}
