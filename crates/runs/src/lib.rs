//! What training programs need once, whatever model they train.
//!
//! * [`data`]: corpora and vocabularies;
//! * [`optim`]: clipping to the global norm, SGD with its non-monotonically triggered average (NT-ASGD), the state of Adam in a file;
//! * [`Folder`]: a run's folder, its lock and its checkpoint; [`Extension`]: runs that go on for longer;
//! * [`ranks`]: one training in several processes;
//! * [`files`], [`exact`], [`text`]: files that are replaced as a whole, reals in them that lose no bit, and lists separated by
//!   commas.
//!
//! # Features
//!
//! `flex` (default), `ndarray`, `wgpu` and `cuda` enable the Burn backend of that name. `mpi` brings [`ranks`] that `mpirun` starts;
//! it needs an MPI library and libclang to be built.

mod changes;
pub mod data;
mod difference;
pub mod error;
pub mod exact;
mod extend;
pub mod files;
mod folder;
pub mod optim;
pub mod ranks;
mod seed;
pub mod text;
mod weights;

pub use changes::{Extended, extended};
pub use difference::{difference, unchanged};
pub use error::Error;
pub use extend::{Extendable, Extension};
pub use folder::{AVERAGE, EPOCH, Folder, METRICS, MODEL, RunSettings, STATE};
pub use seed::mix_seed;
pub use weights::{load_weights, save_weights};
