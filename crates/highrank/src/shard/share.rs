//! The rows of a matrix that a rank holds.

use std::ops::Range;

use burn::tensor::{Bool, IndexingUpdateOp, Int, Tensor};

use super::exchange::summed;
use super::group::{GroupHandle, ShardError};
use crate::loss::{in_wide_integers, validate_targets};
use crate::ops::wide;

/// A rank's share of the rows of a matrix, one for each word: runs in the order of the ranks, equal to within one.
///
/// Should be created with [`Share::new`].
///
/// ```text
/// rank r of p holds the rows ⌊rR/p⌋ .. ⌊(r + 1)R/p⌋ of R
/// ```
#[derive(Debug, Clone)]
pub struct Share {
    /// The ranks that share the rows.
    pub group: GroupHandle,
    /// The rows that this rank holds.
    pub rows: Range<usize>,
    /// `R`, the rows of all ranks.
    pub all: usize,
}

impl Share {
    /// This rank's share of `all` rows.
    ///
    /// # Errors
    /// [`ShardError::TooManyRanks`].
    pub fn new(all: usize, group: GroupHandle) -> Result<Self, ShardError> {
        let (rank, ranks) = (group.rank(), group.size());
        if ranks > all {
            return Err(ShardError::TooManyRanks { ranks, rows: all });
        }
        Ok(Self { rows: start_of(rank, all, ranks)..start_of(rank + 1, all, ranks), group, all })
    }

    /// The first row of a rank, of all rows; that of the rank after the last is their number.
    pub(super) fn start_of(&self, rank: usize) -> usize {
        start_of(rank, self.all, self.group.size())
    }

    /// For words, which of this rank's rows is each one's, and whether it is another rank's: then the row is any.
    pub(super) fn places<const D: usize>(&self, words: Tensor<D, Int>) -> (Tensor<D, Int>, Tensor<D, Bool>) {
        let last = self.rows.len() as i64 - 1;
        let places = in_wide_integers(words) - self.rows.start as i64;
        let is_elsewhere = places.clone().lower_elem(0).bool_or(places.clone().greater_elem(last));
        (places.clamp(0, last), is_elsewhere)
    }

    /// The rows of words in the whole matrix. Differentiable; the gradient reaches the rows of this rank.
    ///
    /// # Shapes
    /// - own: this rank's rows, `[rows, d]`
    /// - words: `[.., S]`, D dimensions
    /// - output: `[.., S, d]`, E = D + 1 dimensions, in f32, or f64 if the rows are
    ///
    /// # Errors
    /// [`HeadError::Target`](crate::HeadError::Target) of a word outside `0..R`, and whatever the group has to say.
    ///
    /// # Panics
    /// If E is not D + 1.
    pub fn lookup<const D: usize, const E: usize>(
        &self,
        own: Tensor<2>,
        words: Tensor<D, Int>,
    ) -> Result<Tensor<E>, ShardError> {
        let (dims, [_, d]) = (words.dims(), own.dims());
        let words = words.reshape([dims.iter().product::<usize>()]);
        validate_targets(&words, self.all)?;
        let (places, is_elsewhere) = self.places(words);
        let own = zeroed(own.select(0, places), is_elsewhere);
        let dtype = wide(own.dtype());
        let own = own.cast(dtype);
        let all = summed(&*self.group, own.clone().detach().into_data())?;
        let all = Tensor::<2>::from_data(all, (&own.device(), dtype));
        let mut shape = [d; E];
        shape[..D].copy_from_slice(&dims);
        Ok((all + (own.clone() - own.detach())).reshape(shape))
    }

    /// Adds a row for each word to `sum`, this rank's rows of a matrix, where the word's is one of them: the gradient of
    /// [`lookup`](Self::lookup).
    ///
    /// # Shapes
    /// - sum: `[rows, d]`
    /// - words: `[N]`, in `0..R`
    /// - added: `[N, d]`
    pub fn add(&self, sum: Tensor<2>, words: Tensor<1, Int>, added: Tensor<2>) -> Tensor<2> {
        let (places, is_elsewhere) = self.places(words);
        sum.select_assign(0, places, zeroed(added, is_elsewhere), IndexingUpdateOp::Add)
    }
}

/// The rows with zeros in place of some.
fn zeroed(rows: Tensor<2>, are_zero: Tensor<1, Bool>) -> Tensor<2> {
    let dims = rows.dims();
    rows.mask_fill(are_zero.unsqueeze_dim::<2>(1).expand(dims), 0.0)
}

fn start_of(rank: usize, rows: usize, ranks: usize) -> usize {
    rank * rows / ranks
}
