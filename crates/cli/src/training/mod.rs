//! Training a run and reporting it, whatever command it belongs to.

mod curves;
mod held_out;
mod job;
mod language_model;
mod output;

pub use held_out::{TEST, VALID, load_held_out, note_other_texts, require_test, require_training};
pub use job::{Folder, Job, Kind, check_preset, compared, device_of, extend, lock};
pub use language_model::{check_run, finetuning, words};
pub use output::Output;
pub use program::files::absolute;

/// What the folder of a language model's run says of it.
pub type Record = runs::Record<awd_lstm::train::AwdLstm>;
