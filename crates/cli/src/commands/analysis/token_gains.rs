//! Two models' results on the same text, as it is printed.

use highrank::analysis::{Prediction, TokenGain};
use program::args::Head;
use runs::data::Vocabulary;
use serde::Serialize;

/// Words of context that are shown in front of a token.
const CONTEXT: usize = 20;

/// The two models' results over the whole text.
#[derive(Debug, Clone, Serialize)]
pub struct Summary {
    pub a: String,
    pub head_a: Head,
    pub ppl_a: f64,
    pub b: String,
    pub head_b: Head,
    pub ppl_b: f64,
    pub tokens: usize,
    /// Share of tokens that A finds more probable than B does.
    pub a_better: f64,
}

/// A token with its words.
#[derive(Debug, Clone, Serialize)]
pub struct Token {
    pub position: usize,
    pub context: Vec<String>,
    pub target: String,
    /// `log P_A − log P_B` of it, in nats.
    pub gain: f64,
    pub p_a: f64,
    pub p_b: f64,
    pub top_a: Vec<WordProbability>,
    pub top_b: Vec<WordProbability>,
}

/// A word and its probability.
#[derive(Debug, Clone, Serialize)]
pub struct WordProbability {
    pub word: String,
    pub p: f64,
}

impl Token {
    /// The token of `gain` in the text of these word ids.
    pub fn new(gain: &TokenGain, ids: &[usize], vocabulary: &Vocabulary) -> Self {
        let word = |id: usize| vocabulary.words()[id].clone();
        let top = |predictions: &[Prediction]| {
            let named = predictions.iter();
            named.map(|it| WordProbability { word: word(it.word), p: it.log_prob.exp() }).collect()
        };
        // The word at `position` is the last of the context, the target comes after it.
        let seen = &ids[..=gain.position];
        Self {
            position: gain.position,
            context: seen[seen.len().saturating_sub(CONTEXT)..].iter().map(|&id| word(id)).collect(),
            target: word(gain.target),
            gain: gain.gain(),
            p_a: gain.log_prob_a.exp(),
            p_b: gain.log_prob_b.exp(),
            top_a: top(&gain.top_a),
            top_b: top(&gain.top_b),
        }
    }
}
