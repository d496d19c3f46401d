//! Mean negative log-likelihood of held-out dialogues.

use crate::data::{Batch, Pair, Split};
use crate::model::Seq2Seq;

/// Number of pairs that are scored at once. It changes the result by rounding only.
pub const EVALUATION_PAIRS: usize = 60;

/// Mean negative log-likelihood of all words of all responses, `</s>` counted, in nats. Perplexity is its exponential.
///
/// Give a model on a plain device (`model.valid()`), for dropout acts on an autodiff device. The sum is accumulated in f64.
///
/// # Panics
/// If `split` has no pair.
pub fn mean_nll(model: &Seq2Seq, split: &Split) -> f64 {
    mean_nll_unless(model, split, &mut || false).expect("it is not asked to stop")
}

/// [`mean_nll`], given up as soon as `stop` says so; it is asked before every batch.
///
/// # Panics
/// As [`mean_nll`].
pub fn mean_nll_unless(model: &Seq2Seq, split: &Split, stop: &mut dyn FnMut() -> bool) -> Option<f64> {
    let pairs: Vec<Pair> = split.pairs().collect();
    assert!(!pairs.is_empty(), "mean_nll: the text has no response to score");
    let (mut sum, mut tokens) = (0.0, 0);
    for pairs in pairs.chunks(EVALUATION_PAIRS) {
        if stop() {
            return None;
        }
        let batch = Batch::new(split, pairs, model.window());
        sum += model.nll(&batch).into_data().iter::<f64>().sum::<f64>();
        tokens += batch.responses.targets.count();
    }
    Some(sum / tokens as f64)
}
