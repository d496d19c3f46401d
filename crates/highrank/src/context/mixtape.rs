//! The contexts of a Mixtape and the gates of its words.

use burn::module::{Content, Initializer, Module, Param};
use burn::nn::{Linear, LinearConfig};
use burn::tensor::{Device, Tensor};
use highrank_kernels::{Floats, Precision};
use serde::{Deserialize, Serialize};

use super::context_path::ContextPath;
use super::dropout::{self, Latent, LatentDropout};
use super::kind::{ContextKind, ContextModule, ContextOptions, ContextSettings, Contexts, Sizes};
use super::mixture::linear_initializer;
use super::tokens::Tokens;
use crate::checks::TensorChecks;
use crate::error::{HeadError, at_least_one, fits_memory, in_range};
use crate::math::sigmoid;
use crate::ops::gated::{COMPONENTS, GATES};
use crate::ops::{Activation, ContextSource, GatedArgs, GatedInputs, LatentArgs, wide};
use crate::parameters::value;

/// Configuration of a [`Mixtape`] in a head, whose other sizes are the head's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MixtapeConfig {
    /// `S`, the words `0..S` have a gate of their own and all others share one.
    pub frequent: usize,
    /// `G`, width of a gate's features.
    pub d_gate: usize,
    /// Of the latent features. None by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropout: Option<LatentDropout>,
    /// Of the three layers, weights and biases. Uniform in `±1/√H` by default, as Burn's linear layers.
    #[serde(default = "linear_initializer")]
    pub initializer: Initializer,
}

/// Four latent contexts that every word mixes by gates of its own (Yang, Luong, Salakhutdinov, Le, *Mixtape: Breaking the
/// Softmax Bottleneck Efficiently*, NeurIPS 2019):
///
/// ```text
/// z_x = Σ_k π_{x,k} h_kᵀ w_x + b_x                       one softmax over z
/// h_k = dropout(tanh(H_k g + b_h,k))
/// π_x = (γ₁γ₂, γ₁(1 − γ₂), (1 − γ₁)γ₃, (1 − γ₁)(1 − γ₃))
/// γ_j = σ(l_{x,j})      l_{x,j} = v_xᵀ tanh(U_j g) + u_jᵀ g + c_{x,j}      j = 1, 2, 3
/// ```
///
/// The words `0..S` have their own `v_x` and `c_x`; all others share one. Words are to be numbered by frequency, the most frequent
/// first. With `S = 0` all words have one `π`, and the head is a Mixture of Contexts whose prior is a tree of sigmoids.
///
/// What the paper leaves open and what is chosen here: the contexts have a bias, as those of a Mixture of Softmaxes; gate vectors
/// start uniform in ±0.1 and gate biases at 0.
///
/// Should be created with [`HeadConfig::mixtape`](crate::HeadConfig::mixtape).
#[derive(Module, Debug)]
pub struct Mixtape {
    /// `H, b_h`, a linear layer `H → 4·d`; context `k` owns outputs `k·d .. (k+1)·d`.
    pub latent: Linear,
    /// `U`, a linear layer `H → 3·G` without bias; gate `j` owns outputs `j·G .. (j+1)·G`.
    pub features: Linear,
    /// `u`, a linear layer `H → 3` without bias.
    pub base: Linear,
    /// `v`, shape `[S + 1, G]`: a row for each frequent word, then the shared one.
    pub vectors: Param<Tensor<2>>,
    /// `c`, shape `[S + 1, 3]`, in the same order.
    pub bias: Param<Tensor<2>>,
    /// `S`.
    pub frequent: usize,
    /// Of the latent features.
    #[module(skip)]
    pub dropout: Option<LatentDropout>,
}

impl MixtapeConfig {
    /// Gates of width `d_gate`, of which the words `0..frequent` have one of their own; all else by default.
    pub fn new(frequent: usize, d_gate: usize) -> Self {
        Self { frequent, d_gate, dropout: None, initializer: linear_initializer() }
    }
}

impl ContextSettings for MixtapeConfig {
    type Module = Mixtape;

    fn validate(&self, Sizes { d_hidden, vocab, .. }: Sizes) -> Result<(), HeadError> {
        at_least_one("d_gate", self.d_gate)?;
        let expected = format!("fewer than the {vocab} words: at least one must share its gate");
        in_range("frequent", self.frequent as f64, expected, ..vocab as f64)?;
        fits_memory("the gates' vectors", [self.frequent + 1, self.d_gate])?;
        fits_memory("the gates' features", [d_hidden, self.d_gate.saturating_mul(GATES)])
    }

    /// Layers by the initialiser, gate vectors uniform in ±0.1, gate biases 0.
    fn init(&self, Sizes { d_hidden, d_embedding, .. }: Sizes, device: &Device) -> Mixtape {
        let linear = |d_output, bias| {
            LinearConfig::new(d_hidden, d_output)
                .with_bias(bias)
                .with_initializer(self.initializer.clone())
                .init(device)
        };
        let rows = self.frequent + 1;
        Mixtape {
            latent: linear(COMPONENTS * d_embedding, true),
            features: linear(GATES * self.d_gate, false),
            base: linear(GATES, false),
            vectors: Initializer::Uniform { min: -0.1, max: 0.1 }.init([rows, self.d_gate], device),
            bias: Initializer::Zeros.init([rows, GATES], device),
            frequent: self.frequent,
            dropout: self.dropout,
        }
    }

