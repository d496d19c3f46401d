//! The fused likelihood: `−log P(y | c)` and its gradients without ever storing the logits.
//!
//! For contexts `h_k`, log-priors `log π_k`, decoder `W, b` and logit map `f`, with `z_k = h_k·Wᵀ + b`:
//!
//! ```text
//! nll = −logsumexp_k( log π_k + f(z_k[y]) − LSE(f(z_k)) )
//! ∂nll/∂f(z_k) = γ_k (softmax(f(z_k)) − onehot_y)      γ_k = π_k p_k(y) / Σ_j π_j p_j(y)
//! ∂nll/∂log π_k = −γ_k
//! ```
//!
//! It equals the naive program `−log_probs(hidden).gather(targets)`, which holds `[N, K, V]` tensors. Here the tokens
//! are worked through in chunks: product, map, log-sum-exp, responsibilities, gradient, two products, next chunk.
//!
//! # Cost
//! * An untracked call, or the forward pass of the per-token `nll`: one matrix product, `2·N·K·d·V` operations.
//! * [`mean_nll`](LikelihoodBackend::mean_nll) when tracked: three products. Its token weights are known in the forward
//!   pass, so the gradients are made there and the backward pass only scales them.
//! * [`nll`](LikelihoodBackend::nll) when tracked: four, because any upstream gradient may come; the backward pass
//!   recomputes each chunk.
//! * Memory beyond inputs and gradients: a few chunks of at most [`chunk_bytes`](Likelihood::chunk_bytes) bytes each,
//!   whatever `N` and `K`, but never less than one token (`K·V` logits). The contexts of a mixture are made from the
//!   hidden states a block of tokens at a time ([`ContextSource::Latent`]) and made again where a backward pass comes
//!   later, so they are not stored either.
//!
//! # Numerics
//! Log space throughout: no epsilon, and no exponential whose maximum has not been subtracted.
//!
//! # Backends
//! [`LikelihoodBackend`] extends Burn's `Backend`. Its default bodies are the [portable] version, made of Burn's own
//! tensor operations, so a backend opts in with an empty `impl`:
//!
//! ```text
//! impl highrank::LikelihoodBackend for MyBackend {}
//! ```
//!
//! `Autodiff<B, C>` implements it once, with a hand-written backward pass, over any such backend.

mod autodiff;
mod backends;
#[cfg(feature = "gpu")]
mod cube;
#[cfg(feature = "flex")]
mod flex;
pub mod portable;

use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor};

use crate::context::ContextSource;
use crate::context::latent::{self, LatentArgs, LatentGradients, LatentWanted};
use crate::logit_map::MapFunction;
use crate::precision::{self, Precision};

/// Everything the likelihood of a run of tokens depends on, but the targets.
#[derive(Debug, Clone)]
pub struct Likelihood<B: Backend> {
    /// `h_k`, or what they are made of.
    pub contexts: ContextSource<B>,
    /// `log π_k`, shape `[N, K]`; `None` means one component of prior 1.
    pub log_prior: Option<Tensor<B, 2>>,
    /// `W`, shape `[V, d]`.
    pub weight: Tensor<B, 2>,
    /// `b`, shape `[V]`; `None` means 0.
    pub bias: Option<Tensor<B, 1>>,
    /// `f`.
    pub map: MapFunction,
    /// Parameters of `f`, packed as [`MapFunction`] says; `None` if it has none.
    pub map_params: Option<Tensor<B, 1>>,
    /// Size in bytes of the largest logit matrix that may exist at a time.
    pub chunk_bytes: usize,
    /// Of the products with `W`; a [latent layer](ContextSource::Latent) has its own.
    pub precision: Precision,
}

impl<B: Backend> Likelihood<B> {
    /// `K`.
    pub fn components(&self) -> usize {
        self.log_prior.as_ref().map_or(1, |prior| prior.dims()[1])
    }

    /// `N`.
    pub fn tokens(&self) -> usize {
        match &self.contexts {
            ContextSource::Given(contexts) => contexts.dims()[0] / self.components(),
            ContextSource::Latent(args) => args.hidden.dims()[0],
        }
    }

    /// Whether no product rounds what it reads.
    #[cfg(feature = "flex")]
    fn is_exact(&self) -> bool {
        let latent = match &self.contexts {
            ContextSource::Given(_) => Precision::Full,
            ContextSource::Latent(args) => args.precision,
        };
        self.precision == Precision::Full && latent == Precision::Full
    }

    /// `V`.
    pub fn vocab(&self) -> usize {
        self.weight.dims()[0]
    }

