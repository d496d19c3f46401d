//! Time of one training step of a preset, or of its LSTM layers alone.
//!
//! ```text
//! cargo run --release --example step_throughput -- --preset paper --head mos
//! cargo run --release --example step_throughput -- --preset paper --part lstm --json
//! ```

use std::process::ExitCode;

use highrank_workspace::exit;
use highrank_workspace::step_throughput::{self, Args};

fn main() -> ExitCode {
    match exit::parse::<Args>() {
        Ok(args) => exit::exit(step_throughput::run(&args)),
        Err(status) => status,
    }
}
