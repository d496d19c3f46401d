//! What the papers prove about softmax, mixtures and logit maps, measured: numbers, and a picture each with `--out`.
//!
//! ```text
//! cargo run --release --example theorems                      seconds on a laptop
//! cargo run --release --example theorems -- --out pictures    the same, with its pictures
//! ```

use std::process::ExitCode;

fn main() -> ExitCode {
    highrank_cli::programs::theorems()
}
