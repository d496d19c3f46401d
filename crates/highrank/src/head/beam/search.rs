//! The search itself.

use std::cmp::Ordering;

use burn::tensor::Tensor;

use super::config::{BeamSearch, FinishedHypotheses};
use super::hypothesis::{Hypothesis, LiveHypotheses, LiveHypothesis};
use super::state::BeamState;
use crate::error::HeadError;
use crate::head::output::OutputHead;
use crate::head::predict::TopK;

impl BeamSearch {
    /// Searches with any step function: one list for each context, best first.
    ///
    /// The step function is called once a step, for the live hypotheses of all contexts together. It takes those, one row
    /// each, with the state of each row, and returns the log-probabilities in nats of each row's next word, with the new
    /// state. Before the next call the search takes the rows of the state that hypotheses go on from
    /// ([`BeamState`]).
    ///
    /// The log-probabilities are `[rows, V]`, of which only the best few words a row are read. −∞ is a word that cannot come. They
    /// need not be normalised. For those of a head see [`OutputHead::beam_search`](crate::OutputHead::beam_search), which never
    /// makes the whole tensor.
    ///
    /// # Arguments
    /// - contexts: number of searches
    /// - state: the state in front of the first word, one row for each context
    ///
    /// # Errors
    /// [`HeadError::Range`] if an option is out of its range ([`validate`](Self::validate)), or is a word that is none of the `V`;
    /// [`HeadError::Shape`] if the step function returns another number of rows; [`HeadError::NotANumber`] if it returns NaN or
    /// +∞.
    ///
    /// # Example
    /// A chain over three words that is known by a table, without a state:
    ///
    /// ```
    /// use burn::tensor::{Device, Tensor};
    /// use highrank::BeamSearch;
    ///
    /// let (bos, eos, device) = (1, 0, Device::default());
    /// let table = Tensor::<2>::from_data([[0.2, 0.5, 0.3], [0.1, 0.2, 0.7], [0.6, 0.3, 0.1]], &device).log();
    /// let found = BeamSearch::new(2, 5, eos)
    ///     .search(1, (), |live, ()| (table.clone().select(0, live.last_words(bos, &device)), ()))?;
    /// assert_eq!(found[0][0].words, [2, 0]); // 0.7 · 0.6
    /// assert!((found[0][0].log_prob - 0.42f64.ln()).abs() < 1e-6);
    /// # Ok::<(), highrank::HeadError>(())
    /// ```
    pub fn search<S: BeamState>(
        &self,
        contexts: usize,
        state: S,
        mut step: impl FnMut(&LiveHypotheses, S) -> (Tensor<2>, S),
    ) -> Result<Vec<Vec<Hypothesis>>, HeadError> {
        run(self, contexts, state, |live, state| {
            let (log_probs, state) = step(live, state);
            let [rows, vocab] = log_probs.dims();
            check_rows([rows, vocab], live)?;
            self.validate_words(vocab)?;
            Ok((TopK::of_rows(log_probs, self.words_needed(vocab), 0)?, state))
        })
    }

    /// The words that each live hypothesis may go on with, each after its log-probability, of the best words of each row:
    /// [enough](Self::words_needed) of a vocabulary that the words of the options have been checked for.
    fn extensions(&self, best: TopK<2>, live: &LiveHypotheses) -> Result<Vec<Extensions>, HeadError> {
        check_rows(best.words.dims(), live)?;
        let mut rows = best.into_lists();
        for (token, words) in rows.iter_mut().enumerate() {
            if words.iter().any(|(log_prob, _)| *log_prob == f64::INFINITY) {
                return Err(HeadError::NotANumber { token });
            }
            words.retain(|(log_prob, word)| *log_prob > f64::NEG_INFINITY && !self.forbidden.contains(word));
        }
        Ok(rows)
    }
}

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

/// The words that a hypothesis may go on with, each after its log-probability.
type Extensions = Vec<(f64, usize)>;

fn check_rows(got: [usize; 2], live: &LiveHypotheses) -> Result<(), HeadError> {
    match live.rows.len() {
        rows if rows == got[0] => Ok(()),
        rows => Err(HeadError::Shape {
            what: "log-probabilities of a step",
            got: got.to_vec(),
            expected: format!("[{rows}, V], a row for each live hypothesis"),
        }),
    }
}

/// [`BeamSearch::search`] with the hidden states of a decoder over `vocab` words, of which `top_k` gives the most probable ones.
pub(crate) fn by_top_k<S: BeamState, E: From<HeadError>>(
    search: &BeamSearch,
    vocab: usize,
    contexts: usize,
    state: S,
    mut step: impl FnMut(&LiveHypotheses, S) -> (Tensor<2>, S),
    top_k: impl Fn(Tensor<2>, usize) -> Result<TopK<2>, E>,
) -> Result<Vec<Vec<Hypothesis>>, E> {
    search.validate_words(vocab)?;
    let k = search.words_needed(vocab);
    run(search, contexts, state, |live, state| {
        let (hidden, state) = step(live, state);
        Ok((top_k(hidden, k)?, state))
    })
}

