//! The sizes that define a language.

use serde::{Deserialize, Serialize};

use runs::error::{Error, Result};

/// The sizes of an artificial language. The same configuration makes the same language.
///
/// `topics` and `classes` make it hard for a low-rank output layer: the log-probability matrix has about
/// `topics · classes²` different rows, but a softmax over `d`-dimensional states gives it a rank of at most `d + 2`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LanguageConfig {
    /// Number of words, including `<eos>` and the topic words.
    pub vocab: usize,
    /// Number of topics. A topic has a word that announces it, and favourite words.
    pub topics: usize,
    /// Number of classes of words. The class of the last word and the class of the word before it each favour some words.
    pub classes: usize,
    /// Number of favourite words of a topic or a class.
    pub favourites: usize,
    /// Mean length of a sentence in words, with the announcing word and without `<eos>`.
    pub mean_length: f64,
    /// Probability that a word is drawn from the Zipf law of the whole language, whatever the context.
    pub background: f64,
    /// Seed of the tables.
    pub seed: u64,
}

impl Default for LanguageConfig {
    fn default() -> Self {
        Self {
            vocab: 1000,
            topics: 24,
            classes: 24,
            favourites: 10,
            mean_length: 20.0,
            background: 0.05,
            seed: 1,
        }
    }
}

impl LanguageConfig {
    /// Checks every field.
    ///
    /// # Errors
    /// [`Error::InvalidSetting`] naming the first field that is out of range.
    pub fn validate(&self) -> Result<()> {
        if self.topics == 0 {
            return Err(Error::invalid("topics", self.topics, "at least 1"));
        }
        if self.classes == 0 {
            return Err(Error::invalid("classes", self.classes, "at least 1"));
        }
        if self.favourites == 0 {
            return Err(Error::invalid("favourites", self.favourites, "at least 1"));
        }
        if self.vocab < 1 + self.topics + self.favourites {
            return Err(Error::invalid("vocab", self.vocab, "at least 1 + topics + favourites"));
        }
        if !(self.mean_length >= 2.0 && self.mean_length.is_finite()) {
            return Err(Error::invalid("mean_length", self.mean_length, "a number of at least 2"));
        }
        if !(self.background > 0.0 && self.background < 1.0) {
            return Err(Error::invalid("background", self.background, "between 0 and 1, both excluded"));
        }
        Ok(())
    }
}
