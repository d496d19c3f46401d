//! The module of an output head.

use burn::module::{Content, Module, ModuleDisplay};
use highrank_kernels::Precision;

use super::clusters::Clusters;
use crate::context::Context;
use crate::decoder::Decoder;
use crate::error::{HeadError, OrPanic};
use crate::logit_map::LogitMap;

/// An output layer: from a hidden state to a distribution over `V` words.
///
/// ```text
/// log P(x | c) = logsumexp_k [ log π_k(c) + log softmax( f( h_k(c) · Wᵀ + b ) )_x ]
/// ```
///
/// Should be created with [`HeadConfig`](crate::HeadConfig). It runs on whatever device its tensors are on. Hidden states may
/// have any number of leading dimensions. Which of them is time matters to latent dropout only: the first, unless the
/// configuration names another [`TimeAxis`](crate::TimeAxis), as models with `[batch, time, H]` must.
///
/// Targets and samples are words `0..V`. A [padded vocabulary](crate::HeadConfig::vocab_multiple) makes the last dimension of
/// log-probabilities larger than `V`; the rest of it are words of probability 0.
///
/// All methods that need the decoder matrix are also on [`BoundHead`](crate::BoundHead), which [`tied_to`](Self::tied_to) returns
/// for a head without a matrix of its own.
///
/// # Example
/// ```
/// use burn::tensor::{Device, Distribution, Int, Tensor};
/// use highrank::HeadConfig;
///
/// let device = Device::default().autodiff();
/// let head = HeadConfig::mos(64, 32, 1000, 5).init(&device);
///
/// let hidden = Tensor::<3>::random([7, 2, 64], Distribution::Default, &device); // [T, B, H]
/// let targets = Tensor::<2, Int>::full([7, 2], 3, &device); // [T, B]
/// let loss = head.loss(hidden.clone(), targets, None); // mean nll in nats, no logits kept
/// let gradients = loss.backward();
/// assert_eq!(head.log_probs(hidden).dims(), [7, 2, 1000]);
/// # let _ = gradients;
/// ```
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct OutputHead {
    /// `g → (h_k, log π_k)`.
    pub context: Context,
    /// `f`.
    pub logit_map: LogitMap,
    /// `W` and `b`; with clusters those of the head cluster.
    pub decoder: Decoder,
    /// Those of an [adaptive softmax](crate::HeadConfig::with_adaptive).
    pub clusters: Option<Clusters>,
    /// Size in bytes of the largest logit matrix that may exist at a time; `None` leaves it to the device.
    pub memory_budget: Option<usize>,
    /// What the inputs of matrix products are rounded to.
    #[module(skip)]
    pub precision: Precision,
}

impl OutputHead {
    /// `V`, the number of words: those of targets and samples are `0..V`.
    pub fn vocab(&self) -> usize {
        self.clusters.as_ref().map_or(self.decoder.vocab, Clusters::vocab)
    }

    /// The last dimension of log-probabilities: `V` and the decoder's padding, without that of clusters.
    pub fn rows(&self) -> usize {
        self.clusters.as_ref().map_or(self.decoder.rows(), Clusters::vocab)
    }

    /// Masks words: their probability is 0 and their gradients are exactly 0. See [`Decoder`].
    ///
    /// To mask words for a while only, such as those that a text must not hold, mask those of a clone, which shares the
    /// parameters. Words masked here are in no record; those of [`HeadConfig::masked_words`](crate::HeadConfig::masked_words)
    /// come back with the configuration.
    ///
    /// # Panics
    /// If a word is not below `V`, or no word would be left.
    #[track_caller]
    pub fn mask_words(self, words: &[usize]) -> Self {
        self.try_mask_words(words).or_panic("OutputHead::mask_words")
    }

    /// [`mask_words`](Self::mask_words) with an error in place of a panic.
    ///
    /// # Errors
    /// [`HeadError::MaskedWord`] or [`HeadError::NoWordLeft`].
    pub fn try_mask_words(self, words: &[usize]) -> Result<Self, HeadError> {
        let Some(clusters) = self.clusters else {
            return Ok(Self { decoder: self.decoder.try_mask_words(words)?, ..self });
        };
        let (clusters, decoder) = clusters.masking(self.decoder, words)?;
        Ok(Self { decoder, clusters: Some(clusters), ..self })
    }
}

impl ModuleDisplay for OutputHead {
    fn custom_content(&self, content: Content) -> Option<Content> {
        let content = content
            .add("context", &self.context)
            .add("logit_map", &self.logit_map)
            .add("decoder", &self.decoder);
        let content = match &self.clusters {
            Some(clusters) => content.add("clusters", clusters),
            None => content,
        };
        let content = content.add_debug_attribute("precision", &self.precision);
        match &self.memory_budget {
            Some(bytes) => content.add("memory_budget", bytes).optional(),
            None => content.optional(),
        }
    }
}
