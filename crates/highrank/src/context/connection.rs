//! Contexts from several layers of the model below.

use burn::module::{Content, Initializer, Module};
use burn::nn::{Linear, LinearConfig};
use burn::tensor::{DType, Device};
use highrank_kernels::{Floats, Precision};
use serde::{Deserialize, Serialize};

use super::context_path::ContextPath;
use super::dropout::{self, Latent, LatentDropout};
use super::kind::{ContextKind, ContextModule, ContextOptions, ContextSettings, Contexts, Sizes, is_default};
use super::mixture::{linear_initializer, log_prior};
use super::start::{self, Start};
use super::tokens::Tokens;
use crate::checks::TensorChecks;
use crate::error::{HeadError, at_least_one, expect_shape, in_range};
use crate::ops::{Activation, ContextSource, LatentArgs, LatentMask};
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
    /// What makes a context of `W_k g_l(k) + b_k`. Tanh by default; a residual has the first features of the context's own layer added.
    #[serde(default, skip_serializing_if = "is_default")]
    pub activation: Activation,
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
/// h_k = dropout(a(W_k g_l(k) + b_k))               l(k) the layer of component k, a the tanh or another activation
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
    /// `a`.
    #[module(skip)]
    pub activation: Activation,
    /// Of the latent features.
    #[module(skip)]
    pub dropout: Option<LatentDropout>,
}

impl DirectOutputConnectionConfig {
    /// Contexts from these layers, all else by default.
    pub fn new(layers: Vec<ConnectedLayer>) -> Self {
        Self { layers, activation: Activation::Tanh, dropout: None, initializer: linear_initializer() }
    }

    /// The width of the hidden states of all layers, side by side; the largest number if that is too large.
    pub(crate) fn d_hidden(&self) -> usize {
        self.layers.iter().fold(0, |sum: usize, layer| sum.saturating_add(layer.d_hidden))
    }
}

impl ContextSettings for DirectOutputConnectionConfig {
    type Module = DirectOutputConnection;

    /// Checks that every layer gives contexts and that their widths are those of the hidden state.
    fn validate(&self, Sizes { d_hidden, d_embedding, .. }: Sizes) -> Result<(), HeadError> {
        for layer in &self.layers {
            at_least_one("d_hidden of a layer", layer.d_hidden)?;
            at_least_one("components of a layer", layer.components)?;
            start::validate(Start::Random, self.activation, layer.d_hidden, d_embedding)?;
        }
        let sum = self.d_hidden();
        let expected =
            format!("{sum}, the sum of its layers' widths: a hidden state is their outputs side by side");
        in_range("d_hidden", d_hidden as f64, expected, sum as f64..=sum as f64)
    }

    fn init(&self, Sizes { d_embedding, .. }: Sizes, device: &Device) -> DirectOutputConnection {
        let linear = |d_input, d_output| {
            LinearConfig::new(d_input, d_output).with_initializer(self.initializer.clone())
        };
        let last = self.layers.last().expect("contexts come from at least one layer");
        let of_layer =
            |layer: &ConnectedLayer| linear(layer.d_hidden, layer.components * d_embedding).init(device);
        DirectOutputConnection {
            prior: linear(last.d_hidden, ContextSettings::components(self)).with_bias(false).init(device),
            latents: self.layers.iter().map(of_layer).collect(),
            activation: self.activation,
            dropout: self.dropout,
        }
    }

    fn options(&mut self) -> ContextOptions<'_> {
        let Self { dropout, activation, .. } = self;
        ContextOptions { dropout: Some(dropout), activation: Some(activation), start: None }
    }

    fn components(&self) -> usize {
        self.layers.iter().fold(0, |sum: usize, layer| sum.saturating_add(layer.components))
    }
}

impl DirectOutputConnection {
    /// `K`, the number of contexts of all layers together.
    fn components(&self) -> usize {
        self.prior.weight.shape().dims::<2>()[1]
    }

    /// The latent features of all layers.
    fn features(&self) -> usize {
        self.latents.iter().map(|latent| latent.weight.shape().dims::<2>()[1]).sum()
    }

