//! Medians and ratios of the runs that `scripts/bench_cpu.sh` recorded, as a Markdown table and a plot.
//!
//! ```text
//! cargo run --release --example bench_report -- benches/results/NAME.jsonl --plot benches/results/NAME.svg
//! ```

use std::process::ExitCode;

use highrank_workspace::bench_report::{self, Args};
use highrank_workspace::exit;

fn main() -> ExitCode {
    match exit::parse::<Args>() {
        Ok(args) => exit::exit(bench_report::run(&args)),
        Err(status) => status,
    }
}
