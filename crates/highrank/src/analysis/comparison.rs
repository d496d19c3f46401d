//! Two models on the same text, token by token.

use super::error::AnalysisError;
use super::rows::{self, MASKED};
use crate::head::best_pairs;

/// A word and what a model gives it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Prediction {
    /// The word.
    pub word: usize,
    /// Its log-probability in nats.
    pub log_prob: f64,
}

/// A token that one model predicts better than the other.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenGain {
    /// The token's place in the text, counted from 0 over all blocks.
    pub position: usize,
    /// The word that came.
    pub target: usize,
    /// `log P_A(target)` in nats.
    pub log_prob_a: f64,
    /// `log P_B(target)` in nats.
    pub log_prob_b: f64,
    /// `log P_A(target) − log P_B(target)` in nats; 0 if both models mask the target.
    pub gain: f64,
    /// The words that A finds most probable, most probable first; none that it masks.
    pub top_a: Vec<Prediction>,
    /// The words that B finds most probable, most probable first; none that it masks.
    pub top_b: Vec<Prediction>,
}

/// Where model A beats model B most: the tokens of a text with the largest `log P_A(target) − log P_B(target)`.
///
/// The comparison of Yang et al., ICLR 2018, table 14, over a whole text: read block by block, only the winners are kept.
///
/// The models may mask different words. A target that only B masks is a gain of +∞, one that only A masks of −∞; a model's
/// mean nll is then +∞.
///
/// # Example
/// ```
/// use highrank::analysis::Comparison;
///
/// let log = |row: [f64; 3]| row.map(f64::ln);
/// let mut comparison = Comparison::new(3, 1, 2); // 3 words, the best token, its top 2
/// comparison.add_rows(&log([0.8, 0.1, 0.1]), &log([0.2, 0.2, 0.6]), &[0])?;
/// let [token] = &comparison.finish()?.gains[..] else { panic!() };
/// assert!((token.gain - 4f64.ln()).abs() < 1e-15);
/// assert_eq!(token.top_b[0].word, 2);
/// # Ok::<(), highrank::analysis::AnalysisError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Comparison {
    columns: usize,
    most: usize,
    k: usize,
    tokens: usize,
    better: usize,
    nll: [f64; 2],
    gains: Vec<TokenGain>,
}

/// What a [`Comparison`] has found.
#[derive(Debug, Clone, PartialEq)]
pub struct ComparedModels {
    /// Number of tokens read.
    pub tokens: usize,
    /// Mean negative log-likelihood of A and of B in nats: +∞ for a model that masks a target.
    pub mean_nll: [f64; 2],
    /// Share of tokens that A finds more probable than B does.
    pub share_better: f64,
    /// The tokens with the largest gains, the largest first.
    pub gains: Vec<TokenGain>,
}

impl Comparison {
    /// For distributions over `columns` words: keeps the `most` largest gains, each with both models' top `k` words.
    pub fn new(columns: usize, most: usize, k: usize) -> Self {
        Self { columns, most, k: k.min(columns), tokens: 0, better: 0, nll: [0.0; 2], gains: vec![] }
    }

    /// Takes in the same contexts' rows of both models, in nats, and the words that came.
    ///
    /// # Errors
    /// If the values do not make whole rows, one is NaN or +∞, a row is −∞ throughout, the numbers of rows and targets
    /// differ, or a target is outside the vocabulary. Nothing is taken in then.
    pub fn add_rows(&mut self, a: &[f64], b: &[f64], targets: &[usize]) -> Result<(), AnalysisError> {
        let vocab = self.columns;
        let expected = targets.len();
        for (what, values) in [("model A", a), ("model B", b)] {
            rows::expect_size(what, "rows", rows::check(what, values, vocab, self.tokens)?, expected)?;
        }
        if let Some(i) = targets.iter().position(|&target| target >= vocab) {
            return Err(AnalysisError::Target { row: self.tokens + i, target: targets[i], vocab });
        }
        for ((a, b), &target) in a.chunks_exact(vocab).zip(b.chunks_exact(vocab)).zip(targets) {
            self.add_token(a, b, target);
        }
        Ok(())
    }

    fn add_token(&mut self, a: &[f64], b: &[f64], target: usize) {
        let position = self.tokens;
        let (log_prob_a, log_prob_b) = (a[target], b[target]);
        self.tokens += 1;
        self.better += usize::from(log_prob_a > log_prob_b);
        self.nll[0] -= log_prob_a;
        self.nll[1] -= log_prob_b;
        // Infinite on both sides, they would make NaN.
        let gain = if log_prob_a == log_prob_b { 0.0 } else { log_prob_a - log_prob_b };
        // Of equal gains the earlier token stays in front.
        let place = self.gains.partition_point(|other| other.gain >= gain);
        if place < self.most {
            let (top_a, top_b) = (top(a, self.k), top(b, self.k));
            self.gains.truncate(self.most - 1);
            self.gains
                .insert(place, TokenGain { position, target, log_prob_a, log_prob_b, gain, top_a, top_b });
        }
    }

    /// What the tokens read have in common, and the winners.
    ///
    /// # Errors
    /// Without any token.
    pub fn finish(self) -> Result<ComparedModels, AnalysisError> {
        let Self { tokens, better, nll, gains, .. } = self;
        let count = rows::at_least("a comparison", tokens, 1)?;
        Ok(ComparedModels {
            tokens,
            mean_nll: nll.map(|sum| sum / count),
            share_better: better as f64 / count,
            gains,
        })
    }
}

