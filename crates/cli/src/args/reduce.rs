//! How the processes of one training add up their gradients.

use clap::Args;
use runs::ranks::{Ranks, ReducePrecision};

/// How several processes add up their gradients.
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
}

impl ReduceArgs {
    /// The processes, which send gradients so.
    pub fn apply_to(&self, ranks: &Ranks) -> Ranks {
        ranks.clone().with_precision(self.reduce_precision).with_sums_meanwhile(self.reduce_meanwhile)
    }
}
