//! The options of a beam search.

use burn::config::Config;
use serde::{Deserialize, Serialize};

use crate::error::{HeadError, at_least_one, in_range, not_negative};

/// Beam search for the most probable sequences of words.
///
/// A hypothesis is a sequence of words with the sum of their log-probabilities. It is finished if its last word is `eos`;
/// its length counts `eos`.
///
/// ```text
/// live = [the empty sequence], pool = []
/// repeat max_length times, or until live is empty:
///     candidates = every live hypothesis extended by every word that is not masked
///     sort them by log-probability, highest first; equal ones by their words, lowest first
///     live = []
///     for each candidate in this order, until live holds `width`:
///         finished: add it to the pool;   else: add it to live
/// add what is still live to the pool, unfinished
/// score = log-probability / length^alpha
/// result = the n_best of the pool by score, highest first; equal ones by their words, lowest first
/// ```
///
/// "By their words" compares sequences word by word, the first word first. So finished hypotheses take no place in the beam,
/// and a search always goes on for `max_length` steps unless nothing is left to extend. [`FinishedHypotheses`] has the other
/// rule, by which they keep their place. Sums are in f64, and of every row of log-probabilities only the best
/// few words are selected.
///
/// # Example
/// A decoder whose state is its hidden state, one row a hypothesis, for two contexts at a time:
///
/// ```
/// use burn::nn::EmbeddingConfig;
/// use burn::tensor::{Device, Distribution, Tensor};
/// use highrank::{BeamSearch, HeadConfig};
///
/// let device = Device::default();
/// let (bos, eos) = (0, 1);
/// let embedding = EmbeddingConfig::new(100, 16).init(&device);
/// let head = HeadConfig::mos(16, 16, 100, 3).init(&device);
///
/// let contexts = Tensor::<2>::random([2, 16], Distribution::Default, &device);
/// let search = BeamSearch::new(4, 12, eos).with_n_best(3).with_alpha(0.6).with_forbidden(vec![bos]);
/// let found = head.beam_search(&search, 2, contexts, |live, state| {
///     let words = live.last_words(bos, &device).unsqueeze_dim(1); // [rows, 1]
///     let hidden = (state + embedding.forward(words).squeeze_dim(1)).tanh(); // [rows, 16]
///     (hidden.clone(), hidden) // for the head, and the state of the next step
/// })?;
/// assert_eq!(found.len(), 2); // one list a context
/// assert!(found[0].len() <= 3 && found[0][0].score >= found[0][1].score);
/// # Ok::<(), highrank::HeadError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BeamSearch {
    /// How many hypotheses go on from step to step, for each context.
    pub width: usize,
    /// Most words of a hypothesis, `eos` among them: the number of steps.
    pub max_length: usize,
    /// The word that ends a sequence.
    pub eos: usize,
    /// How many hypotheses a context results in; fewer if fewer were found.
    #[serde(default = "one")]
    pub n_best: usize,
    /// Exponent of the length by which log-probabilities are divided for the final order: 0 leaves them, 1 takes the mean
    /// a word. At least 0.
    #[serde(default)]
    pub alpha: f64,
    /// What becomes of a hypothesis that ends in `eos`.
    #[serde(default)]
    pub finished: FinishedHypotheses,
    /// Words that are never generated, such as padding. The probabilities of the others stay as they are.
    #[serde(default)]
    pub forbidden: Vec<usize>,
}

/// What becomes of a hypothesis that ends in `eos`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum FinishedHypotheses {
    /// It leaves the beam: `width` unfinished ones go on, and the finished ones are unlimited in number.
    #[default]
    LeaveBeam,
    /// It keeps its place in the beam with its log-probability, until better ones push it out: in each step the `width` best of
    /// the finished ones and the extended others are kept. The search ends when all of them are finished.
    ///
    /// Sequences of different lengths compete by their sums of log-probabilities, which favours short ones; `alpha` acts on
    /// the final order alone.
    KeepPlace,
}

impl Config for BeamSearch {}

fn one() -> usize {
    1
}

impl BeamSearch {
    /// A search for the best hypothesis; see the fields for what else can be set.
    pub fn new(width: usize, max_length: usize, eos: usize) -> Self {
        let finished = FinishedHypotheses::default();
        Self { width, max_length, eos, n_best: one(), alpha: 0.0, finished, forbidden: vec![] }
    }

    setters! {
        with_n_best(n_best: usize),
        with_alpha(alpha: f64),
        with_finished(finished: FinishedHypotheses),
        with_forbidden(forbidden: Vec<usize>),
    }

    /// Checks the ranges of all options.
    ///
    /// # Errors
    /// [`HeadError::Range`] with the option, its value and the allowed range.
    pub fn validate(&self) -> Result<(), HeadError> {
        let sizes = [("width", self.width), ("max_length", self.max_length), ("n_best", self.n_best)];
        sizes.into_iter().try_for_each(|(name, size)| at_least_one(name, size))?;
        not_negative("alpha", self.alpha)
    }

    /// Checks that the words of the options are among so many.
    pub(super) fn validate_words(&self, vocab: usize) -> Result<(), HeadError> {
        let forbidden = self.forbidden.iter().map(|&word| ("forbidden", word));
        [("eos", self.eos)].into_iter().chain(forbidden).try_for_each(|(name, word)| {
            in_range(name, word as f64, "a word below the size of the vocabulary", ..vocab as f64)
        })
    }

    /// How many of a row's best words the search may need: as many unfinished ones as go on, `eos`, and those that are left
    /// out.
    pub(super) fn words_needed(&self, vocab: usize) -> usize {
        self.width.saturating_add(1 + self.forbidden.len()).min(vocab)
    }
}
