//! Configuration of an output head, with the papers' heads by name.

use burn::config::Config;
use burn::tensor::Device;
use highrank_kernels::Precision;

use super::output::OutputHead;
use crate::context::{Context, ContextConfig, Direct, MixtureConfig};
use crate::decoder::DecoderShape;
use crate::error::{HeadError, OrPanic};
use crate::logit_map::LogitMapConfig;

/// Configuration to create an [`OutputHead`].
///
/// The named constructors give the papers' heads; every combination of context and logit map works.
///
/// ```
/// use highrank::{HeadConfig, LogitMapConfig};
///
/// let published = HeadConfig::mos(620, 280, 10_000, 15).with_latent_dropout(0.29);
/// let mixed = HeadConfig::moc(620, 280, 10_000, 15).with_logit_map(LogitMapConfig::Sigsoftmax);
/// assert!(published.validate().is_ok() && mixed.validate().is_ok());
/// ```
#[derive(Config, Debug, PartialEq)]
pub struct HeadConfig {
    /// `H`, width of the hidden state.
    pub d_hidden: usize,
    /// `d`, width of a decoder row.
    pub d_embedding: usize,
    /// `V`, number of words.
    pub vocab: usize,
    /// How the hidden state becomes contexts.
    #[config(default = "ContextConfig::Direct")]
    pub context: ContextConfig,
    /// `f`, applied to every logit.
    #[config(default = "LogitMapConfig::Identity")]
    pub logit_map: LogitMapConfig,
    /// Probability of dropping a latent feature of a mixture while training, in `[0, 1)`.
    #[config(default = 0.0)]
    pub latent_dropout: f64,
    /// Whether the decoder has a bias.
    #[config(default = true)]
    pub bias: bool,
    /// Whether the caller holds the decoder matrix, see [`OutputHead::tied_to`].
    #[config(default = false)]
    pub tied: bool,
    /// Size in bytes of the largest logit matrix that may exist at a time. `None`: what suits the
    /// device ([`Kernels::memory_budget`](crate::ops::Kernels::memory_budget)), on a CPU
    /// [`default_memory_budget`](crate::likelihood::default_memory_budget).
    #[config(default = "None")]
    pub memory_budget: Option<usize>,
    /// What the inputs of matrix products are rounded to.
    #[config(default = "Precision::Full")]
    pub precision: Precision,
}

/// Default of PLIF's bound `T`.
const PLIF_BOUND: f64 = 20.0;

impl HeadConfig {
    /// Softmax over `h·Wᵀ + b`, the rank-limited baseline.
    pub fn softmax(d_embedding: usize, vocab: usize) -> Self {
        Self::new(d_embedding, d_embedding, vocab)
    }

    /// Sigsoftmax (Kanai et al., NeurIPS 2018).
    pub fn sigsoftmax(d_embedding: usize, vocab: usize) -> Self {
        Self::softmax(d_embedding, vocab).with_logit_map(LogitMapConfig::Sigsoftmax)
    }

    /// Generalised sigsoftmax (Parthiban et al., AAAI 2021).
    pub fn gss(d_embedding: usize, vocab: usize) -> Self {
        Self::softmax(d_embedding, vocab).with_logit_map(LogitMapConfig::Gss)
    }

    /// Soft-capped softmax, `f(z) = cap · tanh(z / cap)`.
    pub fn soft_cap(d_embedding: usize, vocab: usize, cap: f64) -> Self {
        Self::softmax(d_embedding, vocab).with_logit_map(LogitMapConfig::SoftCap { cap })
    }

    /// PLIF with `knots` pieces on `[-20, 20]` (Ganea et al., ICML 2019).
    pub fn plif(d_embedding: usize, vocab: usize, knots: usize) -> Self {
        Self::softmax(d_embedding, vocab).with_logit_map(LogitMapConfig::Plif { knots, bound: PLIF_BOUND })
    }

    /// Monotonic network of `units` sigmoids (Ganea et al., ICML 2019, eq. 14).
    pub fn monotonic_net(d_embedding: usize, vocab: usize, units: usize) -> Self {
        Self::softmax(d_embedding, vocab).with_logit_map(LogitMapConfig::MonotonicNet { units })
    }

