//! What heads learn where the truth is known: distributions drawn from a Dirichlet law, each context with a free vector of its own, and
//! a language in which each sequence repeats one symbol.
//!
//! ```text
//! cargo run --release --example synthetic                    the small grid, minutes on a laptop
//! cargo run --release --example synthetic -- --out DIR       the same with heat maps; it goes on after an interrupt
//! cargo run --release --example synthetic -- --full --out DIR --max-time 2h    100,000 contexts, as far as two hours go
//! cargo run --release --example synthetic -- repeated --out DIR                vocabularies of 1,000 to 100,000 symbols, d 32
//! ```

use std::process::ExitCode;

fn main() -> ExitCode {
    highrank_cli::programs::synthetic()
}
