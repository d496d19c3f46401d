//! Dialogue responses with high-rank output layers.
//!
//! The task is that of Zhao, Zhao and Eskenazi (arXiv 1703.10960) as Yang et al. (arXiv 1711.03953, section 3.1 and table 4)
//! use it: a sequence-to-sequence model reads the last utterances of a telephone conversation and answers.
//!
//! * [`data`]: dialogues, tokens, vocabularies, pairs of context and response, batches as arrays of integers, references;
//! * [`metrics`]: smoothed sentence BLEU, precision and recall over hypotheses and references;
//! * [`retrieve`]: more references for test responses, from similar training contexts;
//! * [`config`]: [`ModelConfig`] with its number of parameters, [`TrainConfig`], the rule of early stopping, and the presets;
//! * [`model`]: [`Seq2Seq`], the hierarchical encoder-decoder, and its loss;
//! * [`train`]: the training program as a library, run folders that can be extended, and held-out perplexity;
//! * [`generate`]: responses by beam search, greedily or drawn;
//! * [`weights`]: models from and for PyTorch;
//! * [`synthetic`]: a generated language of dialogues, whose distribution of responses is known.
//!
//! ```
//! use awd_lstm::HeadKind;
//! use seq2seq::Preset;
//! use seq2seq::data::{Batch, Corpus, DialogConfig, Schedule};
//! use seq2seq::synthetic::{Language, LanguageConfig, Sizes};
//!
//! let folder = tempfile::tempdir()?;
//! let language = Language::new(LanguageConfig::default())?;
//! language.write_corpus(folder.path(), Sizes { train: 20, valid: 5, test: 5 }, 1)?;
//!
//! let corpus = Corpus::load(folder.path(), &DialogConfig::default())?;
//! let model = Preset::Small.model(HeadKind::Mos, corpus.vocabulary().len());
//! let train = Preset::Small.train();
//! let mut schedule = Schedule::new(corpus.train(), train.run, train.batch, train.seed)?;
//! let batch = Batch::new(corpus.train(), &schedule.pairs(0), model.window);
//! assert!(batch.targets.rows() <= train.batch);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Features
//!
//! `flex` (default), `ndarray`, `wgpu` and `cuda` enable the Burn backend of that name.

pub mod config;
pub mod data;
pub mod error;
pub mod generate;
pub mod metrics;
pub mod model;
pub mod retrieve;
pub mod synthetic;
#[cfg(all(test, feature = "flex"))]
mod testing;
pub mod train;
pub mod weights;

pub use config::{ModelConfig, Preset, TrainConfig};
pub use error::Error;
pub use model::Seq2Seq;