    /// Tokens in a chunk: as many as fit [`chunk_bytes`](Self::chunk_bytes), at least one.
    pub fn chunk_tokens(&self) -> usize {
        let token_bytes = self.components() * self.vocab() * self.weight.dtype().size();
        (self.chunk_bytes / token_bytes.max(1)).max(1)
    }

    /// Tokens whose contexts exist at a time: all where they are given, otherwise as many whole chunks as leave the
    /// contexts and their gradients half a chunk's bytes.
    pub fn block_tokens(&self) -> usize {
        match &self.contexts {
            ContextSource::Given(_) => self.tokens(),
            ContextSource::Latent(args) => {
                let token_bytes = 2 * args.weight.dims()[1] * self.weight.dtype().size();
                let chunk = self.chunk_tokens();
                (self.chunk_bytes / 2 / token_bytes.max(1)).max(chunk) / chunk * chunk
            }
        }
    }

    /// Tokens `start .. end`.
    pub(crate) fn slice(&self, start: usize, end: usize) -> Self {
        let components = self.components();
        Self {
            contexts: match &self.contexts {
                ContextSource::Given(contexts) => {
                    ContextSource::Given(contexts.clone().slice(start * components..end * components))
                }
                ContextSource::Latent(args) => ContextSource::Latent(args.slice(start, end)),
            },
            log_prior: self.log_prior.as_ref().map(|prior| prior.clone().slice(start..end)),
            ..self.clone()
        }
    }
}

/// Runs of `step` tokens out of `tokens`, start and end.
pub(crate) fn runs(tokens: usize, step: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..tokens).step_by(step).map(move |start| (start, tokens.min(start + step)))
}

/// The least that a head without [`HeadConfig::memory_budget`](crate::HeadConfig::memory_budget) takes for a chunk of
/// logits: 16 MiB.
///
/// Large enough that a chunk's matrix products run at full speed (over 400 rows of a 10,000-word vocabulary in f32),
/// small enough to stay in a last-level cache and that the added memory is mostly the gradients themselves.
pub const DEFAULT_MEMORY_BUDGET: usize = 16 << 20;

/// [`DEFAULT_MEMORY_BUDGET`], or a quarter of the decoder's matrix if that is more: every chunk reads the matrix twice and
/// its gradient once, and for less than that many logits the reading would cost more than the arithmetic.
pub fn default_memory_budget(decoder_bytes: usize) -> usize {
    DEFAULT_MEMORY_BUDGET.max(decoder_bytes / 4)
}

/// What the log-probabilities are scored against.
#[derive(Debug, Clone)]
pub enum Targets<B: Backend> {
    /// One word a token, shape `[N]`: the cross-entropy is `−log P(y)`.
    Words(Tensor<B, 1, Int>),
    /// A distribution a token, shape `[N, V]`: the cross-entropy is `−Σ_v q_v log P(v)`.
    Distributions(Tensor<B, 2>),
}

impl<B: Backend> Targets<B> {
    /// Tokens `start .. end`.
    pub(crate) fn slice(&self, start: usize, end: usize) -> Self {
        match self {
            Self::Words(words) => Self::Words(words.clone().slice(start..end)),
            Self::Distributions(rows) => Self::Distributions(rows.clone().slice(start..end)),
        }
    }
}

/// Which gradients are asked for; those of frozen inputs cost nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// Gradient of the given contexts, or of the hidden states they are made from.
    pub contexts: bool,
    /// Gradient of the latent layer's weight.
    pub latent_weight: bool,
    /// Gradient of the latent layer's bias.
    pub latent_bias: bool,
    /// Gradient of [`Likelihood::log_prior`].
    pub log_prior: bool,
    /// Gradient of [`Likelihood::weight`].
    pub weight: bool,
    /// Gradient of [`Likelihood::bias`].
    pub bias: bool,
    /// Gradient of [`Likelihood::map_params`].
    pub map_params: bool,
}

impl Wanted {
    /// Every gradient there is.
    pub const ALL: Self = Self {
        contexts: true,
        latent_weight: true,
        latent_bias: true,
        log_prior: true,
        weight: true,
        bias: true,
        map_params: true,
    };

    /// What is wanted of the latent layer, if there is one.
    pub(crate) fn latent(&self) -> LatentWanted {
        LatentWanted { hidden: self.contexts, weight: self.latent_weight, bias: self.latent_bias }
    }

    /// Whether the gradient of the contexts themselves is needed.
    pub(crate) fn context_gradient<B: Backend>(&self, contexts: &ContextSource<B>) -> bool {
        match contexts {
            ContextSource::Given(_) => self.contexts,
            ContextSource::Latent(_) => self.contexts || self.latent_weight || self.latent_bias,
        }
    }
}

