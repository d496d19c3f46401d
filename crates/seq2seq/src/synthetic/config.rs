//! The sizes that define a language.

use runs::error::{Result, check};
use serde::{Deserialize, Serialize};

use crate::data::DialogConfig;

/// The sizes of a language of dialogues. The same configuration makes the same language.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LanguageConfig {
    /// Number of words that utterances are made of.
    pub words: usize,
    /// Number of different utterances.
    pub utterances: usize,
    /// The most words of an utterance.
    pub max_words: usize,
    /// Number of classes of utterances. What follows an utterance depends on its class.
    pub classes: usize,
    /// Right answers to the last utterance; the other speaker's and one's own have different ones.
    pub answers: usize,
    /// Right answers to the utterance before the last.
    pub earlier_answers: usize,
    /// Probability that a response answers the utterance before the last, in `[0, 1)`.
    pub earlier: f64,
    /// Probability that the speaker of the last utterance goes on, in `[0, 1]`.
    pub goes_on: f64,
    /// The fewest turns of a dialogue.
    pub min_turns: usize,
    /// The most turns of a dialogue. All numbers between are equally probable.
    pub max_turns: usize,
    /// Seed of the tables.
    pub seed: u64,
}

impl Default for LanguageConfig {
    /// A language that a small model learns in minutes on a CPU: up to five right answers to a context.
    fn default() -> Self {
        Self {
            words: 60,
            utterances: 120,
            max_words: 6,
            classes: 12,
            answers: 3,
            earlier_answers: 2,
            earlier: 0.4,
            goes_on: 0.3,
            min_turns: 6,
            max_turns: 14,
            seed: 1,
        }
    }
}

/// The most words and utterances. It bounds the memory of the tables.
const MOST: usize = 100_000;

impl LanguageConfig {
    /// Checks every field.
    ///
    /// # Errors
    /// [`InvalidSetting`](runs::Error::InvalidSetting) names the first field that is out of range and the range.
    pub fn validate(&self) -> Result<()> {
        let longest = DialogConfig::default().max_words;
        check((1..=longest).contains(&self.max_words), "max_words", self.max_words, "from 1 to 38")?;
        check((1..=MOST).contains(&self.words), "words", self.words, "from 1 to 100000")?;
        // Half of the longest ones may be used, so that drawing distinct ones ends soon.
        let possible = self.words.saturating_pow(self.max_words as u32) / 2;
        let distinct = (1..=possible.min(MOST)).contains(&self.utterances);
        let expected = "from 1 to words ^ max_words / 2, at most 100000";
        check(distinct, "utterances", self.utterances, expected)?;
        let some = |size: usize| (1..=self.utterances).contains(&size);
        for (name, size) in
            [("classes", self.classes), ("answers", self.answers), ("earlier_answers", self.earlier_answers)]
        {
            check(some(size), name, size, "from 1 to utterances")?;
        }
        check((0.0..1.0).contains(&self.earlier), "earlier", self.earlier, "in [0, 1)")?;
        check((0.0..=1.0).contains(&self.goes_on), "goes_on", self.goes_on, "in [0, 1]")?;
        check(self.min_turns > 1, "min_turns", self.min_turns, "at least 2")?;
        check(self.max_turns >= self.min_turns, "max_turns", self.max_turns, "at least min_turns")
    }
}