/// The `k` largest log-probabilities with their words, largest first; fewer if fewer words are not masked.
fn top(row: &[f64], k: usize) -> Vec<Prediction> {
    let best = best_pairs(row, k, 0).expect("a row without NaN").into_iter();
    best.filter(|(log_prob, _)| *log_prob != MASKED)
        .map(|(log_prob, word)| Prediction { word, log_prob })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(count: usize, columns: usize, seed: usize) -> Vec<f64> {
        (0..count * columns).map(|i| -1.0 - (((i + seed) * 7919) % 1009) as f64 / 100.0).collect()
    }

    #[test]
    fn the_largest_gains_of_all_blocks_are_kept_in_order() {
        let (count, columns) = (60, 11);
        let (a, b) = (rows(count, columns, 1), rows(count, columns, 77));
        let targets: Vec<usize> = (0..count).map(|i| (i * 5) % columns).collect();
        let mut comparison = Comparison::new(columns, 7, 3);
        for start in (0..count).step_by(13) {
            let end = count.min(start + 13);
            let cut = start * columns..end * columns;
            comparison.add_rows(&a[cut.clone()], &b[cut], &targets[start..end]).unwrap();
        }
        let found = comparison.finish().unwrap();
        let gain = |i: usize| a[i * columns + targets[i]] - b[i * columns + targets[i]];
        let mut order: Vec<usize> = (0..count).collect();
        order.sort_by(|x, y| gain(*y).total_cmp(&gain(*x)));
        let positions: Vec<usize> = found.gains.iter().map(|token| token.position).collect();
        assert_eq!(positions, order[..7]);
        for token in &found.gains {
            let row = &a[token.position * columns..(token.position + 1) * columns];
            assert_eq!(token.top_a.len(), 3);
            assert!(token.top_a.windows(2).all(|pair| pair[0].log_prob >= pair[1].log_prob));
            let above = row.iter().filter(|x| **x > token.top_a[2].log_prob).count();
            assert_eq!(above, 2);
        }
        let better = (0..count).filter(|i| gain(*i) > 0.0).count();
        assert_eq!(found.share_better, better as f64 / count as f64);
        let [nll_a, nll_b] = found.mean_nll;
        let mean: f64 = (0..count).map(gain).sum::<f64>() / count as f64;
        assert!((nll_b - nll_a - mean).abs() < 1e-12);
    }

    #[test]
    fn masked_targets_are_gains_without_bound_and_no_predictions() {
        let log = |row: [f64; 3]| row.map(f64::ln);
        let (only_a, only_b) = (log([1.0, 0.0, 0.0]), log([0.0, 0.4, 0.6]));
        let mut comparison = Comparison::new(3, 9, 2);
        // Masked by B, by A, by both, by none.
        comparison.add_rows(&only_a, &only_b, &[0]).unwrap();
        comparison.add_rows(&only_a, &only_b, &[1]).unwrap();
        comparison.add_rows(&only_a, &only_a, &[2]).unwrap();
        comparison.add_rows(&only_b, &log([0.1, 0.8, 0.1]), &[1]).unwrap();
        let found = comparison.finish().unwrap();
        let gains: Vec<(usize, f64)> = found.gains.iter().map(|token| (token.position, token.gain)).collect();
        let finite = 0.4f64.ln() - 0.8f64.ln();
        assert_eq!(gains, [(0, f64::INFINITY), (2, 0.0), (3, finite), (1, f64::NEG_INFINITY)]);
        let words = |top: &[Prediction]| top.iter().map(|it| it.word).collect::<Vec<_>>();
        let first = &found.gains[0];
        assert_eq!((words(&first.top_a), words(&first.top_b)), (vec![0], vec![2, 1]));
        assert_eq!((found.mean_nll, found.share_better), ([f64::INFINITY; 2], 0.25));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let mut comparison = Comparison::new(3, 5, 10);
        let row = [-1.0, -1.0, -1.0];
        let message = |result: Result<(), AnalysisError>| result.unwrap_err().to_string();
        assert_eq!(message(comparison.add_rows(&row, &row, &[0, 1])), "rows of model A: 1, expected 2");
        assert_eq!(
            message(comparison.add_rows(&row, &row[..2], &[0])),
            "2 values do not make rows of 3 columns"
        );
        assert_eq!(
            message(comparison.add_rows(&row, &row, &[3])),
            "the target of context 0 is 3, outside the vocabulary 0..3"
        );
        let error = message(comparison.add_rows(&row, &[MASKED; 3], &[0]));
        assert!(error.starts_with("row 0 of model B is -inf throughout"), "{error}");
        let error = comparison.clone().finish().unwrap_err().to_string();
        assert_eq!(error, "too few contexts for a comparison: 0, expected at least 1");
        comparison.add_rows(&row, &row, &[2]).unwrap();
        assert_eq!(comparison.finish().unwrap().gains[0].top_a.len(), 3);
        // Gains without words beside them.
        let mut comparison = Comparison::new(3, 1, 0);
        comparison.add_rows(&row, &row, &[2]).unwrap();
        assert_eq!(comparison.finish().unwrap().gains[0].top_a, []);
    }
}
