//! Training a run and reporting it, whatever command it belongs to.

mod curves;
mod extension;
mod finetuning;
mod frequency;
mod job;
mod output;
mod record;

pub use crate::files::absolute;
pub use extension::{device_of, extend};
pub use finetuning::finetuning;
pub use job::{Folder, Job, fresh_folder};
pub use output::Output;
pub use record::{Record, State, for_each_line};
