//! Training a run and reporting it, whatever command it belongs to.

mod curves;
mod extension;
mod finetuning;
mod frequency;
mod job;
mod output;

pub use crate::files::absolute;
pub use extension::{device_of, extend};
pub use finetuning::finetuning;
pub use job::{Folder, Job, fresh_folder};
pub use output::Output;

/// What the folder of a language model's run says of it.
pub type Record = runs::Record<awd_lstm::train::AwdLstm>;
