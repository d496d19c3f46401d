//! Values that several command lines have.

mod head;
mod list;
mod time;

pub use head::{Head, HeadSizes};
pub use list::{DistinctList, List};
pub use time::minutes;
