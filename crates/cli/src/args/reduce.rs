//! How the processes of one training add up their gradients.

use awd_lstm::ranks::{Ranks, ReducePrecision};
use clap::Args;

/// How several processes add up their gradients.
#[derive(Debug, Clone, Args)]
pub struct ReduceArgs {
    /// Type in which processes started by mpirun send their gradients to each other: f32, or bf16, which halves the bytes
    /// and rounds to 3 digits.
    #[arg(long, value_name = "TYPE", default_value_t)]
    pub reduce_precision: ReducePrecision,
}

impl ReduceArgs {
    /// The processes, which send gradients so.
    pub fn apply_to(&self, ranks: &Ranks) -> Ranks {
        ranks.clone().with_precision(self.reduce_precision)
    }
}