    fn options(&mut self) -> ContextOptions<'_> {
        ContextOptions { dropout: Some(&mut self.dropout), ..ContextOptions::default() }
    }

    fn components(&self) -> usize {
        COMPONENTS
    }
}

impl ContextModule for Mixtape {
    fn d_hidden(&self) -> Option<usize> {
        Some(self.base.weight.shape().dims::<2>()[0])
    }

    fn latent(&self) -> Option<Latent<'_>> {
        let [_, features] = self.latent.weight.shape().dims();
        Some(Latent { like: &self.latent.weight, size: [features, 1], dropout: self.dropout })
    }

    fn check(&self, d_embedding: usize, checks: &TensorChecks) -> Result<(), HeadError> {
        let ([h, _], rows) = (self.base.weight.shape().dims(), self.frequent + 1);
        let [_, d_gate] = self.vectors.shape().dims();
        checks.param("the Mixtape's latent.weight", &self.latent.weight, [h, COMPONENTS * d_embedding])?;
        checks.optional(
            "the Mixtape's latent.bias",
            self.latent.bias.as_ref(),
            [COMPONENTS * d_embedding],
        )?;
        checks.param("the Mixtape's features.weight", &self.features.weight, [h, GATES * d_gate])?;
        checks.param("the Mixtape's base.weight", &self.base.weight, [h, GATES])?;
        checks.param("the Mixtape's vectors", &self.vectors, [rows, d_gate])?;
        checks.param("the Mixtape's bias", &self.bias, [rows, GATES])
    }

    fn display(&self, content: Content) -> Content {
        let ([d_hidden, features], [_, d_gate]) =
            (self.latent.weight.shape().dims(), self.vectors.shape().dims());
        let content = content
            .add("d_hidden", &d_hidden)
            .add("d_embedding", &(features / COMPONENTS))
            .add("frequent", &self.frequent)
            .add("d_gate", &d_gate);
        dropout::display(content, self.dropout)
    }
}

impl ContextKind<Self> for Mixtape {
    const HAS_PRIORS: bool = false;

    const NOT_LINEAR: Option<&str> = Some("a Mixtape");

    /// The contexts, with the gates of the words that have one of their own.
    fn contexts(mixtape: &Self, tokens: Tokens, precision: Precision, path: ContextPath) -> Contexts {
        let (hidden, mask) = dropout::of_tokens(tokens, mixtape.latent());
        let weight = value(&mixtape.latent.weight);
        let dtype = wide(weight.dtype());
        let layer = |layer: &Linear, weight: Tensor<2>, mask| LatentArgs {
            activation: Activation::Tanh,
            // No width matters to tanh.
            d: layer.weight.shape()[1],
            hidden: hidden.clone(),
            weight: weight.into(),
            bias: layer.bias.as_ref().map(|bias| value(bias).into()),
            mask,
            precision,
        };
        let latent = path.latent(layer(&mixtape.latent, weight, mask));
        let features = path.latent(layer(&mixtape.features, value(&mixtape.features.weight), None));
        let base = Floats::from(value(&mixtape.base.weight)).cast(dtype);
        let base = path.product(hidden.clone().cast(dtype), base, precision);

        let (vectors, bias) = (Floats::from(value(&mixtape.vectors)), Floats::from(value(&mixtape.bias)));
        let ([rows, d_gate], tokens) = (vectors.dims(), base.shape()[0]);
        let [of_frequent, shared] = [0..rows - 1, rows - 1..rows];
        let vector = vectors.clone().rows(shared.clone()).cast(dtype);
        // LoRA may have another float type in one of the layers.
        let of_features = features.clone().cast(dtype).reshape([tokens * GATES, d_gate]);
        let logits = path.product(of_features, vector.transpose(), precision);
        let logits = logits.reshape([tokens, GATES]) + base.clone() + bias.clone().rows(shared).cast(dtype);
        let prior = leaves(logits);
        let contexts = match mixtape.frequent {
            0 => ContextSource::Given(path.mix(prior, latent)),
            _ => {
                let (vectors, bias) = (vectors.rows(of_frequent.clone()), bias.rows(of_frequent));
                let inputs = GatedInputs { prior, latent, features, base, vectors, bias };
                ContextSource::Gated(GatedArgs { inputs, precision })
            }
        };
        Contexts { contexts, log_prior: None, component_log_prior: None }
    }
}

/// `π = (γ₁γ₂, γ₁(1 − γ₂), (1 − γ₁)γ₃, (1 − γ₁)(1 − γ₃))` of gate logits `[N, 3]`: `[N, 4]`.
fn leaves(logits: Floats) -> Floats {
    let gate = |j: usize| {
        let logit = logits.clone().narrow(1, j..j + 1);
        [sigmoid(logit.clone()), sigmoid(-logit)]
    };
    let [[left, right], second, third] = [gate(0), gate(1), gate(2)];
    let [one, two] = second.map(|gate| left.clone() * gate);
    let [three, four] = third.map(|gate| right.clone() * gate);
    Floats::cat(vec![one, two, three, four], 1)
}
