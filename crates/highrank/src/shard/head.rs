//! A head with this rank's rows of the decoder.

use std::ops::Range;

use burn::module::{Module, Param};
use burn::tensor::Tensor;

use super::embedding::ShardedEmbedding;
use super::exchange::gathered;
use super::group::{GroupHandle, ShardError};
use super::share::Share;
use crate::OutputHead;
use crate::decoder::Decoder;
use crate::ops::{MASKING_BIAS, has_kernels, wide};
use crate::parameters::{changed, value, with_own_parameters};

/// A head whose decoder's rows are shared out over ranks: [`shard`](super) says how.
///
/// Should be created with [`OutputHead::shard`], on all ranks of a group alike. Its losses and predictions are those of the whole
/// head, to rounding, and the same bits on all ranks; each is a step that all ranks take together, with the same hidden states,
/// targets and options.
///
/// As a module it holds all parameters of contexts and logit map, which every rank trains alike, and its own rows of the decoder.
///
/// # Example
/// ```
/// use burn::tensor::{Device, Int, Tensor};
/// use highrank::HeadConfig;
/// use highrank::shard::on_threads;
///
/// let device = Device::default().autodiff();
/// let config = HeadConfig::mos(24, 16, 1000, 3);
/// let whole = config.init(&device);
/// let losses = on_threads(4, |group| {
///     let head = whole.shard(group)?; // 250 words each
///     let hidden = Tensor::<2>::ones([5, 24], &device);
///     let targets = Tensor::<1, Int>::from_ints([3, 141, 592, 653, 999], &device);
///     let loss = head.loss(hidden, targets)?;
///     let gradients = loss.backward();
///     # let _ = gradients;
///     Ok::<f32, highrank::shard::ShardError>(loss.into_scalar())
/// });
/// assert!(losses.iter().all(|loss| *loss == losses[0]));
/// # losses[0].as_ref().unwrap();
/// ```
#[derive(Module, Debug)]
pub struct ShardedHead {
    /// Over the words of this rank alone.
    pub(super) head: OutputHead,
    #[module(skip)]
    pub(super) shared: SharedVocabulary,
}

/// What a rank of a [`ShardedHead`] knows besides parameters: for a model that keeps them in a module of its own.
#[derive(Debug, Clone)]
pub struct SharedVocabulary {
    /// The whole decoder, without its parameters.
    pub(super) whole: Decoder,
    pub(super) share: Share,
    /// A word that is not masked, if there is one.
    pub(super) safe_word: usize,
}

impl SharedVocabulary {
    /// The rows of the decoder that this rank holds.
    pub fn share(&self) -> &Share {
        &self.share
    }

    /// The head whose [part](ShardedHead::into_parts) over the words of this rank is `own`.
    pub fn head(&self, own: OutputHead) -> ShardedHead {
        ShardedHead { head: own, shared: self.clone() }
    }
}

impl OutputHead {
    /// The head with its decoder's rows shared out over the ranks of a group, and with parameters of its own. It has to be the
    /// same on all ranks: made from the same seed, or loaded from one file. Words are to be masked before.
    ///
    /// What LoRA has added to a parameter becomes part of its value, which is as frozen as the parameter was.
    ///
    /// Rank r of p takes rows `⌊rR/p⌋ .. ⌊(r + 1)R/p⌋` of the R rows, those of the padding too.
    ///
    /// # Errors
    /// [`ShardError::TooManyRanks`]; [`ShardError::Unsupported`] for clusters, the gates of a Mixtape, and devices that this
    /// crate has no operations of its own for.
    pub fn shard(&self, group: GroupHandle) -> Result<ShardedHead, ShardError> {
        let unsupported = |what, instead| Err(ShardError::Unsupported { what, instead });
        if self.clusters.is_some() {
            return unsupported("a softmax with clusters", "take a head without clusters");
        }
        if let Some(context) = self.context.not_linear() {
            return unsupported(context, "its words have gates of their own: use a mixture of softmaxes");
        }
        if !has_kernels(self.decoder.device().as_dispatch()) {
            return unsupported("a backward pass on this device", "use Flex, NdArray or a CubeCL backend");
        }
        let share = Share::new(self.decoder.rows(), group)?;
        let bias = self.decoder.bias.as_ref().map(|bias| value(bias).detach().into_data());
        let bias: Vec<f64> = bias.map_or_else(Vec::new, |bias| bias.iter::<f64>().collect());
        let is_masked = |word: &usize| {
            let is_low = bias.get(*word).is_some_and(|bias| *bias <= MASKING_BIAS);
            is_low || self.decoder.masked_words().contains(word)
        };
        let safe_word = (0..self.vocab()).find(|word| !is_masked(word)).unwrap_or(0);
        let (part, whole) = (self.decoder.part(share.rows()), self.decoder.bare());
        let context = with_own_parameters(self.context.clone());
        let logit_map = with_own_parameters(self.logit_map.clone());
        let head = OutputHead { context, logit_map, decoder: part, ..self.clone() };
        Ok(SharedVocabulary { whole, share, safe_word }.head(head))
    }
}

