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
    pub(super) rows: Vec<LiveRow>,
}

#[derive(Debug, Clone)]
pub(super) struct LiveRow {
    pub(super) context: usize,
    pub(super) words: Vec<usize>,
    pub(super) log_prob: f64,
}

impl LiveHypotheses {
    /// One empty sequence for each context.
    pub(super) fn start(contexts: usize) -> Self {
        let row = |context| LiveRow { context, words: vec![], log_prob: 0.0 };
        Self { rows: (0..contexts).map(row).collect() }
    }

    /// Number of rows: at least 1 in a step function.
    pub fn rows(&self) -> usize {
        self.rows.len()
    }

    /// Number of words that each hypothesis has so far: 0 in the first step.
    pub fn length(&self) -> usize {
        self.rows.first().map_or(0, |row| row.words.len())
    }

    /// The context that each row belongs to.
    pub fn contexts(&self) -> Vec<usize> {
        self.rows.iter().map(|row| row.context).collect()
    }

    /// The words so far, row by row.
    pub fn sequences(&self) -> impl ExactSizeIterator<Item = &[usize]> {
        self.rows.iter().map(|row| row.words.as_slice())
    }

    /// The last word of every row, in the first step, where there is none, `start`; shape `[rows]`: what a decoder with a state
    /// reads.
    pub fn last_words(&self, start: usize, device: &Device) -> Tensor<1, Int> {
        let last = self.sequences().map(|words| words.last().copied().unwrap_or(start));
        integers(last, [self.rows()], device)
    }

    /// `start` and the words so far, shape `[rows, 1 + length]`: what a decoder without a state reads.
    pub fn all_words(&self, start: usize, device: &Device) -> Tensor<2, Int> {
        let words = self.sequences().flat_map(|words| std::iter::once(start).chain(words.iter().copied()));
        integers(words, [self.rows(), 1 + self.length()], device)
    }
}
