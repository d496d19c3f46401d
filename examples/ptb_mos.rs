//! Trains and evaluates AWD-LSTM language models with high-rank output layers.
//!
//! ```text
//! cargo run --release --example ptb_mos                            a generated language, minutes on a laptop
//! cargo run --release --example ptb_mos -- train --data DIR        real text
//! cargo run --release --example ptb_mos -- eval --run RUN          perplexities of a saved run
//! ```

use std::process::ExitCode;

use highrank_workspace::args::{Cli, Command};
use highrank_workspace::{eval, exit, study, train};

fn main() -> ExitCode {
    let cli: Cli = match exit::parse() {
        Ok(cli) => cli,
        Err(status) => return status,
    };
    exit::exit(match cli.command {
        None => study::run(&cli.study),
        Some(Command::Train(args)) => train::run(&args),
        Some(Command::Eval(args)) => eval::run(&args),
    })
}
