//! What several command lines have: values, options of a training, and settings of a run by options and by their places.

mod given;
mod head;
mod list;
mod number;
mod record;
mod reduce;
mod setting;
mod text;
mod time;
mod tokens;

pub use given::{Form, Given, Knob, Knobs, SET};
pub use head::{Head, HeadSizes};
pub use list::{DistinctList, List};
pub use number::finite;
pub use record::RecordArgs;
pub use reduce::ReduceArgs;
pub use setting::{Setting, checked, with};
pub use text::TextArgs;
pub use time::minutes;
pub use tokens::TokenArgs;
