//! The program `transformer_step`: time and memory of a training step of a whole transformer.

use std::process::ExitCode;

fn main() -> ExitCode {
    program::start("transformer_step", |args, _| highrank_benches::transformer_step::run(&args))
}
