//! Beam search with the log-probabilities of a head.

use burn::tensor::Tensor;

use super::config::BeamSearch;
use super::hypothesis::{Hypothesis, LiveHypotheses};
use super::search::by_top_k;
use super::state::BeamState;
use crate::error::HeadError;
use crate::head::output::OutputHead;

impl OutputHead {
    /// Searches for the most probable sequences of a decoder that ends in this head: one list for each context, best first.
    ///
    /// As [`BeamSearch::search`], but the step function returns hidden states `[rows, H]`. Of their log-probabilities only the
    /// best few words a row are kept ([`top_k`](Self::top_k)).
    ///
    /// # Errors
    /// [`HeadError::Range`] if an option is out of its range ([`BeamSearch::validate`]), or is a word that is none of the `V`;
    /// [`HeadError::Shape`] and others if the hidden states do not fit the head or are not one a row; [`HeadError::NotANumber`]
    /// if a log-probability is NaN.
    pub fn beam_search<S: BeamState>(
        &self,
        search: &BeamSearch,
        contexts: usize,
        state: S,
        step: impl FnMut(&LiveHypotheses, S) -> (Tensor<2>, S),
    ) -> Result<Vec<Vec<Hypothesis>>, HeadError> {
        by_top_k(search, self.vocab(), contexts, state, step, |hidden, k| self.try_top_k(hidden, k))
    }
}
