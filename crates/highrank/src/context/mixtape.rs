//! The contexts of a Mixtape and the gates of its words.

use burn::config::Config;
use burn::module::{Content, DisplaySettings, Initializer, Module, ModuleDisplay, Param};
use burn::nn::{Linear, LinearConfig};
use burn::tensor::{Device, Tensor};
use highrank_kernels::{Floats, Precision};

use super::bodies::Bodies;
use super::contexts::Contexts;
use super::dropout::{self, TimeAxis};
use super::mixture::linear_initializer;
use super::tokens::Tokens;
use crate::math::sigmoid;
use crate::ops::{ContextSource, GatedArgs, LatentArgs, wide};
use crate::parameters::value;

/// `K`, contexts of a Mixtape.
pub(super) const COMPONENTS: usize = GatedArgs::<()>::COMPONENTS;

/// The gates that make their probabilities.
const GATES: usize = GatedArgs::<()>::GATES;

/// Configuration of a [`Mixtape`].
#[derive(Config, Debug, PartialEq)]
pub struct MixtapeConfig {
    /// `H`, width of the hidden state.
    pub d_hidden: usize,
    /// `d`, width of a latent context.
    pub d_embedding: usize,
    /// `S`, the words `0..S` have a gate of their own and all others share one.
    pub frequent: usize,
    /// `G`, width of a gate's features.
    pub d_gate: usize,
    /// Probability of dropping a latent feature while training, in `[0, 1)`. 0 by default.
    #[config(default = 0.0)]
    pub dropout: f64,
    /// Which leading dimension of a hidden state is time, for the dropout. The first by default.
    #[config(default = "TimeAxis::First")]
    pub time_axis: TimeAxis,
    /// Of the three layers, weights and biases. Uniform in `±1/√H` by default, as Burn's linear layers.
    #[config(default = "linear_initializer()")]
    pub initializer: Initializer,
    /// Of the products. Full by default.
    #[config(default = "Precision::Full")]
    pub precision: Precision,
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
/// Should be created with [`MixtapeConfig`].
#[derive(Module, Debug)]
#[module(custom_display)]
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
    /// Probability of dropping a latent feature while training.
    pub dropout: f64,
    /// Which leading dimension of a hidden state is time, for the dropout.
    #[module(skip)]
    pub time_axis: TimeAxis,
    /// Of the products.
    #[module(skip)]
    pub precision: Precision,
}

impl MixtapeConfig {
    /// Creates contexts and gates: layers by the initialiser, gate vectors uniform in ±0.1, gate biases 0.
    pub fn init(&self, device: &Device) -> Mixtape {
        let linear = |d_output, bias| {
            LinearConfig::new(self.d_hidden, d_output)
                .with_bias(bias)
                .with_initializer(self.initializer.clone())
                .init(device)
        };
        let rows = self.frequent + 1;
        Mixtape {
            latent: linear(COMPONENTS * self.d_embedding, true),
            features: linear(GATES * self.d_gate, false),
            base: linear(GATES, false),
            vectors: Initializer::Uniform { min: -0.1, max: 0.1 }.init([rows, self.d_gate], device),
            bias: Initializer::Zeros.init([rows, GATES], device),
            frequent: self.frequent,
            dropout: self.dropout,
            time_axis: self.time_axis,
            precision: self.precision,
        }
    }
}

impl Mixtape {
    /// `H`.
    pub(super) fn d_hidden(&self) -> usize {
        self.base.weight.shape().dims::<2>()[0]
    }

    /// `4·d`.
    pub(super) fn features(&self) -> usize {
        self.latent.weight.shape().dims::<2>()[1]
    }

    /// A mask for the latent dropout of so many sequences, `[sequences, 4·d]`; none if nothing is dropped.
    pub(super) fn draw_mask(&self, sequences: usize) -> Option<Tensor<2>> {
        dropout::draw(&value(&self.latent.weight), [sequences, self.features()], self.dropout)
    }

    /// The contexts, with the gates of the words that have one of their own.
    pub(super) fn gated(&self, tokens: Tokens, bodies: Bodies) -> Contexts {
        let precision = self.precision;
        let weight = value(&self.latent.weight);
        let (hidden, mask) =
            dropout::of_tokens(&weight, tokens, [self.features(), 1], self.time_axis, self.dropout);
        let layer = |layer: &Linear, mask| LatentArgs {
            hidden: hidden.clone(),
            weight: value(&layer.weight).into(),
            bias: layer.bias.as_ref().map(|bias| value(bias).into()),
            mask,
            precision,
        };
        let latent = bodies.latent(layer(&self.latent, mask));
        let features = bodies.latent(layer(&self.features, None));
        let dtype = wide(weight.dtype());
        let base = Floats::from(value(&self.base.weight)).cast(dtype);
        let base = bodies.product(hidden.clone().cast(dtype), base, precision);

        let (vectors, bias) = (Floats::from(value(&self.vectors)), Floats::from(value(&self.bias)));
        let ([rows, d_gate], tokens) = (vectors.dims(), base.shape()[0]);
        let [of_frequent, shared] = [0..rows - 1, rows - 1..rows];
        let vector = vectors.clone().rows(shared.clone()).cast(dtype);
        let of_features = features.clone().reshape([tokens * GATES, d_gate]);
        let logits = bodies.product(of_features, vector.transpose(), precision);
        let logits = logits.reshape([tokens, GATES]) + base.clone() + bias.clone().rows(shared).cast(dtype);
        let prior = leaves(logits);
        let contexts = match self.frequent {
            0 => ContextSource::Given(bodies.mix(prior, latent)),
            _ => ContextSource::Gated(GatedArgs {
                prior,
                latent,
                features,
                base,
                vectors: vectors.rows(of_frequent.clone()),
                bias: bias.rows(of_frequent),
                precision,
            }),
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

impl ModuleDisplay for Mixtape {
    fn custom_settings(&self) -> Option<DisplaySettings> {
        DisplaySettings::new().with_new_line_after_attribute(false).optional()
    }

    fn custom_content(&self, content: Content) -> Option<Content> {
        let [_, d_gate] = self.vectors.shape().dims();
        let content = content
            .add("d_hidden", &self.d_hidden())
            .add("d_embedding", &(self.features() / COMPONENTS))
            .add("frequent", &self.frequent)
            .add("d_gate", &d_gate)
            .add("dropout", &self.dropout);
        match self.dropout > 0.0 {
            true => content.add_debug_attribute("time_axis", &self.time_axis).optional(),
            false => content.optional(),
        }
    }
}
