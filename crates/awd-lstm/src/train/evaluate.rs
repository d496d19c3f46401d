//! Mean negative log-likelihood of held-out text.

use crate::data::Batches;
use crate::model::{LanguageModel, LmBackend};

/// Tokens that are evaluated at once. The result does not depend on it but for rounding.
pub const EVALUATION_TOKENS: usize = 1024;

/// Mean negative log-likelihood of all predicted tokens of `batches`, in nats. Perplexity is its exponential.
///
/// The hidden state starts at zero and is carried from the first row to the last, in every column by itself.
/// There is no dropout on a backend without gradients; the sum is accumulated in f64.
///
/// # Panics
/// If `batches` has less than two rows, hence nothing to predict.
pub fn mean_nll<B: LmBackend>(model: &LanguageModel<B>, batches: &Batches, device: &B::Device) -> f64 {
    mean_nll_unless(model, batches, device, &mut || false).expect("it is not asked to stop")
}

/// [`mean_nll`], given up as soon as `stop` says so; it is asked before every chunk.
///
/// # Panics
/// As [`mean_nll`].
pub(super) fn mean_nll_unless<B: LmBackend>(
    model: &LanguageModel<B>,
    batches: &Batches,
    device: &B::Device,
    stop: &mut dyn FnMut() -> bool,
) -> Option<f64> {
    assert!(batches.predictions() > 0, "{} rows have nothing to predict", batches.rows());
    let length = (EVALUATION_TOKENS / batches.batch()).max(1);
    let mut state = model.zero_state(batches.batch());
    let mut sum = 0.0;
    for window in batches.windows::<B>(length, device) {
        if stop() {
            return None;
        }
        let (nll, next) = model.nll(window.tokens, window.targets, state);
        state = next;
        sum += nll.into_data().iter::<f64>().sum::<f64>();
    }
    Some(sum / batches.predictions() as f64)
}
