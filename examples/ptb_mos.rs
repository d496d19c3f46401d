//! A softmax and a Mixture of Softmaxes of equal size, trained on a generated language and set against its truth; with arguments, the
//! program `highrank` under another name.
//!
//! ```text
//! cargo run --release --example ptb_mos                                  a generated language, a minute
//! cargo run --release --example ptb_mos -- train DATA --head mos         real text: train.txt, valid.txt and test.txt in a folder
//! cargo run --release --example ptb_mos -- train --resume RUN            continues a run that was stopped, to the same bits
//! cargo run --release --example ptb_mos -- train --from RUN              continues training its best model with averaged weights
//! cargo run --release --example ptb_mos -- eval RUN                      perplexities of a saved run; --dynamic: while it learns
//! cargo run --release --example ptb_mos -- generate RUN                  text from it
//! cargo run --release --example ptb_mos -- analyse rank RUN              also kl, plif, gradient, compare: what runs have learnt
//! cargo run --release --example ptb_mos -- sweep --data DATA             heads by values of any settings: table and pictures
//! cargo run --release --example ptb_mos -- runs                          the runs below runs/ with their results
//! ```

use std::process::ExitCode;

fn main() -> ExitCode {
    highrank_cli::programs::ptb_mos()
}
