//! `transformer`: a small GPT with any output layer, trained as a run that can be continued.

mod args;
mod command;
mod head;
mod text;

pub use args::TransformerArgs;
pub use command::{eval, run};
