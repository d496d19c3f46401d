//! A head with this rank's rows of the decoder.

use std::ops::Range;

use burn::module::Module;
use burn::tensor::Tensor;

use super::exchange::gathered;
use super::group::{GroupHandle, ShardError};
use super::share::Share;
use crate::OutputHead;
use crate::decoder::Decoder;
use crate::error::expect_shape;
use crate::likelihood::has_kernels;
use crate::ops::{MASKING_BIAS, wide};
use crate::parameters::{changed, value, with_own_parameters};

/// A head whose decoder's rows are shared out over ranks: [`shard`](super) says how.
///
/// Should be created with [`OutputHead::shard`], on all ranks of a group alike. Its losses and predictions are those of the whole
/// head, to rounding, and the same bits on all ranks; each is a step that all ranks take together, with the same hidden states,
/// targets and options.
///
/// As a module it holds all parameters of contexts and logit map, which every rank trains alike, and its own rows of the decoder.
///
/// # Other heads
/// A temperature, a latent mask and a lent matrix are set on [`head`](Self::head), on all ranks alike. The methods that set them
/// panic as those of any [`OutputHead`]; a lent matrix has the rows `shared.share.rows` alone. Without a latent mask all ranks
/// take the one that the first draws.
///
/// ```
/// # use burn::module::Param;
/// # use burn::tensor::Tensor;
/// # use highrank::shard::ShardedHead;
/// # let _ = |sharded: ShardedHead, rows: Param<Tensor<2>>| -> ShardedHead {
/// // A tied head, with this rank's rows of the embedding as its decoder; in every forward pass.
/// ShardedHead { head: sharded.head.tied_to(&rows).at_temperature(0.7), ..sharded }
/// # };
/// ```
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
    /// The head over the words of this rank alone, with all parameters. Its own methods see no other words: `.head.loss` is that of a
    /// smaller vocabulary. Its rows, bias and masked words have to stay those of the rank.
    pub head: OutputHead,
    /// What makes a head over all words of it.
    #[module(skip)]
    pub shared: SharedVocabulary,
}

/// What a rank of a [`ShardedHead`] knows besides parameters. A model that keeps the parameters itself puts both together again:
/// `ShardedHead { head, shared }`.
#[derive(Debug, Clone)]
pub struct SharedVocabulary {
    /// The whole decoder, without its parameters.
    pub(super) whole: Decoder,
    /// The rows of the decoder that this rank holds. Those of its words are below `V`.
    pub share: Share,
    /// A word that is not masked, if there is one.
    pub(super) safe_word: usize,
}

impl OutputHead {
    /// The head with its decoder's rows shared out over the ranks of a group, and with parameters of its own. It has to be the
    /// same on all ranks: made from the same seed, or loaded from one file. Words are to be masked before.
    ///
    /// What LoRA has added to the decoder becomes part of its value, which is as frozen as the decoder was. Contexts and logit map
    /// keep their adapters.
    ///
    /// Rank r of p takes rows `⌊rR/p⌋ .. ⌊(r + 1)R/p⌋` of the R rows, those of the padding too.
    ///
    /// # Errors
    /// [`ShardError::TooManyRanks`]; [`ShardError::Unsupported`] for clusters, the gates of a Mixtape, and devices that this
    /// crate has no operations of its own for.
    pub fn shard(&self, group: GroupHandle) -> Result<ShardedHead, ShardError> {
        self.can_be_shared()?;
        let share = Share::new(self.decoder.rows(), group)?;
        let bias = self.decoder.bias.as_ref().map(|bias| value(bias).detach().into_data());
        let bias: Vec<f64> = bias.map_or_else(Vec::new, |bias| bias.iter::<f64>().collect());
        let is_masked = |word: &usize| {
            let is_low = bias.get(*word).is_some_and(|bias| *bias <= MASKING_BIAS);
            is_low || self.decoder.masked_words.contains(word)
        };
        let safe_word = (0..self.vocab()).find(|word| !is_masked(word)).unwrap_or(0);
        let (part, whole) = (self.decoder.part(share.rows.clone()), self.decoder.bare());
        let context = with_own_parameters(self.context.clone());
        let logit_map = with_own_parameters(self.logit_map.clone());
        let head = OutputHead { context, logit_map, decoder: part, ..self.clone() };
        Ok(ShardedHead { head, shared: SharedVocabulary { whole, share, safe_word } })
    }

    /// Whether the words of such a head can be shared out over ranks.
    fn can_be_shared(&self) -> Result<(), ShardError> {
        let unsupported = |what, instead| Err(ShardError::Unsupported { what, instead });
        if self.clusters.is_some() {
            return unsupported("a softmax with clusters", "take a head without clusters");
        }
        if let Some(context) = self.context.not_linear() {
            return unsupported(context, "its words have gates of their own: use a mixture of softmaxes");
        }
        if !has_kernels(self.decoder.device().as_dispatch()) {
            return unsupported("a backward pass on this device", "use Flex, NdArray, WebGPU or CUDA");
        }
        Ok(())
    }
}

impl ShardedHead {
    /// `V`, the number of words of all ranks.
    pub(super) fn vocab(&self) -> usize {
        self.shared.whole.vocab
    }

    /// The decoder's rows that this rank holds.
    pub(super) fn rows(&self) -> Range<usize> {
        self.shared.share.rows.clone()
    }

    /// The ranks that share the vocabulary.
    pub(super) fn group(&self) -> &GroupHandle {
        &self.shared.share.group
    }

    /// Checks that [`head`](Self::head), which anybody can set, is one over the words of this rank.
    pub(super) fn check_head(&self) -> Result<(), ShardError> {
        self.head.can_be_shared()?;
        let (got, expected) = ([self.head.decoder.rows()], [self.rows().len()]);
        Ok(expect_shape("the decoder of a rank's head", &got, &expected, "the rows of this rank")?)
    }

    /// The whole head on every rank, for a checkpoint that does not depend on the number of ranks.
    ///
    /// # Errors
    /// [`ShardError::Unsupported`] and [`HeadError::Shape`](crate::HeadError::Shape) where `head` is none over this rank's words; what
    /// the group has to say.
    pub fn whole(&self) -> Result<OutputHead, ShardError> {
        self.check_head()?;
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
        let most = share.all.div_ceil(share.group.size());
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