/// What may come next: a live hypothesis with one more word, or a finished one that keeps its place.
struct Candidate<'a> {
    log_prob: f64,
    words: &'a [usize],
    /// The word to add, and the row to go on from.
    extension: Option<(usize, usize)>,
}

impl Candidate<'_> {
    /// The most probable first, of equal ones that of the lowest words.
    fn order(&self, other: &Self) -> Ordering {
        other.log_prob.total_cmp(&self.log_prob).then_with(|| self.sequence().cmp(other.sequence()))
    }

    fn sequence(&self) -> impl Iterator<Item = usize> {
        self.words.iter().copied().chain(self.extension.map(|(word, _)| word))
    }
}

/// The search for all contexts, with a step function that may fail.
fn run<S: BeamState, E: From<HeadError>>(
    search: &BeamSearch,
    contexts: usize,
    mut state: S,
    mut step: impl FnMut(&LiveHypotheses, S) -> Result<(TopK<2>, S), E>,
) -> Result<Vec<Vec<Hypothesis>>, E> {
    search.validate()?;
    let empty = |context| LiveHypothesis { context, words: vec![], log_prob: 0.0 };
    let mut live = LiveHypotheses { rows: (0..contexts).map(empty).collect() };
    // Finished ones of each context, and at the end those that are not.
    let mut pools: Vec<Vec<Hypothesis>> = (0..contexts).map(|_| vec![]).collect();
    for length in 1..=search.max_length {
        if live.rows.is_empty() {
            break;
        }
        let (best, after) = step(&live, state)?;
        let extensions = search.extensions(best, &live)?;
        let (mut next, mut parents, mut first) = (vec![], vec![], 0);
        for rows in live.rows.chunk_by(|a, b| a.context == b.context) {
            let last = first + rows.len();
            let pool = &mut pools[rows[0].context];
            for (row, parent) in extend(search, rows, &extensions[first..last], pool) {
                next.push(row);
                parents.push(first + parent);
            }
            first = last;
        }
        live = LiveHypotheses { rows: next };
        // Nothing reads the state after the last step.
        let goes_on = length < search.max_length && !live.rows.is_empty();
        state = if goes_on { after.select(&parents) } else { after };
    }
    for row in live.rows {
        pools[row.context].push(hypothesis(search, row.words, row.log_prob, false));
    }
    for found in &mut pools {
        found.sort_by(|a, b| b.score.total_cmp(&a.score).then_with(|| a.words.cmp(&b.words)));
        found.truncate(search.n_best);
    }
    Ok(pools)
}

/// A step of one context: the hypotheses that go on, each with the row of `rows` it comes from. Finished ones go to the
/// pool.
fn extend(
    search: &BeamSearch,
    rows: &[LiveHypothesis],
    extensions: &[Extensions],
    pool: &mut Vec<Hypothesis>,
) -> Vec<(LiveHypothesis, usize)> {
    let kept = match search.finished {
        FinishedHypotheses::LeaveBeam => vec![],
        FinishedHypotheses::KeepPlace => std::mem::take(pool),
    };
    let mut candidates: Vec<Candidate<'_>> = kept
        .iter()
        .map(|kept| Candidate { log_prob: kept.log_prob, words: &kept.words, extension: None })
        .collect();
    for (parent, (row, extensions)) in rows.iter().zip(extensions).enumerate() {
        candidates.extend(extensions.iter().map(|&(log_prob, word)| Candidate {
            log_prob: row.log_prob + log_prob,
            words: &row.words,
            extension: Some((word, parent)),
        }));
    }
    candidates.sort_by(Candidate::order);
    let mut next = vec![];
    let mut places = search.width;
    for candidate in candidates {
        if places == 0 {
            break;
        }
        let (words, log_prob) = (candidate.sequence().collect(), candidate.log_prob);
        match candidate.extension {
            Some((word, parent)) if word != search.eos => {
                next.push((LiveHypothesis { context: rows[0].context, words, log_prob }, parent));
                places -= 1;
            }
            _ => {
                pool.push(hypothesis(search, words, log_prob, true));
                places -= usize::from(search.finished == FinishedHypotheses::KeepPlace);
            }
        }
    }
    next
}

fn hypothesis(search: &BeamSearch, words: Vec<usize>, log_prob: f64, finished: bool) -> Hypothesis {
    let score = log_prob / (words.len() as f64).powf(search.alpha);
    Hypothesis { words, log_prob, score, finished }
}
