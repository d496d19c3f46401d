//! `transformer`: a small GPT with any output layer, trained by Burn's `Learner`.

mod args;
mod command;
mod compare;
mod head;
mod run_folder;
mod sizes;
mod text;
mod view;

pub use args::TransformerArgs;
pub use command::run;
