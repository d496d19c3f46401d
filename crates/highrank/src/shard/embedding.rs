//! An embedding whose rows are shared out.

use std::ops::Range;

use burn::module::{Module, Param};
use burn::nn::Embedding;
use burn::tensor::{Int, Tensor};

use super::exchange::{part_of, summed};
use super::group::{GroupHandle, ShardError};
use crate::loss::validate_targets;
use crate::ops::wide;
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
    group: GroupHandle,
    #[module(skip)]
    rows: Range<usize>,
    #[module(skip)]
    vocab: usize,
}

impl ShardedEmbedding {
    /// This rank's rows of an embedding that is the same on all ranks, as a parameter of its own.
    ///
    /// # Errors
    /// [`ShardError::TooManyRanks`].
    pub fn new(embedding: &Embedding, group: GroupHandle) -> Result<Self, ShardError> {
        let [vocab, _] = embedding.weight.shape().dims();
        let rows = part_of(vocab, &*group)?;
        let weight = changed(&embedding.weight, |weight| weight.slice_dim(0, rows.clone()));
        Ok(Self { weight, group, rows, vocab })
    }

    /// The vectors of words. Differentiable; the gradient reaches the rows of this rank.
    ///
    /// # Shapes
    /// - words: `[.., S]`, D dimensions
    /// - output: `[.., S, d]`, E = D + 1 dimensions, in f32, or f64 if the rows are
    ///
    /// # Errors
    /// [`HeadError::Target`](crate::HeadError::Target) of a word outside `0..V`, and whatever the group has to say.
    ///
    /// # Panics
    /// If E is not D + 1.
    pub fn forward<const D: usize, const E: usize>(
        &self,
        words: Tensor<D, Int>,
    ) -> Result<Tensor<E>, ShardError> {
        let weight = value(&self.weight);
        let (dims, [_, d]) = (words.dims(), weight.dims());
        let words = words.reshape([dims.iter().product::<usize>()]);
        validate_targets(&words, self.vocab)?;
        let places = words.clone() - self.rows.start as i64;
        let last = self.rows.len() as i64 - 1;
        let elsewhere = places.clone().lower_elem(0).bool_or(places.clone().greater_elem(last));
        let [tokens] = words.dims();
        let own = weight.select(0, places.clamp(0, last));
        let own = own.mask_fill(elsewhere.unsqueeze_dim::<2>(1).expand([tokens, d]), 0.0);
        let dtype = wide(own.dtype());
        let own = own.cast(dtype);
        let all = summed(&*self.group, own.clone().detach().into_data())?;
        let all = Tensor::<2>::from_data(all, (&own.device(), dtype));
        let mut shape = [d; E];
        shape[..D].copy_from_slice(&dims);
        Ok((all + (own.clone() - own.detach())).reshape(shape))
    }
}