    /// Mixture of Contexts: one softmax over the mixed context (Yang et al., ICLR 2018, the control of MoS).
    pub fn moc(d_hidden: usize, d_embedding: usize, vocab: usize, components: usize) -> Self {
        Self::new(d_hidden, d_embedding, vocab).with_context(ContextConfig::MixtureOfContexts { components })
    }

    /// Mixture of Softmaxes (Yang et al., ICLR 2018).
    pub fn mos(d_hidden: usize, d_embedding: usize, vocab: usize, components: usize) -> Self {
        Self::new(d_hidden, d_embedding, vocab).with_context(ContextConfig::MixtureOfSoftmaxes { components })
    }

    /// Mixture of Softmaxes whose logits pass one PLIF (Ganea et al., ICML 2019, section 5.2).
    pub fn mos_plif(
        d_hidden: usize,
        d_embedding: usize,
        vocab: usize,
        components: usize,
        knots: usize,
    ) -> Self {
        Self::mos(d_hidden, d_embedding, vocab, components)
            .with_logit_map(LogitMapConfig::Plif { knots, bound: PLIF_BOUND })
    }

    /// Sets PLIF's bound `T`; no effect on other maps.
    pub fn with_plif_bound(mut self, bound: f64) -> Self {
        if let LogitMapConfig::Plif { bound: current, .. } = &mut self.logit_map {
            *current = bound;
        }
        self
    }

    /// Checks every size and range.
    ///
    /// # Errors
    /// The first [`HeadError`] found.
    pub fn validate(&self) -> Result<(), HeadError> {
        let sizes = [
            ("d_hidden", self.d_hidden),
            ("d_embedding", self.d_embedding),
            ("vocab", self.vocab),
            ("components", self.context.components()),
            ("memory_budget", self.memory_budget.unwrap_or(1)),
        ];
        if let Some((name, _)) = sizes.into_iter().find(|(_, size)| *size == 0) {
            return Err(HeadError::ZeroSize { name });
        }
        if self.context == ContextConfig::Direct && self.d_hidden != self.d_embedding {
            return Err(HeadError::DirectSizes { d_hidden: self.d_hidden, d_embedding: self.d_embedding });
        }
        if !(0.0..1.0).contains(&self.latent_dropout) {
            return Err(HeadError::Dropout { value: self.latent_dropout });
        }
        self.logit_map.validate()
    }

    /// Creates the head: decoder uniform in ±0.1 with bias 0, mixture weights uniform in `±1/√H`.
    ///
    /// # Panics
    /// With the message of [`validate`](Self::validate) if the configuration is invalid.
    #[track_caller]
    pub fn init(&self, device: &Device) -> OutputHead {
        self.try_init(device).or_panic("HeadConfig::init")
    }

    /// [`init`](Self::init) with an error in place of a panic.
    ///
    /// # Errors
    /// Those of [`validate`](Self::validate).
    pub fn try_init(&self, device: &Device) -> Result<OutputHead, HeadError> {
        self.validate()?;
        let mixture = |components| {
            MixtureConfig::new(self.d_hidden, self.d_embedding, components)
                .with_dropout(self.latent_dropout)
                .with_precision(self.precision)
                .init(device)
        };
        let context = match self.context {
            ContextConfig::Direct => Context::Direct(Direct),
            ContextConfig::MixtureOfContexts { components } => {
                Context::MixtureOfContexts(mixture(components))
            }
            ContextConfig::MixtureOfSoftmaxes { components } => {
                Context::MixtureOfSoftmaxes(mixture(components))
            }
        };
        let decoder = DecoderShape {
            vocab: self.vocab,
            d_embedding: self.d_embedding,
            bias: self.bias,
            tied: self.tied,
        };
        Ok(OutputHead {
            context,
            logit_map: self.logit_map.init(device),
            decoder: decoder.init(device),
            memory_budget: self.memory_budget,
            precision: self.precision,
        })
    }
}
