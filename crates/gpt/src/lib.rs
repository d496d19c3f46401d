//! A small GPT on Burn's own transformer, with any of [`highrank`]'s heads as its output layer.
//!
//! ```text
//! tokens [B, T] → embedding [V, d] (→ d_model) + positions → pre-norm transformer, causal → norm
//!               (→ H) → output layer, its matrix the embedding or one of its own → log-probabilities [B, T, V] in nats
//! ```
//!
//! The steps in brackets are linear layers that exist where two widths differ. [`GptTask`] is the model as a task of
//! [`runs::Trainer`]: with a run's folder, training goes on after a stop as if there had been none.
//!
//! ```no_run
//! use burn::module::Module;
//! use burn::tensor::Device;
//! use gpt::{GptConfig, GptTask, TrainConfig, Trainer};
//! use highrank::{HeadConfig, Start};
//! use runs::Silent;
//! use runs::data::{Corpus, TextConfig};
//! use std::path::Path;
//!
//! let corpus = Corpus::load(Path::new("data"), &TextConfig::default())?;
//! let head = HeadConfig::mos(128, 128, corpus.vocabulary().len(), 4).starting_at_softmax(Start::SPREAD);
//! let config = GptConfig::new(128, head.with_tied(true));
//! let task = GptTask::new(&config, &TrainConfig::new(1000), &corpus, &Device::default())?;
//! let mut trainer = Trainer::new(task);
//! trainer.fit(None, &mut Silent)?;
//! let score = gpt::evaluate(&trainer.model().valid(), corpus.test(), 16, |_| ())?;
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
mod generate;
mod model;
mod run;
mod task;

pub use config::{GptConfig, TrainConfig};
pub use data::{Batch, IGNORED, Windows, batch};
pub use evaluate::evaluate;
pub use model::{Gpt, GptOutput};
pub use run::{GptState, Nothing, RunConfig, RunFolder, Transformer};
pub use task::{GptTask, Trainer};
