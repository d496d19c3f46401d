//! Options that several commands share.

mod file;
mod given;
mod overrides;
mod record;
mod reduce;
mod setting;
mod text;
mod tokens;
mod training;

pub use given::{Form, Given, Knob, Knobs, SET};
pub use overrides::{LstmKnobs, Overrides};
pub use record::RecordArgs;
pub use reduce::ReduceArgs;
pub use setting::{Setting, checked};
pub use text::TextArgs;
pub use tokens::TokenArgs;
pub use training::TrainingArgs;
