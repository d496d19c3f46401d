//! Responses: by beam search, greedily, or drawn from the model's distribution.
//!
//! All contexts of a call are encoded in one batch and answered together, the hypotheses of all of them in one step of the
//! decoder. Use models on plain devices (`model.valid()`), for dropout acts on autodiff devices.

use awd_lstm::lstm::LstmState;
use burn::tensor::{Int, Tensor, TensorData};
use highrank::rand::Rng;
use highrank::{BeamSearch, BeamState, FinishedHypotheses, Hypothesis, Sampling};
use runs::error::Result;

use crate::data::{BOD, BOS, Contexts, EOS, PAD};
use crate::model::Seq2Seq;

/// A good number of contexts for a call. More of them make the products larger, but take more memory.
pub const CONTEXTS_AT_ONCE: usize = 32;

/// The words that no response holds.
const NEVER: [u32; 3] = [PAD, BOS, BOD];

/// A response that a model finds.
#[derive(Debug, Clone, PartialEq)]
pub struct Response {
    /// The words, without `</s>`.
    pub words: Vec<u32>,
    /// Sum of the log-probabilities of the words and of `</s>`, in nats.
    pub log_prob: f64,
    /// What responses are in order of: `log_prob / length^alpha`, where the length counts `</s>`.
    pub score: f64,
    /// Whether it ended with `</s>`. If not, it reached the most words.
    pub finished: bool,
}

impl From<Hypothesis> for Response {
    fn from(found: Hypothesis) -> Self {
        let Hypothesis { words, log_prob, score, finished } = found;
        let words = words.into_iter().map(|word| word as u32).filter(|&word| word != EOS).collect();
        Self { words, log_prob, score, finished }
    }
}

/// The search of Yang et al. (arXiv 1711.03953, section 3.1): 10 hypotheses, at most 30 words with `</s>`, the 5 best results. Scores are
/// sums of log-probabilities, a finished hypothesis keeps its place in the beam, and `<pad>`, `<s>` and `<d>` are never generated.
///
/// ```
/// use seq2seq::generate::beam_search;
///
/// let by_length = beam_search().with_alpha(1.0);
/// assert_eq!((by_length.width, by_length.max_length, by_length.n_best), (10, 30, 5));
/// ```
pub fn beam_search() -> BeamSearch {
    BeamSearch::new(10, 30, EOS as usize)
        .with_n_best(5)
        .with_finished(FinishedHypotheses::KeepPlace)
        .with_forbidden(NEVER.map(|word| word as usize).to_vec())
}

impl Seq2Seq {
    /// The best responses to each context, best first.
    ///
    /// # Errors
    /// [`Error::Head`](runs::Error::Head) if an option of the search is out of range or a log-probability is NaN.
    ///
    /// # Panics
    /// If there is no context, or one is empty.
    pub fn respond(&self, contexts: &Contexts, search: &BeamSearch) -> Result<Vec<Vec<Response>>> {
        let count = contexts.entries.rows();
        let device = self.device().without_autodiff();
        let LstmState { hidden, cell } = self.encode(contexts);
        let found = self.head.beam_search(search, count, (hidden, cell), |live, (hidden, cell)| {
            let before = LstmState { hidden, cell };
            let (outputs, after) = self.step(live.last_words(BOS as usize, &device), before);
            (outputs, (after.hidden, after.cell))
        })?;
        Ok(found.into_iter().map(|found| found.into_iter().map(Response::from).collect()).collect())
    }

    /// For each context the response that begins with the likeliest word, goes on with the likeliest after it, and so on: at most
    /// `max_length` words with `</s>`, which is not returned.
    ///
    /// # Errors
    /// [`Error::Head`](runs::Error::Head) if `max_length` is 0 or a log-probability is NaN.
    ///
    /// # Panics
    /// As [`respond`](Self::respond).
    pub fn greedy(&self, contexts: &Contexts, max_length: usize) -> Result<Vec<Vec<u32>>> {
        // A beam of one goes on with the likeliest word and ends with it.
        let search = BeamSearch { width: 1, max_length, ..beam_search() };
        let found = self.respond(contexts, &search)?.into_iter();
        Ok(found.map(|found| found.into_iter().flat_map(|response| response.words).collect()).collect())
    }

    /// For each context a response whose words are drawn one after the other: at most `max_length` words with `</s>`, which is not
    /// returned. `<pad>`, `<s>` and `<d>` are masked, the probabilities of the others in proportion.
    ///
    /// # Errors
    /// [`Error::Head`](runs::Error::Head) if an option of the sampling is out of range or a log-probability is NaN.
    ///
    /// # Panics
    /// As [`respond`](Self::respond).
    pub fn sample(
        &self,
        contexts: &Contexts,
        max_length: usize,
        sampling: &Sampling,
        rng: &mut impl Rng,
    ) -> Result<Vec<Vec<u32>>> {
        sampling.validate()?;
        let masked = self.head.clone().mask_words(&NEVER.map(|word| word as usize));
        let device = self.device().without_autodiff();
        let mut responses = vec![Vec::new(); contexts.entries.rows()];
        let (mut open, mut state) = ((0..responses.len()).collect::<Vec<usize>>(), self.encode(contexts));
        let mut words = vec![BOS; open.len()];
        for _ in 0..max_length {
            let ids: Vec<i32> = words.iter().map(|&word| word as i32).collect();
            let ids = Tensor::<1, Int>::from_data(TensorData::new(ids, [words.len()]), &device);
            let (hidden, after) = self.step(ids, state);
            let chosen = masked.sample::<2, 1>(hidden, sampling, rng)?;
            let chosen: Vec<u32> = chosen.into_data().iter::<i64>().map(|word| word as u32).collect();
            let rows: Vec<usize> = (0..chosen.len()).filter(|&row| chosen[row] != EOS).collect();
            open = rows.iter().map(|&row| open[row]).collect();
            words = rows.iter().map(|&row| chosen[row]).collect();
            open.iter().zip(&words).for_each(|(&context, &word)| responses[context].push(word));
            if open.is_empty() {
                break;
            }
            let (hidden, cell) = (after.hidden, after.cell).select(&rows);
            state = LstmState { hidden, cell };
        }
        Ok(responses)
    }
}
