//! What the likelihood of a run of tokens reads and which gradients it has.

use burn::backend::Backend;
use burn::tensor::DType;
use highrank_kernels::precision::wide;
use highrank_kernels::{Floats, Precision};

use super::gated::{GATES, GatedArgs, GatedInputs};
use super::inputs::per_input;
use super::latent::{LatentArgs, LatentWanted};
use crate::logit_map::LogitMapConfig;

/// The contexts `h_k` of a run of tokens, or what they are made of.
#[derive(Debug, Clone)]
pub enum ContextSource<F = Floats> {
    /// `h_k`, shape `[N·K, d]`: row `n·K + k` is component `k` of token `n`.
    Given(F),
    /// Row `n` of the latent layer's output, `[N, K·d]`, holds the components of token `n` side by side.
    Latent(LatentArgs<F>),
    /// Four contexts, one component, which every word mixes by gates of its own.
    Gated(GatedArgs<F>),
}

impl<F> ContextSource<F> {
    /// The same contexts with each tensor changed by `f`.
    pub fn map<G>(self, mut f: impl FnMut(F) -> G) -> ContextSource<G> {
        match self {
            Self::Given(contexts) => ContextSource::Given(f(contexts)),
            Self::Latent(args) => ContextSource::Latent(args.map(f)),
            Self::Gated(args) => ContextSource::Gated(args.map(f)),
        }
    }
}

/// Everything the likelihood of a run of tokens depends on, except the targets.
#[derive(Debug, Clone)]
pub struct LikelihoodInput<F = Floats> {
    /// `h_k`, or what they are made of.
    pub contexts: ContextSource<F>,
    /// `log π_k`, shape `[N, K]`; `None` means one component of prior 1.
    pub log_prior: Option<F>,
    /// `W`, shape `[V, d]`.
    pub weight: F,
    /// `b`, shape `[V]`; `None` means 0. −∞ masks a word: it has probability 0, whatever `f`.
    pub bias: Option<F>,
    /// `f`.
    pub map: LogitMapConfig,
    /// Parameters of `f`, packed as the map's type in [`logit_map`](crate::logit_map) says; `None` if it has none.
    pub map_params: Option<F>,
    /// `τ`, which divides the mapped logits of every component; priors stay as they are.
    pub temperature: f64,
    /// Size in bytes of the largest logit matrix that may exist at a time.
    pub chunk_bytes: usize,
    /// Of the products with `W`; a [latent layer](ContextSource::Latent) has its own, and so have
    /// [gates](ContextSource::Gated).
    pub precision: Precision,
}

impl<F> LikelihoodInput<F> {
    /// The same likelihood with each tensor changed by `f`.
    pub fn map<G>(self, mut f: impl FnMut(F) -> G) -> LikelihoodInput<G> {
        LikelihoodInput {
            contexts: self.contexts.map(&mut f),
            log_prior: self.log_prior.map(&mut f),
            weight: f(self.weight),
            bias: self.bias.map(&mut f),
            map: self.map,
            map_params: self.map_params.map(&mut f),
            temperature: self.temperature,
            chunk_bytes: self.chunk_bytes,
            precision: self.precision,
        }
    }

    /// The inputs that may be differentiated.
    pub fn inputs(&self) -> PerInput<Option<&F>> {
        let (contexts, latent, gated) = match &self.contexts {
            ContextSource::Given(contexts) => (Some(contexts), None, None),
            ContextSource::Latent(args) => (Some(&args.hidden), Some(args), None),
            ContextSource::Gated(args) => (None, None, Some(args.inputs.each_ref())),
        };
        PerInput {
            contexts,
            latent_weight: latent.map(|args| &args.weight),
            latent_bias: latent.and_then(|args| args.bias.as_ref()),
            log_prior: self.log_prior.as_ref(),
            weight: Some(&self.weight),
            bias: self.bias.as_ref(),
            map_params: self.map_params.as_ref(),
            gated: gated.map_or(GatedInputs::default(), |gated| gated.map(Some)),
        }
    }
}

impl<B: Backend> LikelihoodInput<Floats<B>> {
    /// `K`.
    pub fn components(&self) -> usize {
        self.log_prior.as_ref().map_or(1, |prior| prior.shape()[1])
    }

    /// `N`.
    pub fn tokens(&self) -> usize {
        match &self.contexts {
            ContextSource::Given(contexts) => contexts.shape()[0] / self.components(),
            ContextSource::Latent(args) => args.hidden.shape()[0],
            ContextSource::Gated(args) => args.tokens(),
        }
    }

    /// `V`.
    pub fn vocab(&self) -> usize {
        self.weight.shape()[0]
    }

    /// The float type that sums and results have: f64 for f64, f32 for all shorter types.
    pub fn wide(&self) -> DType {
        wide(self.weight.dtype())
    }

