//! What training programs need once, whatever model they train.
//!
//! * [`Trainer`] trains a [`Task`]: epochs of steps with validations, the best model kept, checkpoints that go on to the same bits, an
//!   end by a rule or a limit of time; a [`TrainObserver`] is told of it. Nothing here writes to a terminal;
//! * [`Folder`]: a run's folder, its lock, its files with their hashes; [`RunConfig`]: what defines a run; [`Extension`]: runs that go
//!   on for longer;
//! * [`data`]: corpora and vocabularies;
//! * [`optim`]: clipping to the global norm, SGD with its non-monotonically triggered average (NT-ASGD), the state of Adam in a file;
//! * [`ranks`]: one training in several processes;
//! * [`files`], [`exact`], [`text`]: files that are replaced as a whole, reals in them that lose no bit, lists separated by
//!   commas; [`by_name!`]: choices by their names.
//!
//! # Features
//!
//! `flex` (default), `ndarray`, `wgpu` and `cuda` enable the Burn backend of that name. `mpi` brings [`ranks`] that `mpirun` starts;
//! it needs an MPI library and libclang to be built.

mod by_name;
pub mod data;
mod difference;
pub mod error;
pub mod exact;
pub mod files;
mod folder;
mod hashes;
mod metrics;
mod observer;
pub mod optim;
mod peers;
pub mod ranks;
mod record;
mod seed;
mod settings;
mod shards;
mod state;
mod task;
#[doc(hidden)]
pub mod testing;
pub mod text;
mod trainer;
mod weights;
mod word_rows;

pub use difference::unchanged;
pub use error::Error;
pub use folder::{AVERAGE, Folder, METRICS, MODEL, RunState, STATE, StateOf, kind_of_run, note_hashes};
pub use hashes::HASHES;
pub use metrics::{
    EndReason, EpochMetrics, FinalMetrics, Score, StepMetrics, ValidationMetrics, WaitMetrics,
};
pub use observer::{Notes, Silent, TrainObserver};
pub use peers::{Peers, sum_scores};
pub use record::Record;
pub use seed::mix_seed;
pub use settings::{
    BURN, Common, Extended, Extension, FORMAT, KeptTokens, Plain, Procedure, RunConfig, Settings, Versions,
};
pub use shards::Shards;
pub use state::{BeforeEnd, Best, Position, Sum, TrainerState};
pub use task::{Setup, Split, Stepped, Task, Work};
pub use trainer::{Fitted, LOG_INTERVAL, Trainer};
pub use weights::{distance, load_weights, save_weights};
pub use word_rows::{WordRows, draw_all, drawn_rows};
