//! An artificial language whose next-word distribution is known exactly.
//!
//! A model trained on text of this language can be compared with the truth: its perplexity with the lowest possible
//! one, and its next-word distributions with the true ones, context by context.
//!
//! The matrix of true log-probabilities over contexts and words has a high rank by construction, as Yang et
//! al. (arXiv 1711.03953, section 2) argue for natural language. The distribution of a context is a *sum* of
//! parts that vary independently of each other (the topic, the last word, the word before), and the
//! logarithm of such a sum is not a sum of parts.

mod config;
mod model;
mod sampling;

pub use config::LanguageConfig;
pub use model::{Context, Language};
