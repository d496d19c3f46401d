//! Options of several commands for LSTM language models.

mod file;
mod overrides;
mod training;

pub use overrides::{LstmKnobs, Overrides, missing_part, note_unused};
pub use training::TrainingArgs;
