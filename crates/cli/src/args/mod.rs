//! Options that several commands share.

mod file;
mod head;
mod list;
mod overrides;
mod record;
mod reduce;
mod setting;
mod text;
mod time;
mod tokens;
mod training;

pub use file::SettingsFile;
pub use head::{Head, HeadSizes};
pub use list::{DistinctList, List};
pub use overrides::Overrides;
pub use record::RecordArgs;
pub use reduce::ReduceArgs;
pub use setting::{CHECKED, Setting, apply, checked};
pub use text::TextArgs;
pub use time::TimeLimit;
pub use tokens::TokenArgs;
pub use training::TrainingArgs;
