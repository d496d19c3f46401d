//! Options of several commands for LSTM language models.

mod file;
mod overrides;
mod training;

pub use overrides::{LstmKnobs, Overrides};
pub use training::TrainingArgs;
