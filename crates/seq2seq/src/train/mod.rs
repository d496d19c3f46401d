//! Training as a library: the model as a task of [`runs::Trainer`], and held-out perplexity.

mod evaluate;
mod run;
mod task;

pub use evaluate::mean_nll;
pub use run::{DialogState, Dialogues, RunConfig, RunFolder, check_corpus, fingerprint};
pub use task::{DialogTask, Trainer};
