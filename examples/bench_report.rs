//! Medians and ratios of the runs that `scripts/bench_cpu.sh` recorded, as a Markdown table and a plot.
//!
//! ```text
//! cargo run --release --example bench_report -- benches/results/NAME.jsonl --plot benches/results/NAME.svg
//! ```

use std::process::ExitCode;

fn main() -> ExitCode {
    highrank_cli::programs::bench_report()
}
