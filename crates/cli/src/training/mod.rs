//! Training a run and reporting it, whatever command it belongs to.

mod curves;
mod finetuning;
mod job;
mod output;
mod record;

pub use finetuning::{absolute, finetuning};
pub use job::{Folder, Job, fresh_folder};
pub use output::Output;
pub use record::{Record, State};
