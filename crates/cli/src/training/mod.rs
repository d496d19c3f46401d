//! Training a run and reporting it, whatever command it belongs to.

mod curves;
mod extension;
mod finetuning;
mod frequency;
mod held_out;
mod job;
mod language_model;
mod output;
mod vocabulary;

pub use extension::{device_of, extend};
pub use finetuning::finetuning;
pub use held_out::{TEST, VALID, load_held_out, other_texts, require_test};
pub use job::{Folder, Job, Kind, compared, lock};
pub use output::Output;
pub use program::files::absolute;
pub use vocabulary::words;

/// What the folder of a language model's run says of it.
pub type Record = runs::Record<awd_lstm::train::AwdLstm>;
