//! How the processes of one training work together.

use clap::Args;
use runs::Error;
use runs::ranks::{Grid, Ranks, ReducePrecision};

/// How several processes add up their gradients, and what they share.
#[derive(Debug, Clone, Args)]
pub struct ReduceArgs {
    /// Type in which processes started by mpirun send their gradients to each other: f32, or bf16, which halves the bytes
    /// and rounds to 3 digits.
    #[arg(hide = true, long, value_name = "TYPE", default_value_t)]
    pub reduce_precision: ReducePrecision,
    /// Let so many processes started by mpirun share the vocabulary: each holds its part of the rows of embedding and decoder, and
    /// groups of so many share the batch. It must divide the number of processes.
    #[arg(hide = true, long, value_name = "P", default_value_t = 1)]
    pub vocab_parallel: usize,
}

impl ReduceArgs {
    /// The processes, which send gradients so.
    pub fn apply_to(&self, ranks: &Ranks) -> Result<Ranks, Error> {
        let ranks = ranks.clone().with_precision(self.reduce_precision);
        Grid::check(&ranks, self.vocab_parallel).map(|()| ranks)
    }
}