impl ShardedHead {
    /// `V`, the number of words of all ranks.
    pub fn vocab(&self) -> usize {
        self.shared.whole.vocab
    }

    /// The decoder's rows that this rank holds; words are those below `V`.
    pub fn rows(&self) -> Range<usize> {
        self.shared.share.rows()
    }

    /// The ranks that share the vocabulary.
    pub fn group(&self) -> &GroupHandle {
        self.shared.share.group()
    }

    /// A head over the words of this rank alone, which has all parameters, and what [makes](SharedVocabulary::head) this one of it.
    pub fn into_parts(self) -> (OutputHead, SharedVocabulary) {
        (self.head, self.shared)
    }

    /// A [tied](crate::HeadConfig::with_tied) head with this rank's rows of the embedding as its decoder. Call it in every
    /// forward pass, as [`OutputHead::tied_to`].
    ///
    /// # Errors
    /// What that panics for.
    pub fn tied_to(&self, embedding: &ShardedEmbedding) -> Result<Self, ShardError> {
        let matrix = Param::initialized(embedding.weight.id, embedding.weight.val());
        let decoder = self.head.decoder.tied_to(matrix)?;
        Ok(Self { head: OutputHead { decoder, ..self.head.clone() }, ..self.clone() })
    }

    /// The same head at temperature τ, see [`OutputHead::at_temperature`].
    ///
    /// # Panics
    /// As that.
    #[track_caller]
    pub fn at_temperature(&self, temperature: f64) -> Self {
        Self { head: self.head.at_temperature(temperature), ..self.clone() }
    }

    /// The same head with a mask for its latent dropout, see [`OutputHead::with_latent_mask`]. Without one all ranks take the one
    /// that the first draws.
    ///
    /// # Panics
    /// As that.
    #[track_caller]
    pub fn with_latent_mask(&self, mask: Tensor<2>) -> Self {
        Self { head: self.head.with_latent_mask(mask), ..self.clone() }
    }

    /// The whole head on every rank, for a checkpoint that does not depend on the number of ranks.
    ///
    /// # Errors
    /// What the group has to say.
    pub fn whole(&self) -> Result<OutputHead, ShardError> {
        let mut decoder = self.shared.whole.clone();
        if let Some(weight) = &self.head.decoder.weight {
            let all = self.all_rows(value(weight))?;
            decoder.weight = Some(changed(weight, |_| all));
        }
        if let Some(bias) = &self.head.decoder.bias {
            let all = self.all_rows(value(bias).unsqueeze_dim(1))?;
            decoder.bias = Some(changed(bias, |_| all.squeeze_dim(1)));
        }
        Ok(OutputHead { decoder, ..self.head.clone() })
    }

    /// All rows, for those of this rank.
    fn all_rows(&self, own: Tensor<2>) -> Result<Tensor<2>, ShardError> {
        let ([rows, width], dtype) = (own.dims(), own.dtype());
        let share = &self.shared.share;
        let most = share.all().div_ceil(share.group().size());
        let zeros = Tensor::zeros([most - rows, width], (&own.device(), dtype));
        let padded = Tensor::cat(vec![own, zeros], 0).cast(wide(dtype));
        let parts = gathered(&**self.group(), &padded)?.into_iter().enumerate();
        let parts = parts.map(|(rank, part)| {
            let rows = share.start_of(rank + 1) - share.start_of(rank);
            part.narrow(0, 0, rows)
        });
        Ok(Tensor::cat(parts.collect(), 0).cast(dtype))
    }
}
