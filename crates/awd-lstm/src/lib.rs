//! AWD-LSTM language models with high-rank output layers, for [Burn](https://burn.dev).
//!
//! The model is that of Merity, Keskar and Socher (AWD-LSTM, arXiv 1708.02182) with the output
//! layers of the [`highrank`] crate, above all the Mixture of Softmaxes of Yang et al. (arXiv 1711.03953):
//!
//! ```text
//! tokens [T, B] → embedding, word dropout → locked dropout
//!               → LSTM with DropConnect → locked dropout → … → LSTM with DropConnect → locked dropout
//!               → output layer, its matrix tied to the embedding → log-probabilities [T, B, V] in nats
//! ```
//!
//! T is the number of time steps, B the batch (the number of parallel text streams), V the size of the vocabulary.
//!
//! Models are Burn modules without a type parameter, on the device of their weights. A model on an autodiff device is under
//! training, and dropout acts; `model.valid()` is its twin for evaluation.
//!
//! * [`config`]: [`ModelConfig`], [`TrainConfig`] and the presets;
//! * [`model`]: [`LanguageModel`], its state and its losses;
//! * [`lstm`]: the LSTM layer, one operation over the whole sequence with a hand-written backward pass, and DropConnect;
//! * [`dropout`], [`regularisation`]: locked dropout, word dropout, AR and TAR;
//! * [`optim`]: clipping to the global norm, SGD with its non-monotonically triggered average (NT-ASGD);
//! * [`generate`]: text from a model;
//! * [`data`]: corpora and batching; [`language`]: a generated language with a known distribution;
//! * [`train`]: the training program as a library; [`ranks`]: training in several processes;
//! * [`weights`]: models from and for PyTorch;
//! * [`files`], [`exact`], [`text`]: files that are replaced as a whole, reals in them that lose no bit, and lists separated by
//!   commas.
//!
//! # Features
//!
//! `flex` (default), `ndarray`, `wgpu` and `cuda` enable the Burn backend of that name. `mpi` brings [`ranks`] that `mpirun` starts;
//! it needs an MPI library and libclang to be built.

pub mod config;
pub mod data;
pub mod dropout;
pub mod error;
pub mod exact;
pub mod files;
pub mod generate;
pub mod language;
pub mod lstm;
pub mod model;
pub mod optim;
pub mod ranks;
pub mod regularisation;
#[cfg(all(test, feature = "flex"))]
mod testing;
pub mod text;
pub mod train;
pub mod weights;

pub use config::{Dropouts, HeadKind, ModelConfig, Preset, TrainConfig};
pub use error::Error;
pub use model::{LanguageModel, LmState, StepLoss};
