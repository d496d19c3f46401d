//! What this project measures: time and memory of heads and of training steps, and tables of recorded runs beside their peers.
//!
//! Criterion benches stand beside this folder, the PyTorch peers in `peers/`.

pub mod head_throughput;
pub mod report;
pub mod step_throughput;
pub mod threads;
pub mod timing;
pub mod transformer_step;
pub mod workload;

/// The most parameters of a model and numbers of a matrix that are measured: more than any machine holds.
const MOST_NUMBERS: usize = 1 << 40;
