//! The program `step_throughput`: time of a training step of a whole language model.

use std::process::ExitCode;

fn main() -> ExitCode {
    program::start("step_throughput", |args, _| highrank_benches::step_throughput::run(&args))
}