    /// `d`, width of a latent context.
    fn d_embedding(&self) -> usize {
        self.features() / self.components()
    }
}

impl ContextModule for DirectOutputConnection {
    /// `Σ_l H_l`.
    fn d_hidden(&self) -> Option<usize> {
        Some(self.latents.iter().map(|latent| latent.weight.shape().dims::<2>()[0]).sum())
    }

    /// One mask for all components.
    fn latent(&self) -> Option<Latent<'_>> {
        let size = [self.d_embedding(), self.components()];
        Some(Latent { like: &self.latents[0].weight, size, dropout: self.dropout })
    }

    fn check(&self, d_embedding: usize, checks: &TensorChecks) -> Result<(), HeadError> {
        let k = self.components();
        for latent in &self.latents {
            let [h, features] = latent.weight.shape().dims();
            let features = features / d_embedding.max(1) * d_embedding;
            start::validate(Start::Random, self.activation, h, d_embedding)?;
            checks.param("a layer's latent.weight", &latent.weight, [h, features])?;
            checks.optional("a layer's latent.bias", latent.bias.as_ref(), [features])?;
        }
        let last = self.latents.last().map_or(0, |latent| latent.weight.shape().dims::<2>()[0]);
        checks.param("the connection's prior.weight", &self.prior.weight, [last, k])?;
        let (got, expected) = ([self.features()], [k * d_embedding]);
        expect_shape("the list of latent features", &got, &expected, "components of the decoder's width")
    }

    fn display(&self, content: Content) -> Content {
        let d_embedding = self.d_embedding();
        let layers = self.latents.iter().map(|latent| latent.weight.shape().dims());
        let (widths, components): (Vec<_>, Vec<_>) =
            layers.map(|[d_hidden, features]| (d_hidden, features / d_embedding)).unzip();
        let content = content
            .add_debug_attribute("d_hidden", &widths)
            .add("d_embedding", &d_embedding)
            .add_debug_attribute("components", &components);
        dropout::display(start::display(content, self.activation), self.dropout)
    }
}

impl ContextKind<Self> for DirectOutputConnection {
    const HAS_PRIORS: bool = true;

    fn distributions(connection: &Self) -> usize {
        connection.components()
    }

    /// All components with their priors.
    fn contexts(connection: &Self, tokens: Tokens, precision: Precision, path: ContextPath) -> Contexts {
        let (components, d) = (connection.components(), connection.d_embedding());
        let [count, width] = tokens.hidden.dims();
        let [last, _] = connection.prior.weight.shape().dims();
        let top = tokens.hidden.clone().narrow(1, width - last..width);
        let log_prior = log_prior(&connection.prior, top, precision, path);
        let (hidden, mask) = dropout::of_tokens(tokens, connection.latent());
        // Where a layer's columns of the hidden states and its features begin.
        let (mut column, mut feature) = (0, 0);
        let of_layer = |latent: &Linear| {
            let [d_hidden, of_layer] = latent.weight.shape().dims();
            let (columns, range) = (column..column + d_hidden, feature..feature + of_layer);
            (column, feature) = (columns.end, range.end);
            path.latent(LatentArgs {
                activation: connection.activation,
                d,
                hidden: hidden.clone().narrow(1, columns),
                weight: value(&latent.weight).into(),
                bias: latent.bias.as_ref().map(|bias| value(bias).into()),
                mask: mask.clone().map(|mask| LatentMask { values: mask.values.narrow(1, range), ..mask }),
                precision,
            })
        };
        let latents: Vec<Floats> = connection.latents.iter().map(of_layer).collect();
        // LoRA may have another float type in one of the layers.
        let is_double = latents.iter().any(|latent| latent.dtype() == DType::F64);
        let dtype = if is_double { DType::F64 } else { DType::F32 };
        let latent = Floats::cat(latents.into_iter().map(|latent| latent.cast(dtype)).collect(), 1);
        let contexts = latent.reshape([count * components, d]);
        Contexts {
            contexts: ContextSource::Given(contexts),
            log_prior: Some(log_prior.clone()),
            component_log_prior: Some(log_prior),
        }
    }
}
