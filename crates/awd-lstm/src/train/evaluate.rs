//! Mean negative log-likelihood of held-out text.

use crate::data::Batches;
use crate::model::LanguageModel;

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
    mean_nll_unless(model, batches, &mut || false).expect("it is not asked to stop")
}

/// [`mean_nll`], given up as soon as `stop` says so; it is asked before every chunk.
///
/// # Panics
/// As [`mean_nll`].
pub(super) fn mean_nll_unless(
    model: &LanguageModel,
    batches: &Batches,
    stop: &mut dyn FnMut() -> bool,
) -> Option<f64> {
    assert!(batches.predictions() > 0, "{} rows have nothing to predict", batches.rows());
    let length = (EVALUATION_TOKENS / batches.batch()).max(1);
    let mut state = model.zero_state(batches.batch());
    let mut sum = 0.0;
    for window in batches.windows(length, &model.device()) {
        if stop() {
            return None;
        }
        let (nll, next) = model.nll(window.tokens, window.targets, state);
        state = next;
        sum += nll.into_data().iter::<f64>().sum::<f64>();
    }
    Some(sum / batches.predictions() as f64)
}
