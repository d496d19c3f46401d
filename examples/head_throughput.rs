//! Time and memory of one training step of an output head: forward and backward of the mean loss.
//!
//! ```text
//! cargo run --release --example head_throughput -- --head mos --tokens 840 --d-hidden 620 --d-embedding 280 \
//!     --vocab 10000 --components 15 --json
//! ```

use std::process::ExitCode;

use highrank_workspace::exit;
use highrank_workspace::throughput::{self, Args};

fn main() -> ExitCode {
    match exit::parse::<Args>() {
        Ok(args) => exit::exit(throughput::run(&args)),
        Err(status) => status,
    }
}
