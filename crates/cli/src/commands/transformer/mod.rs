//! `transformer`: a small GPT with any output layer, trained as a run that can be continued.

mod args;
mod command;
mod compare;
mod head;
mod sizes;
mod text;
mod view;

pub use args::TransformerArgs;
pub use command::run;
