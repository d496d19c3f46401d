//! An embedding whose rows are shared out.

use burn::module::{Module, Param};
use burn::nn::Embedding;
use burn::tensor::{Int, Tensor};

use super::group::{GroupHandle, ShardError};
use super::share::Share;
use crate::parameters::{changed, value};

/// The rows of an embedding that one rank holds, for a [`ShardedHead`](super::ShardedHead) that is
/// [tied](super::ShardedHead::tied_to) to them.
///
/// ```text
/// e(x) = Σ_r [x is a word of rank r] E^r_x
/// ```
///
/// Should be created with [`ShardedEmbedding::new`] on all ranks alike.
#[derive(Module, Debug)]
pub struct ShardedEmbedding {
    /// `E^r`, shape `[rows of this rank, d]`.
    pub weight: Param<Tensor<2>>,
    #[module(skip)]
    share: Share,
}

impl ShardedEmbedding {
    /// This rank's rows of an embedding that is the same on all ranks, as a parameter of its own.
    ///
    /// # Errors
    /// [`ShardError::TooManyRanks`].
    pub fn new(embedding: &Embedding, group: GroupHandle) -> Result<Self, ShardError> {
        let [vocab, _] = embedding.weight.shape().dims();
        let share = Share::new(vocab, group)?;
        let weight = changed(&embedding.weight, |weight| weight.slice_dim(0, share.rows()));
        Ok(Self { weight, share })
    }

    /// The vectors of words: [`Share::lookup`] of the parameter.
    ///
    /// # Shapes
    /// - words: `[.., S]`, D dimensions
    /// - output: `[.., S, d]`, E = D + 1 dimensions, in f32, or f64 if the rows are
    ///
    /// # Errors
    /// As that.
    ///
    /// # Panics
    /// If E is not D + 1.
    pub fn forward<const D: usize, const E: usize>(
        &self,
        words: Tensor<D, Int>,
    ) -> Result<Tensor<E>, ShardError> {
        self.share.lookup(value(&self.weight), words)
    }
}
