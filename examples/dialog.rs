//! Responses in a conversation, by an encoder-decoder that ends in a softmax, a mixture of contexts or a mixture of softmaxes.
//!
//! ```text
//! cargo run --release --example dialog                                       a generated language, a few minutes
//! cargo run --release --example dialog -- train --data DIR --head mos        dialogues, any head
//! cargo run --release --example dialog -- eval RUN                           perplexity and BLEU of a saved run
//! cargo run --release --example dialog -- respond RUN                        answers to the lines that are typed
//! ```

use std::process::ExitCode;

fn main() -> ExitCode {
    highrank_cli::programs::dialog()
}
