//! How reductions over a row are split, so that they can be vectorised and give the same bits on every machine.

/// Partial results of a reduction over a row.
pub const LANES: usize = 32;

/// Values of a block of a row, which stays in the first-level cache with everything computed from it.
pub const BLOCK: usize = 16 * LANES;
