//! Contexts from several layers of the model below.

use burn::module::{Content, Initializer, Module};
use burn::nn::{Linear, LinearConfig};
use burn::tensor::{Device, Tensor};
use highrank_kernels::{Floats, Precision};
use serde::{Deserialize, Serialize};

use super::bodies::Bodies;
use super::contexts::Contexts;
use super::dropout::{self, LatentDropout};
use super::kind::{ContextKind, Sizes};
use super::mixture::{linear_initializer, log_prior};
use super::tokens::Tokens;
use crate::error::HeadError;
use crate::fit::Fit;
use crate::ops::{ContextSource, LatentArgs, LatentMask};
use crate::parameters::value;

/// A layer that contexts come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConnectedLayer {
    /// `H_l`, width of the layer's output.
    pub d_hidden: usize,
    /// `K_l`, number of contexts that come from it.
    pub components: usize,
}

/// Configuration of a [`DirectOutputConnection`] in a head, whose other sizes are the head's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DirectOutputConnectionConfig {
    /// The layers, lowest first; the last one gives the priors.
    pub layers: Vec<ConnectedLayer>,
    /// Of the latent features. None by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropout: Option<LatentDropout>,
    /// Of all layers, weights and biases. Uniform in `±1/√H_l` by default, as Burn's linear layers.
    #[serde(default = "linear_initializer")]
    pub initializer: Initializer,
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
/// Should be created with [`HeadConfig::direct_output_connection`](crate::HeadConfig::direct_output_connection).
#[derive(Module, Debug)]
pub struct DirectOutputConnection {
    /// `W_π`, a linear layer `H_L → K` without bias.
    pub prior: Linear,
    /// `W_k, b_k` of each layer, `H_l → K_l·d`; the layer's component `k` owns outputs `k·d .. (k+1)·d`.
    pub latents: Vec<Linear>,
    /// Of the latent features.
    #[module(skip)]
    pub dropout: Option<LatentDropout>,
}

impl DirectOutputConnectionConfig {
    /// Contexts from these layers, all else by default.
    pub fn new(layers: Vec<ConnectedLayer>) -> Self {
        Self { layers, dropout: None, initializer: linear_initializer() }
    }

    /// `K`, the number of contexts of all layers together.
    pub(super) fn components(&self) -> usize {
        self.layers.iter().map(|layer| layer.components).sum()
    }

    /// Checks that every layer gives contexts and that their widths are those of the hidden state.
    pub(super) fn validate(&self, d_hidden: usize) -> Result<(), HeadError> {
        for layer in &self.layers {
            for (name, size) in
                [("d_hidden of a layer", layer.d_hidden), ("components of a layer", layer.components)]
            {
                if size == 0 {
                    return Err(HeadError::ZeroSize { name });
                }
            }
        }
        let layers: Vec<usize> = self.layers.iter().map(|layer| layer.d_hidden).collect();
        match layers.iter().sum::<usize>() == d_hidden {
            true => Ok(()),
            false => Err(HeadError::LayerWidths { d_hidden, layers }),
        }
    }

    pub(super) fn init(&self, d_embedding: usize, device: &Device) -> DirectOutputConnection {
        let linear = |d_input, d_output| {
            LinearConfig::new(d_input, d_output).with_initializer(self.initializer.clone())
        };
        let last = self.layers.last().expect("contexts come from at least one layer");
        let of_layer =
            |layer: &ConnectedLayer| linear(layer.d_hidden, layer.components * d_embedding).init(device);
        DirectOutputConnection {
            prior: linear(last.d_hidden, self.components()).with_bias(false).init(device),
            latents: self.layers.iter().map(of_layer).collect(),
            dropout: self.dropout,
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

    /// Checks the parameters for a decoder of a width.
    pub(super) fn check(&self, d_embedding: usize, fit: &Fit) -> Result<(), HeadError> {
        let k = self.components();
        for latent in &self.latents {
            let [h, features] = latent.weight.shape().dims();
            let features = features / d_embedding.max(1) * d_embedding;
            fit.param("a layer's latent.weight", &latent.weight, [h, features])?;
            fit.optional("a layer's latent.bias", latent.bias.as_ref(), [features])?;
        }
        let last = self.latents.last().map_or(0, |latent| latent.weight.shape().dims::<2>()[0]);
        fit.param("the connection's prior.weight", &self.prior.weight, [last, k])?;
        let (got, expected) = ([self.features()], [k * d_embedding]);
        fit.shape("the list of latent features", &got, &expected, "components of the decoder's width")
    }

    /// A mask for the latent dropout of so many sequences, `[sequences, K·d]`, alike for all components; none if nothing is dropped.
    pub(super) fn draw_mask(&self, sequences: usize) -> Option<Tensor<2>> {
        let shape = [sequences, self.d_embedding()];
        let mask = dropout::draw_values(&value(&self.latents[0].weight), shape, self.dropout)?;
        Some(Tensor::cat(vec![mask; self.components()], 1))
    }

    /// All components with their priors.
    pub(super) fn components_of(&self, tokens: Tokens, precision: Precision, bodies: Bodies) -> Contexts {
        let (components, features, d) = (self.components(), self.features(), self.d_embedding());
        let [count, width] = tokens.hidden.dims();
        let [last, _] = self.prior.weight.shape().dims();
        let top = tokens.hidden.clone().narrow(1, width - last..width);
        let log_prior = log_prior(&self.prior, top, precision, bodies);
        let like = value(&self.latents[0].weight);
        // One mask for all components.
        let (hidden, mask) = dropout::of_tokens(&like, tokens, [d, components], self.dropout);
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
                precision,
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

impl ContextKind for DirectOutputConnection {
    type Config = DirectOutputConnectionConfig;
    type Module = Self;

    const HAS_PRIORS: bool = true;

    fn validate(config: &DirectOutputConnectionConfig, sizes: Sizes) -> Result<(), HeadError> {
        config.validate(sizes.d_hidden)
    }

    fn init(config: &DirectOutputConnectionConfig, sizes: Sizes, device: &Device) -> Self {
        config.init(sizes.d_embedding, device)
    }

    fn dropout(config: &mut DirectOutputConnectionConfig) -> Option<&mut Option<LatentDropout>> {
        Some(&mut config.dropout)
    }

    fn components(config: &DirectOutputConnectionConfig) -> usize {
        config.components()
    }

    fn d_hidden(module: &Self) -> Option<usize> {
        Some(DirectOutputConnection::d_hidden(module))
    }

    fn latent(module: &Self) -> (usize, Option<LatentDropout>) {
        (module.features(), module.dropout)
    }

    fn draw_mask(module: &Self, sequences: usize) -> Option<Tensor<2>> {
        DirectOutputConnection::draw_mask(module, sequences)
    }

    fn distributions(module: &Self) -> usize {
        module.components()
    }

    fn check(module: &Self, d_embedding: usize, fit: &Fit) -> Result<(), HeadError> {
        DirectOutputConnection::check(module, d_embedding, fit)
    }

    fn contexts(module: &Self, tokens: Tokens, precision: Precision, bodies: Bodies) -> Contexts {
        module.components_of(tokens, precision, bodies)
    }

    fn display(module: &Self, content: Content) -> Content {
        let (widths, components): (Vec<_>, Vec<_>) =
            module.layers().iter().map(|layer| (layer.d_hidden, layer.components)).unzip();
        let content = content
            .add_debug_attribute("d_hidden", &widths)
            .add("d_embedding", &module.d_embedding())
            .add_debug_attribute("components", &components);
        dropout::display(content, module.dropout)
    }
}
