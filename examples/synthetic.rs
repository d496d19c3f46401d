//! What the heads can represent: distributions drawn from a Dirichlet law, each context with a free vector of its own.
//!
//! ```text
//! cargo run --release --example synthetic                    the small grid, minutes on a laptop
//! cargo run --release --example synthetic -- --out pictures  the same, with its heat maps
//! cargo run --release --example synthetic -- --full          100,000 contexts; wants a GPU
//! ```

use std::process::ExitCode;

fn main() -> ExitCode {
    highrank_cli::programs::synthetic()
}
