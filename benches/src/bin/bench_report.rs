//! The program `bench_report`: medians and ratios of recorded runs.

use std::process::ExitCode;

fn main() -> ExitCode {
    program::start("bench_report", |args, _| highrank_benches::report::run(&args))
}
