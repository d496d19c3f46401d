//! `dialog`: responses to the last utterances of a conversation, by an encoder-decoder that ends in any output layer.
//!
//! Without a command, a study on a generated language of dialogues whose right answers are known.

mod args;
mod beam;
mod command;
mod eval;
mod held_out;
mod progress;
mod respond;
mod retrieve;
mod saved;
mod scores;
mod settings;
mod study;
mod table;
mod train;
mod weights;

pub use args::DialogArgs;
pub use command::run;

/// What the folder of a run of dialogues says of it.
pub type DialogRecord = runs::Record<seq2seq::train::Dialogues>;
