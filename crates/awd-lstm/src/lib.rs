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
//! T is the number of time steps, B the batch (the number of parallel text streams), V the vocabulary.
//!
//! * [`config`]: [`ModelConfig`], [`TrainConfig`] and the presets;
//! * [`model`]: [`LanguageModel`], its state and its losses;
//! * [`lstm`]: the LSTM layer, one operation over the whole sequence with a hand-written backward pass;
//! * [`dropout`], [`regularisation`]: locked, word and weight dropout, AR and TAR;
//! * [`optim`]: clipping to the global norm, SGD with its non-monotonically triggered average (NT-ASGD);
//! * [`generate`]: text from a model;
//! * [`data`]: corpora and batching; [`language`]: a generated language with a known distribution;
//! * [`train`]: the training program as a library;
//! * [`weights`]: models from and for PyTorch.
//!
//! # Features
//!
//! `flex` (default), `ndarray`, `wgpu` and `cuda` switch on the Burn backend of that name.

mod backends;
pub mod config;
pub mod data;
pub mod dropout;
pub mod error;
mod exact;
pub mod generate;
pub mod language;
pub mod lstm;
pub mod model;
pub mod optim;
pub mod regularisation;
pub mod train;
pub mod weights;

pub use config::{Dropouts, HeadKind, ModelConfig, Preset, TrainConfig};
pub use error::Error;
pub use model::{LanguageModel, LmBackend, LmState, StepLoss};