    /// The same likelihood with all tensors in the type of its sums.
    pub fn widened(self) -> Self {
        let dtype = self.wide();
        self.map(|tensor| tensor.cast(dtype))
    }

    /// Numbers in [`chunk_bytes`](Self::chunk_bytes), whatever the type of the decoder: logits are in that of the sums.
    pub fn chunk_numbers(&self) -> usize {
        self.chunk_bytes / self.wide().size()
    }

    /// Tokens in a chunk: as many as fit [`chunk_bytes`](Self::chunk_bytes), at least one.
    pub fn chunk_tokens(&self) -> usize {
        let logits = match &self.contexts {
            ContextSource::Gated(args) => self.vocab().max(GATES * args.words()),
            _ => self.components() * self.vocab(),
        };
        (self.chunk_numbers() / logits.max(1)).max(1)
    }

    /// Tokens whose contexts exist at a time: all where they are given, otherwise as many whole chunks as
    /// leave the contexts and their gradients half a chunk's bytes; one chunk where there are gates.
    pub fn block_tokens(&self) -> usize {
        match &self.contexts {
            ContextSource::Given(_) => self.tokens(),
            ContextSource::Gated(_) => self.chunk_tokens(),
            ContextSource::Latent(args) => {
                let (numbers, chunk) = (2 * args.weight.shape()[1], self.chunk_tokens());
                (self.chunk_numbers() / 2 / numbers.max(1)).max(chunk) / chunk * chunk
            }
        }
    }

    /// Tokens `start .. end`.
    pub fn slice(&self, start: usize, end: usize) -> Self {
        let components = self.components();
        Self {
            contexts: match &self.contexts {
                ContextSource::Given(contexts) => {
                    ContextSource::Given(contexts.clone().rows(start * components..end * components))
                }
                ContextSource::Latent(args) => ContextSource::Latent(args.slice(start, end)),
                ContextSource::Gated(args) => ContextSource::Gated(args.slice(start, end)),
            },
            log_prior: self.log_prior.as_ref().map(|prior| prior.clone().rows(start..end)),
            ..self.clone()
        }
    }

    /// The same tokens in runs that fit the memory budget.
    pub fn into_chunks(self) -> impl Iterator<Item = Self> + use<B> {
        runs(self.tokens(), self.chunk_tokens()).map(move |(start, end)| self.slice(start, end))
    }
}

/// Runs of `step` tokens out of `tokens`, start and end; the last may be shorter.
pub fn runs(tokens: usize, step: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..tokens).step_by(step).map(move |start| (start, tokens.min(start + step)))
}

per_input! {
    /// A value for each input of the likelihood that may be differentiated.
    pub struct PerInput {
        /// Of the given contexts, `[N·K, d]`, or of the hidden states they are made from, `[N, H]`.
        contexts,
        /// Of the latent layer's weight, `[H, K·d]`.
        latent_weight,
        /// Of the latent layer's bias, `[K·d]`.
        latent_bias,
        /// Of [`LikelihoodInput::log_prior`], `[N, K]`.
        log_prior,
        /// Of [`LikelihoodInput::weight`], `[V, d]`.
        weight,
        /// Of [`LikelihoodInput::bias`], `[V]`.
        bias,
        /// Of [`LikelihoodInput::map_params`].
        map_params,
        ..
        /// Of contexts with gates.
        gated: GatedInputs,
    }
    /// Gradients of `Σ_n upstream_n · loss_n`, in the [type of sums](wide); `None` where not wanted or
    /// without such an input.
    pub type Gradients;
    /// Which gradients are asked for; those of frozen inputs cost nothing.
    pub type Wanted;
}

#[cfg(all(test, any(feature = "flex", feature = "wgpu", feature = "cuda")))]
impl PerInput<()> {
    /// The names of the inputs in messages of tests; those of gates begin with `gate`.
    #[rustfmt::skip]
    pub const NAMES: [&str; Self::COUNT] = [
        "contexts", "latent weight", "latent bias", "log-prior", "weight", "bias", "map parameters",
        "gated prior", "gated contexts", "gate features", "gate logits", "gate vectors", "gate biases",
    ];
}

impl Wanted {
    /// What is wanted of the latent layer, if there is one.
    pub fn latent(&self) -> LatentWanted {
        LatentWanted { hidden: self.contexts, weight: self.latent_weight, bias: self.latent_bias }
    }

    /// Whether the gradient of the contexts themselves is needed.
    pub fn context_gradient<F>(&self, contexts: &ContextSource<F>) -> bool {
        match contexts {
            ContextSource::Given(_) => self.contexts,
            ContextSource::Latent(_) => self.contexts || self.latent_weight || self.latent_bias,
            ContextSource::Gated(_) => self.gated.prior || self.gated.latent,
        }
    }
}
