//! Trains a small GPT, whose output layer is tied to its embedding, as a run that can be continued.
//!
//! ```text
//! cargo run --release --example transformer                                     a generated language, about a minute
//! cargo run --release --example transformer -- --data DIR --head mos --steps N  real text, any head
//! cargo run --release --example transformer -- --resume RUN                     continues after Ctrl-C or a crash
//! ```
//!
//! `highrank eval RUN` prints the perplexities of a saved run.

use std::process::ExitCode;

fn main() -> ExitCode {
    highrank_cli::programs::transformer()
}
