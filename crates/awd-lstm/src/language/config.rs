//! The sizes that define a language.

use serde::{Deserialize, Serialize};

use runs::error::{Result, check};

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
    /// [`Error::InvalidSetting`](runs::error::Error::InvalidSetting) naming the first field that is out of range.
    pub fn validate(&self) -> Result<()> {
        let Self { vocab, topics, classes, favourites, mean_length, background, .. } = *self;
        check(topics > 0, "topics", topics, "at least 1")?;
        check(classes > 0, "classes", classes, "at least 1")?;
        check(favourites > 0, "favourites", favourites, "at least 1")?;
        check(vocab > topics.saturating_add(favourites), "vocab", vocab, "at least 1 + topics + favourites")?;
        let is_length = mean_length >= 2.0 && mean_length.is_finite();
        check(is_length, "mean_length", mean_length, "a number of at least 2")?;
        let is_inside = background > 0.0 && background < 1.0;
        check(is_inside, "background", background, "between 0 and 1, both excluded")
    }
}
