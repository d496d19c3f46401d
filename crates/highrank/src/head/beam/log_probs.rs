//! What a step function returns, and the words of it that matter.

use burn::tensor::Tensor;

use super::config::BeamSearch;
use crate::error::HeadError;
use crate::head::predict::TopK;
use crate::head::select::best_pairs;

/// Log-probabilities of the next word of every live hypothesis, in nats: made from a `Tensor<2>` of shape `[rows, V]`, or from a
/// `Vec<Vec<f64>>`.
#[derive(Debug, Clone)]
pub struct StepLogProbs(Source);

// One lives at a time: the size of the largest variant costs nothing.
#[allow(clippy::large_enum_variant)]
#[derive(Debug, Clone)]
enum Source {
    Tensor(Tensor<2>),
    Host(Vec<Vec<f64>>),
    /// Only the best words of each row, enough of them for the search, of a vocabulary that was checked.
    Best(TopK<2>),
}

impl From<Tensor<2>> for StepLogProbs {
    fn from(log_probs: Tensor<2>) -> Self {
        Self(Source::Tensor(log_probs))
    }
}

impl From<Vec<Vec<f64>>> for StepLogProbs {
    fn from(log_probs: Vec<Vec<f64>>) -> Self {
        Self(Source::Host(log_probs))
    }
}

/// The words that a hypothesis may go on with, each after its log-probability.
pub(super) type Extensions = Vec<(f64, usize)>;

impl StepLogProbs {
    /// Of the best words of each row: [enough](BeamSearch::words_needed) of a vocabulary that the search's words have been checked for.
    pub(super) fn of_best(best: TopK<2>) -> Self {
        Self(Source::Best(best))
    }

    /// The extensions of each of `rows` hypotheses that can enter the pool or the beam.
    pub(super) fn extensions(self, search: &BeamSearch, rows: usize) -> Result<Vec<Extensions>, HeadError> {
        let best = match self.0 {
            Source::Host(log_probs) => return host_extensions(search, rows, &log_probs),
            Source::Best(best) => best,
            Source::Tensor(log_probs) => {
                let [got, vocab] = log_probs.dims();
                check_rows(&[got, vocab], got == rows, rows)?;
                search.validate_words(vocab)?;
                TopK::of_rows(log_probs, search.words_needed(vocab), 0)?
            }
        };
        let [got, k] = best.words.dims();
        check_rows(&[got, k], got == rows, rows)?;
        let rows = best.into_lists().into_iter().enumerate();
        rows.map(|(row, pairs)| search.possible(pairs, row)).collect()
    }
}

fn host_extensions(
    search: &BeamSearch,
    rows: usize,
    log_probs: &[Vec<f64>],
) -> Result<Vec<Extensions>, HeadError> {
    let vocab = log_probs.first().map_or(0, Vec::len);
    let width = log_probs.iter().map(Vec::len).find(|len| *len != vocab).unwrap_or(vocab);
    check_rows(&[log_probs.len(), width], log_probs.len() == rows && width == vocab, rows)?;
    search.validate_words(vocab)?;
    let needed = search.words_needed(vocab);
    let rows = log_probs.iter().enumerate();
    rows.map(|(row, log_probs)| search.possible(best_pairs(log_probs, needed, row)?, row)).collect()
}

fn check_rows(got: &[usize], fits: bool, rows: usize) -> Result<(), HeadError> {
    match fits {
        true => Ok(()),
        false => Err(HeadError::Shape {
            what: "log-probabilities of a step",
            got: got.to_vec(),
            expected: format!("[{rows}, V], a row for each live hypothesis"),
        }),
    }
}

impl BeamSearch {
    /// Those words of a row that can come.
    fn possible(&self, mut words: Extensions, row: usize) -> Result<Extensions, HeadError> {
        match words.iter().any(|(log_prob, _)| *log_prob == f64::INFINITY) {
            true => Err(HeadError::NotANumber { token: row }),
            false => {
                words.retain(|(log_prob, word)| {
                    *log_prob > f64::NEG_INFINITY && !self.forbidden.contains(word)
                });
                Ok(words)
            }
        }
    }
}
