//! A small GPT on Burn's own transformer, with any of [`highrank`]'s heads as its output layer.
//!
//! ```text
//! tokens [B, T] → embedding [V, d] (→ d_model) + positions → pre-norm transformer, causal → norm
//!               (→ H) → output layer, its matrix tied to the embedding → log-probabilities [B, T, V] in nats
//! ```
//!
//! The steps in brackets are linear layers that exist where two widths differ. Training is Burn's: [`train`] hands a model to
//! [`SupervisedTraining`](burn::train::SupervisedTraining), whose metrics read the [`HeadOutput`](highrank::train::HeadOutput)
//! of each step.
//!
//! ```no_run
//! use runs::data::{Corpus, TextConfig};
//! use burn::tensor::Device;
//! use burn::train::Interrupter;
//! use burn::train::renderer::CliMetricsRenderer;
//! use gpt::{GptConfig, TrainConfig};
//! use highrank::HeadConfig;
//! use std::path::Path;
//!
//! let corpus = Corpus::load(Path::new("data"), &TextConfig::default())?;
//! let head = HeadConfig::mos(128, 96, corpus.vocabulary().len(), 4).with_tied(true);
//! let model = GptConfig::new(128, head).try_init(&Device::default().autodiff())?;
//! let renderer = Box::new(CliMetricsRenderer::new());
//! let trained = gpt::train(
//!     model,
//!     &TrainConfig::new(1000),
//!     &corpus,
//!     Path::new("run"),
//!     renderer,
//!     Interrupter::new(),
//! )?;
//! let score = gpt::evaluate(&trained.model, corpus.test(), 16, |_| ())?;
//! println!("perplexity {}", score.perplexity());
//! # Ok::<(), runs::Error>(())
//! ```
//!
//! # Features
//!
//! `flex` (default), `ndarray`, `wgpu` and `cuda` enable the Burn backend of that name.

mod config;
mod data;
mod evaluate;
mod model;
mod training;

pub use config::{GptConfig, TrainConfig};
pub use data::{Batch, IGNORED, Windows, loader};
pub use evaluate::{Score, evaluate};
pub use model::Gpt;
pub use training::train;
