//! Training a run and reporting it, whatever command it belongs to.

mod curves;
mod job;
mod output;

pub use job::{Folder, Job, fresh_folder};
pub use output::Output;
