//! Processes that share a vocabulary.

use highrank::shard::{ShardError, ShardGroup};

use super::handle::Ranks;
use super::precision::ReducePrecision;
use crate::error::{Error, Result};

impl Ranks {
    /// What all ranks made together. An error ends the job, for a backward pass has no way to return it.
    fn made<T>(&self, made: Result<T>) -> Result<T, ShardError> {
        match made {
            Ok(made) => Ok(made),
            Err(Error::Communication { reason, .. }) => self.communicator.give_up(&reason),
            Err(error) => self.communicator.give_up(&error.to_string()),
        }
    }
}

/// Sums are made in f32, whatever the precision of gradients.
impl ShardGroup for Ranks {
    fn rank(&self) -> usize {
        self.communicator.rank()
    }

    fn size(&self) -> usize {
        self.communicator.size()
    }

    fn gather_f32(&self, own: &[f32]) -> Result<Vec<f32>, ShardError> {
        self.made(self.gather_equal(own))
    }

    fn gather_f64(&self, own: &[f64]) -> Result<Vec<f64>, ShardError> {
        self.made(self.gather_equal(own))
    }

    fn sum_f32(&self, values: &mut [f32]) -> Result<(), ShardError> {
        self.made(self.clone().with_precision(ReducePrecision::F32).sum(values))
    }
}
