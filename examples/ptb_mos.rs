//! Trains and evaluates AWD-LSTM language models with high-rank output layers.
//!
//! ```text
//! cargo run --release --example ptb_mos                            a generated language, minutes on a laptop
//! cargo run --release --example ptb_mos -- train --data DIR        real text
//! cargo run --release --example ptb_mos -- train --resume RUN      continues a run that was stopped, to the same bits
//! cargo run --release --example ptb_mos -- eval --run RUN          perplexities of a saved run
//! cargo run --release --example ptb_mos -- rank --run RUN          also kl, compare, plif: what saved runs have learnt
//! cargo run --release --example ptb_mos -- finetune --run RUN      continues training its best model with averaged weights
//! cargo run --release --example ptb_mos -- dynamic-eval --run RUN  perplexities while learning from what was scored
//! cargo run --release --example ptb_mos -- ablation --data DIR     heads of equal size side by side
//! cargo run --release --example ptb_mos -- sweep --data DIR        heads by values of any settings: table and pictures
//! cargo run --release --example ptb_mos -- runs                    the runs below runs/ with their results
//! cargo run --release --example ptb_mos -- generate --run RUN      text from it
//! cargo run --release --example ptb_mos -- import | export         its weights from and for PyTorch
//! ```
//!
//! The program `highrank` of the crate `highrank-cli` has the same commands.

use std::process::ExitCode;

fn main() -> ExitCode {
    highrank_cli::programs::ptb_mos()
}
