//! Options that several commands share.

mod list;
mod overrides;
mod text;
mod training;

pub use list::{DistinctList, List};
pub use text::TextArgs;
pub use training::TrainingArgs;
