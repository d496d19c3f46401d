//! Processes that share a vocabulary, and groups of them that share the batch.

use super::handle::Ranks;
use super::precision::ReducePrecision;
use crate::error::{Error, Result};

/// The processes of a training as `groups` × `width`: those of a group share the rows of embedding and decoder, and the groups share
/// the columns of the batch.
///
/// Rank r is number `r mod width` of group `⌊r / width⌋`: a group are neighbours, on one machine if it has as many.
#[derive(Debug, Clone, Default)]
pub struct Grid {
    /// All processes.
    pub all: Ranks,
    /// Those that share the vocabulary with this one. They have the same columns of the batch.
    pub vocabulary: Ranks,
    /// Those that share the batch with this one. They have the same rows of the vocabulary.
    pub batch: Ranks,
}

impl Grid {
    /// Groups of one: each process has the whole vocabulary.
    pub fn of_one(all: &Ranks) -> Self {
        Self { all: all.clone(), vocabulary: all.apart(), batch: all.clone() }
    }

    /// Groups of `width` processes. All processes call it with the same width.
    ///
    /// # Errors
    /// What [`check`](Self::check) says; [`Error::Communication`].
    pub fn new(all: &Ranks, width: usize) -> Result<Self> {
        Self::check(all, width)?;
        if width == 1 {
            return Ok(Self::of_one(all));
        }
        let vocabulary = all.split(all.rank() / width)?;
        // Sums of a group are part of the model.
        let vocabulary = vocabulary.with_precision(ReducePrecision::F32);
        Ok(Self { all: all.clone(), vocabulary, batch: all.split(all.rank() % width)? })
    }

    /// Whether there can be groups of `width` processes.
    ///
    /// # Errors
    /// [`Error::Groups`] if their number is no multiple of it.
    pub fn check(all: &Ranks, width: usize) -> Result<()> {
        if width == 0 || !all.size().is_multiple_of(width) {
            return Err(Error::Groups { ranks: all.size(), width });
        }
        Ok(())
    }

    /// Whether this process's group is the one that rank 0 is of.
    pub fn is_first_group(&self) -> bool {
        self.batch.is_first()
    }
}
