//! Mean negative log-likelihood of held-out text.

use std::ops::Range;

use crate::data::Batches;
use crate::model::LanguageModel;
use runs::error::Result;
use runs::ranks::Ranks;
use runs::{Score, sum_scores};

/// Number of tokens that are evaluated at once. It changes the result by rounding only.
pub const EVALUATION_TOKENS: usize = 1024;

/// Mean negative log-likelihood of all predicted tokens of `batches`, in nats. Perplexity is its exponential.
///
/// The hidden state starts at zero and is carried from the first row to the last, in each column separately.
/// Give a model on a plain device (`model.valid()`), for dropout acts on an autodiff device. The sum is accumulated in f64.
///
/// # Panics
/// If `batches` has fewer than two rows, hence nothing to predict.
pub fn mean_nll(model: &LanguageModel, batches: &Batches) -> f64 {
    mean_nll_among(&Ranks::alone(), model, batches).expect("one process has nobody to lose")
}

/// [`mean_nll`] by several ranks, each of which scores its part of the columns. It is the same at all of them, and but for the
/// rounding of sums that of one process.
///
/// # Errors
/// [`Error::Communication`](runs::Error::Communication).
///
/// # Panics
/// As [`mean_nll`].
pub fn mean_nll_among(ranks: &Ranks, model: &LanguageModel, batches: &Batches) -> Result<f64> {
    let score = score_unless(ranks, model, batches, &mut || false)?;
    Ok(score.expect("it is not asked to stop").mean())
}

/// The score of [`mean_nll_among`], given up as soon as `stop` says so at any rank; it is asked before every chunk.
///
/// # Errors
/// As [`mean_nll_among`].
///
/// # Panics
/// As [`mean_nll`].
pub(super) fn score_unless(
    ranks: &Ranks,
    model: &LanguageModel,
    batches: &Batches,
    stop: &mut dyn FnMut() -> bool,
) -> Result<Option<Score>> {
    assert!(batches.predictions() > 0, "{} rows have nothing to predict", batches.rows());
    let own = ranks.part(batches.batch());
    let tokens = batches.predictions() / batches.batch() * own.len();
    let sum = if own.is_empty() { Some(0.0) } else { sum_unless(model, batches, &own, stop) };
    sum_scores(ranks, sum.map(|nll| Score { nll, tokens, correct: None }))
}

/// Summed nll of some columns.
fn sum_unless(
    model: &LanguageModel,
    batches: &Batches,
    own: &Range<usize>,
    stop: &mut dyn FnMut() -> bool,
) -> Option<f64> {
    let length = (EVALUATION_TOKENS / batches.batch()).max(1);
    let mut state = model.zero_state(own.len());
    let mut sum = 0.0;
    for window in batches.windows(length, &model.device()) {
        if stop() {
            return None;
        }
        let window = if own.len() < batches.batch() { window.columns(own.start, own.len()) } else { window };
        let (nll, next) = model.nll(window.tokens, window.targets, state);
        state = next;
        sum += nll.into_data().iter::<f64>().sum::<f64>();
    }
    Some(sum)
}
