//! What this project measures: time and memory of heads and of training steps, and tables of recorded runs beside their peers.
//!
//! Criterion benches stand beside this folder, the PyTorch peers in `peers/`.

/// Prints a line on standard output. The standard library's panics when a reader closes the pipe.
macro_rules! println {
    ($($text:tt)*) => { highrank_cli::print::print_out(&(format!($($text)*) + "\n")) };
}

pub mod head_throughput;
pub mod report;
pub mod step_throughput;
