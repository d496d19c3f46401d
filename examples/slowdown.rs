//! How much longer a Mixture of Softmaxes trains than a softmax, over components and batches, beside the paper's figures.
//!
//! ```text
//! cargo run --release --example slowdown                        the models of Penn Treebank
//! cargo run --release --example slowdown -- --text wikitext2    those of WikiText-2; or billion-word
//! ```

use std::process::ExitCode;

fn main() -> ExitCode {
    highrank_cli::programs::slowdown()
}
