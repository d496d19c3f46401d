//! Trains and evaluates AWD-LSTM language models with high-rank output layers.
//!
//! ```text
//! cargo run --release --example ptb_mos                            a generated language, minutes on a laptop
//! cargo run --release --example ptb_mos -- train --data DIR        real text
//! cargo run --release --example ptb_mos -- train --resume RUN      goes on with a run that was stopped, to the same bits
//! cargo run --release --example ptb_mos -- eval --run RUN          perplexities of a saved run
//! cargo run --release --example ptb_mos -- rank --run RUN          also kl, compare, plif: what saved runs have learnt
//! cargo run --release --example ptb_mos -- finetune --run RUN      trains its best model on, averaging from the first step
//! cargo run --release --example ptb_mos -- dynamic-eval --run RUN  perplexities while learning from what was scored
//! cargo run --release --example ptb_mos -- ablation --data DIR     heads of equal size side by side
//! cargo run --release --example ptb_mos -- generate --run RUN      text from it
//! cargo run --release --example ptb_mos -- import | export         its weights from and for PyTorch
//! ```

use std::process::ExitCode;

use highrank_workspace::analysis::{compare, kl, plif, rank};
use highrank_workspace::args::{Cli, Command};
use highrank_workspace::{
    ablation, dynamic_eval, eval, exit, export, finetune, generate, import, study, train,
};

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
        Some(Command::Finetune(args)) => finetune::run(&args),
        Some(Command::DynamicEval(args)) => dynamic_eval::run(&args),
        Some(Command::Ablation(args)) => ablation::run(&args),
        Some(Command::Generate(args)) => generate::run(&args),
        Some(Command::Import(args)) => import::run(&args),
        Some(Command::Export(args)) => export::run(&args),
    })
}
