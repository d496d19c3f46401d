//! Trains and evaluates AWD-LSTM language models with high-rank output layers.
//!
//! ```text
//! cargo run --release --example ptb_mos                            a generated language, minutes on a laptop
//! cargo run --release --example ptb_mos -- train --data DIR        real text
//! cargo run --release --example ptb_mos -- eval --run RUN          perplexities of a saved run
//! cargo run --release --example ptb_mos -- rank --run RUN          also kl, compare, plif: what saved runs have learnt
//! ```

use std::process::ExitCode;

use highrank_workspace::analysis::{compare, kl, plif, rank};
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
        Some(Command::Rank(args)) => rank::run(&args),
        Some(Command::Kl(args)) => kl::run(&args),
        Some(Command::Compare(args)) => compare::run(&args),
        Some(Command::Plif(args)) => plif::run(&args),
    })
}