/// Gradients of `Σ_n upstream_n · cross-entropy_n`; `None` where not wanted or without such an input.
#[derive(Debug, Clone)]
pub struct Gradients<B: Backend> {
    /// Of the given contexts, `[N·K, d]`, or of the hidden states they are made from, `[N, H]`.
    pub contexts: Option<Tensor<B, 2>>,
    /// `[H, K·d]`
    pub latent_weight: Option<Tensor<B, 2>>,
    /// `[K·d]`
    pub latent_bias: Option<Tensor<B, 1>>,
    /// `[N, K]`
    pub log_prior: Option<Tensor<B, 2>>,
    /// `[V, d]`
    pub weight: Option<Tensor<B, 2>>,
    /// `[V]`
    pub bias: Option<Tensor<B, 1>>,
    /// As [`Likelihood::map_params`].
    pub map_params: Option<Tensor<B, 1>>,
}

/// A Burn backend that can compute the fused likelihood.
///
/// All methods have portable bodies; a backend with native kernels overrides
/// [`nll`](Self::nll) and [`nll_and_gradients`](Self::nll_and_gradients), [`latent`](Self::latent) and
/// [`latent_backward`](Self::latent_backward), [`product`](Self::product) and [`memory_budget`](Self::memory_budget).
pub trait LikelihoodBackend: Backend {
    /// Cross-entropy of every token in nats, shape `[N]`.
    fn nll(input: Likelihood<Self>, targets: Targets<Self>) -> Tensor<Self, 1> {
        portable::nll(&input, &targets)
    }

    /// Cross-entropy of every token, `[N]`, and the gradients of `Σ_n upstream_n · nll_n`.
    ///
    /// The upstream gradient, shape `[N]`, is made from the cross-entropies' count alone, so one pass does both.
    fn nll_and_gradients(
        input: Likelihood<Self>,
        targets: Targets<Self>,
        upstream: Tensor<Self, 1>,
        wanted: Wanted,
    ) -> (Tensor<Self, 1>, Gradients<Self>) {
        portable::nll_and_gradients(&input, &targets, upstream, wanted)
    }

    /// Weighted mean `Σ_n w_n nll_n / Σ_n w_n`, shape `[1]`; without weights the mean.
    ///
    /// Weights of 0 alone give NaN, a mean over nothing.
    fn mean_nll(
        input: Likelihood<Self>,
        targets: Targets<Self>,
        weights: Option<Tensor<Self, 1>>,
    ) -> Tensor<Self, 1> {
        let shares = shares(&input, weights);
        (Self::nll(input, targets) * shares).sum()
    }

    /// `lhs · rhs` of two matrices, what is read of them rounded as `precision` says.
    fn product(lhs: Tensor<Self, 2>, rhs: Tensor<Self, 2>, precision: Precision) -> Tensor<Self, 2> {
        precision::product(lhs, rhs, precision)
    }

    /// The largest logit matrix in bytes that a head without a budget of its own makes on the device, for a decoder of
    /// so many bytes: by default [`default_memory_budget`].
    fn memory_budget(decoder_bytes: usize, _device: &Self::Device) -> usize {
        default_memory_budget(decoder_bytes)
    }

    /// The latent layer of a mixture, `tanh(g·W + b) ∘ mask`, shape `[N, F]`: see [`latent`].
    fn latent(args: LatentArgs<Self>) -> Tensor<Self, 2> {
        latent::portable::latent(args)
    }

    /// Gradients of `Σ grad ∘ output`, where `output` is what [`latent`](Self::latent) gave for `args`.
    fn latent_backward(
        args: LatentArgs<Self>,
        output: Tensor<Self, 2>,
        grad: Tensor<Self, 2>,
        wanted: LatentWanted,
    ) -> LatentGradients<Self> {
        latent::portable::latent_backward(args, output, grad, wanted)
    }

    /// Whether reading a tensor back costs nothing: true for CPU backends, elsewhere it would wait for the device.
    ///
    /// Where it does, targets are checked against the vocabulary at every call.
    fn reads_are_free() -> bool {
        false
    }
}

/// `w_n / Σ w`, shape `[N]`: what each token counts in the mean.
pub(crate) fn shares<B: Backend>(input: &Likelihood<B>, weights: Option<Tensor<B, 1>>) -> Tensor<B, 1> {
    match weights {
        Some(weights) => weights.clone() / weights.sum(),
        None => {
            let tokens = input.tokens();
            let options = (&input.weight.device(), input.weight.dtype());
            Tensor::full([tokens], 1.0 / tokens as f64, options)
        }
    }
}
