//! A stream of token ids cut into columns, and steps that walk through the columns.

mod batches;
mod schedule;

pub(crate) use batches::rows_of;
pub use batches::{Batches, Window};
pub use schedule::{TrainStep, schedule};
