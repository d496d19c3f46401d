//! The program `head_throughput`: time and memory of one training step or prediction of an output head.

use std::process::ExitCode;

fn main() -> ExitCode {
    program::start("head_throughput", |args, _| highrank_benches::head_throughput::run(&args))
}
