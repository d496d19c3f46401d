//! The program `highrank`.

use std::process::ExitCode;

fn main() -> ExitCode {
    highrank_cli::programs::highrank()
}
