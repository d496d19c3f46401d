//! Hypotheses of a beam search: those that go on, and those it results in.

use burn::tensor::{Device, Int, Tensor};

use crate::head::predict::integers;

/// A sequence of words that a beam search results in.
#[derive(Debug, Clone, PartialEq)]
pub struct Hypothesis {
    /// The words; the last is `eos` if the hypothesis is finished.
    pub words: Vec<usize>,
    /// Sum of the words' log-probabilities in nats.
    pub log_prob: f64,
    /// `log_prob / length^alpha`, which the results are in order of.
    pub score: f64,
    /// Whether it ends in `eos`. If not, it reached the maximum length.
    pub finished: bool,
}

/// The unfinished hypotheses that a step function extends, one row each.
///
/// Those of a context follow each other, the most probable first, and contexts are in order; a context whose search has ended
/// has no rows. All have the same length, the number of steps so far.
#[derive(Debug, Clone)]
pub struct LiveHypotheses {
    /// At least one in a step function.
    pub rows: Vec<LiveHypothesis>,
}

/// An unfinished hypothesis.
#[derive(Debug, Clone)]
pub struct LiveHypothesis {
    /// The number of the context that it belongs to.
    pub context: usize,
    /// The words so far: none in the first step.
    pub words: Vec<usize>,
    /// Sum of the words' log-probabilities in nats.
    pub log_prob: f64,
}

impl LiveHypotheses {
    /// The last word of every row, in the first step, where there is none, `start`; shape `[rows]`: what a decoder with a state
    /// reads.
    pub fn last_words(&self, start: usize, device: &Device) -> Tensor<1, Int> {
        let last = self.rows.iter().map(|row| row.words.last().copied().unwrap_or(start));
        integers(last, [self.rows.len()], device)
    }

    /// `start` and the words so far, shape `[rows, 1 + length]`: what a decoder without a state reads.
    pub fn all_words(&self, start: usize, device: &Device) -> Tensor<2, Int> {
        let length = self.rows.first().map_or(0, |row| row.words.len());
        let words = self.rows.iter().flat_map(|row| std::iter::once(start).chain(row.words.iter().copied()));
        integers(words, [self.rows.len(), 1 + length], device)
    }
}
