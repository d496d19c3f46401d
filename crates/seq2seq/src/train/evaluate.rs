//! Mean negative log-likelihood of held-out dialogues.

use runs::error::Result;
use runs::ranks::Ranks;
use runs::{Score, sum_scores};

use crate::data::{Batch, Pair, Split};
use crate::model::Seq2Seq;

/// Number of pairs that are scored at once. It changes the result by rounding only.
const EVALUATION_PAIRS: usize = 60;

/// Mean negative log-likelihood of all words of all responses, `</s>` counted, in nats. Perplexity is its exponential.
///
/// Give a model on a plain device (`model.valid()`), for dropout acts on an autodiff device. The sum is accumulated in f64.
///
/// # Panics
/// If `split` has no pair.
pub fn mean_nll(model: &Seq2Seq, split: &Split) -> f64 {
    let score = score_unless(&Ranks::alone(), model, split, &mut || false);
    score.expect("one process has nobody to lose").expect("it is not asked to stop").mean()
}

/// The score of [`mean_nll`] by several ranks, each of which scores its part of the pairs; given up as soon as `stop` says so at any of
/// them. It is asked before every batch.
///
/// # Errors
/// [`Error::Communication`](runs::Error::Communication).
///
/// # Panics
/// As [`mean_nll`].
pub(super) fn score_unless(
    ranks: &Ranks,
    model: &Seq2Seq,
    split: &Split,
    stop: &mut dyn FnMut() -> bool,
) -> Result<Option<Score>> {
    let pairs: Vec<Pair> = split.pairs().collect();
    assert!(!pairs.is_empty(), "mean_nll: the text has no response to score");
    let mut score = Score::default();
    for pairs in pairs[ranks.part(pairs.len())].chunks(EVALUATION_PAIRS) {
        if stop() {
            return sum_scores(ranks, None);
        }
        let batch = Batch::new(split, pairs, model.window());
        score.nll += model.nll(&batch).into_data().iter::<f64>().sum::<f64>();
        score.tokens += batch.targets.count();
    }
    sum_scores(ranks, Some(score))
}
