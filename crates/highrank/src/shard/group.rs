//! What ranks that share a vocabulary must be able to do, and what can go wrong.

use std::fmt::Debug;
use std::sync::Arc;

use thiserror::Error;

use crate::error::HeadError;

/// The ranks that share a vocabulary, as one of them sees them.
///
/// Every operation is a collective: all ranks call it with as many numbers, in the same order. To gather is all that a group must
/// be able to; one with a faster sum overrides that too. Sums are made in the order of the ranks, so all ranks get the same bits.
pub trait ShardGroup: Debug + Send + Sync {
    /// The number of this rank, from 0.
    fn rank(&self) -> usize;

    /// How many ranks there are.
    fn size(&self) -> usize;

    /// The numbers of all ranks in the order of the ranks, [`size`](Self::size) times as many as `own`.
    ///
    /// # Errors
    /// If a rank is gone, or has given another count of numbers.
    fn gather_f32(&self, own: &[f32]) -> Result<Vec<f32>, ShardError>;

    /// As [`gather_f32`](Self::gather_f32).
    ///
    /// # Errors
    /// As [`gather_f32`](Self::gather_f32).
    fn gather_f64(&self, own: &[f64]) -> Result<Vec<f64>, ShardError>;

    /// Turns every number into the sum of those in its place on all ranks.
    ///
    /// # Errors
    /// As [`gather_f32`](Self::gather_f32).
    fn sum_f32(&self, values: &mut [f32]) -> Result<(), ShardError> {
        let all = self.gather_f32(values)?;
        add_in_order(&all, values);
        Ok(())
    }

    /// As [`sum_f32`](Self::sum_f32).
    ///
    /// # Errors
    /// As [`gather_f32`](Self::gather_f32).
    fn sum_f64(&self, values: &mut [f64]) -> Result<(), ShardError> {
        let all = self.gather_f64(values)?;
        add_in_order(&all, values);
        Ok(())
    }
}

/// The sum over ranks, that of the first rank and the second first.
fn add_in_order<T: Copy + std::ops::Add<Output = T>>(all: &[T], sums: &mut [T]) {
    if sums.is_empty() {
        return;
    }
    let mut ranks = all.chunks_exact(sums.len());
    sums.copy_from_slice(ranks.next().expect("a group has a rank"));
    ranks.for_each(|of_rank| sums.iter_mut().zip(of_rank).for_each(|(sum, x)| *sum = *sum + *x));
}

/// A group that its users share.
pub type GroupHandle = Arc<dyn ShardGroup>;

/// A vocabulary that cannot be shared out, or a rank that others do not hear of any more.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum ShardError {
    /// What is wrong with the head or its inputs.
    #[error(transparent)]
    Head(#[from] HeadError),
    /// Something that a head with a shared vocabulary does not do.
    #[error("{what} is not made by a head whose vocabulary is shared out: {instead}")]
    Unsupported {
        /// What was asked for.
        what: &'static str,
        /// What to do.
        instead: &'static str,
    },
    /// More ranks than rows of the decoder.
    #[error("{ranks} ranks share {rows} rows of a decoder, expected at most as many ranks as rows")]
    TooManyRanks {
        /// Number of ranks.
        ranks: usize,
        /// Rows of the decoder, the padding's too.
        rows: usize,
    },
    /// A rank has ended or failed while others wait for it.
    #[error("rank {rank} is gone, and this one waits for it: look for the first error")]
    Gone {
        /// Its number.
        rank: usize,
    },
    /// Ranks that do not take the same steps.
    #[error("rank {rank} sends {got} bytes where this one sends {expected}: all ranks need the same inputs")]
    Mismatch {
        /// The other's number.
        rank: usize,
        /// What it sends.
        got: usize,
        /// What this one sends.
        expected: usize,
    },
    /// What a group of another kind has to say.
    #[error("{0}")]
    Group(String),
}
