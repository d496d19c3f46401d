//! Options that several commands share.

mod file;
mod given;
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
pub use given::{Form, Given, Knob, Knobs, SET};
pub use head::{Head, HeadSizes};
pub use list::{DistinctList, List};
pub use overrides::{LstmKnobs, Overrides};
pub use record::RecordArgs;
pub use reduce::ReduceArgs;
pub use setting::{Setting, checked};
pub use text::TextArgs;
pub use time::minutes;
pub use tokens::TokenArgs;
pub use training::TrainingArgs;
