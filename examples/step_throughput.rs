//! Time of one training step of a preset, or of its LSTM layers alone.
//!
//! ```text
//! cargo run --release --example step_throughput -- --preset paper --head mos
//! cargo run --release --example step_throughput -- --preset paper --part lstm --json
//! ```

use std::process::ExitCode;

fn main() -> ExitCode {
    highrank_cli::programs::step_throughput()
}
