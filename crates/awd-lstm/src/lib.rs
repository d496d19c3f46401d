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
//! * [`config`]: [`ModelConfig`], [`TrainConfig`] and the presets; [`sizes`]: models of equal numbers of parameters;
//! * [`model`]: [`LanguageModel`], its state, its losses and the text that it [draws](LanguageModel::draws);
//! * [`lstm`]: the LSTM layer, one operation over the whole sequence with a hand-written backward pass, and DropConnect;
//! * [`dropout`], [`regularisation`]: the masks of a step, AR and TAR;
//! * [`data`]: batches of a corpus; [`language`]: a generated language with a known distribution;
//! * [`train`]: the training program as a library;
//! * [`weights`]: models from and for PyTorch.
//!
//! # Features
//!
//! `flex` (default), `ndarray`, `wgpu` and `cuda` enable the Burn backend of that name.

pub mod config;
pub mod data;
pub mod dropout;
mod generate;
pub mod language;
pub mod lstm;
pub mod model;
pub mod regularisation;
pub mod sizes;
#[cfg(all(test, feature = "flex"))]
mod testing;
pub mod train;
pub mod weights;

pub use config::{Dropouts, HeadKind, ModelConfig, Preset, TrainConfig};
pub use model::{LanguageModel, LmState, StepLoss};
