//! Time and memory of one training step of an output head: forward and backward of the mean loss.
//!
//! ```text
//! cargo run --release --example head_throughput -- --head mos --tokens 840 --d-hidden 620 --d-embedding 280 \
//!     --vocab 10000 --components 15 --json
//! ```

use std::process::ExitCode;

fn main() -> ExitCode {
    program::start("head_throughput", |args, _| highrank_benches::head_throughput::run(&args))
}
