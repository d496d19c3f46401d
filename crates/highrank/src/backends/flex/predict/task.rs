//! What becomes of the rows.

use highrank_kernels::cpu::Real;

use crate::ops::{Draw, LogProbs};

/// A type of sums.
pub(super) trait Sums: Real {
    /// A row of log-probabilities for its reader.
    fn log_probs(row: &[Self]) -> LogProbs<'_>;
}

impl Sums for f32 {
    fn log_probs(row: &[Self]) -> LogProbs<'_> {
        LogProbs::F32(row)
    }
}

impl Sums for f64 {
    fn log_probs(row: &[Self]) -> LogProbs<'_> {
        LogProbs::F64(row)
    }
}

/// What becomes of the rows.
pub(super) enum Task<'a, T> {
    /// Log-probabilities are written, `[N, V]`.
    Write(&'a mut [T]),
    /// Logits are, `[N·K, V]`.
    Logits(&'a mut [T]),
    Read(&'a (dyn Fn(usize, LogProbs<'_>) + Sync)),
    Draw(Draw<'a>),
}
