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
    /// Let processes started by mpirun sum the gradients of the output layer while they compute those of the layers below. The result is
    /// the same. For processes with a core to spare: without one it is slower.
    #[arg(hide = true, long)]
    pub reduce_meanwhile: bool,
    /// Let so many processes started by mpirun share the vocabulary: each holds its part of the rows of embedding and decoder, and
    /// groups of so many share the batch. It must divide the number of processes.
    #[arg(hide = true, long, value_name = "P", default_value_t = 1)]
    pub vocab_parallel: usize,
}

impl ReduceArgs {
    /// The processes, which send gradients so.
    pub fn apply_to(&self, ranks: &Ranks) -> Result<Ranks, Error> {
        let ranks = ranks.clone().with_precision(self.reduce_precision);
        let ranks = ranks.with_sums_meanwhile(self.reduce_meanwhile);
        Grid::check(&ranks, self.vocab_parallel).map(|()| ranks)
    }

    /// The same, of a model whose gradients are summed after the backward pass.
    pub fn apply_after_passes(&self, ranks: &Ranks) -> Result<Ranks, Error> {
        if self.reduce_meanwhile {
            let reason = "this model sums gradients after the backward pass: leave --reduce-meanwhile out";
            return Err(Error::Settings { reason: reason.into() });
        }
        self.apply_to(ranks)
    }
}
