//! Options that several commands share.

mod head;
mod list;
mod overrides;
mod text;
mod training;

pub use head::{Head, HeadSizes};
pub use list::{DistinctList, List};
pub use text::TextArgs;
pub use training::TrainingArgs;
