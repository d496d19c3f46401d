//! Divergence between the next-word distributions of different contexts.

use super::error::AnalysisError;
use super::rows::{self, MASKED, RowAnalysis};

/// `KL(P ‖ Q) = Σ_v P(v) (log P(v) − log Q(v))` in nats, from two rows of log-probabilities.
///
/// A masked word of `P` (log-probability −∞) adds 0, whatever `Q` gives it; a word that only `Q` masks makes the divergence
/// +∞. Finite log-probabilities add a finite number, 0 where the probability under `P` underflows.
///
/// # Panics
/// If the rows have different lengths.
pub fn kl_divergence(p: &[f64], q: &[f64]) -> f64 {
    assert_eq!(p.len(), q.len(), "kl_divergence: both rows must be over the same words");
    let terms = p.iter().zip(q).map(|(&p, &q)| match (p, q) {
        (MASKED, _) => 0.0,
        // Also where the probability underflows: 0 · ∞ would be NaN.
        (_, MASKED) => f64::INFINITY,
        _ => p.exp() * (p - q),
    });
    terms.sum()
}

/// Expected divergence between the next-word distributions of two different contexts,
///
/// ```text
/// E KL = mean over i ≠ j of KL(P_i ‖ P_j)
/// ```
///
/// in nats (Yang et al., ICLR 2018, table 11): how much a model's prediction depends on the context.
///
/// Exact for any number of contexts, in one pass, with three rows of memory. The sum over all pairs separates,
///
/// ```text
/// Σ_ij KL(P_i ‖ P_j) = T Σ_i Σ_v P_i(v) a_i(v) − Σ_v (Σ_i P_i(v)) (Σ_j a_j(v)),   a_i = log P_i − log P_1
/// ```
///
/// so there is nothing to sample. Subtracting the first row changes nothing in exact arithmetic; it keeps the two sums
/// small where the distributions are alike. Over all `T²` pairs, those of a context with itself (0) included, the mean is
/// `(T − 1)/T` of this one.
///
/// Words that all contexts mask are left out. If contexts mask different words, some pair has an infinite divergence and
/// the mean is +∞.
///
/// # Example
/// ```
/// use highrank::analysis::{PairwiseKl, RowAnalysis, kl_divergence};
///
/// let rows = [[0.5, 0.5], [0.25, 0.75], [0.9, 0.1]].map(|row| row.map(f64::ln));
/// let mut divergence = PairwiseKl::new(2);
/// for row in &rows {
///     divergence.add_rows(row)?;
/// }
/// let pairs = rows.iter().flat_map(|p| rows.iter().map(move |q| kl_divergence(p, q)));
/// assert!((divergence.finish()? - pairs.sum::<f64>() / 6.0).abs() < 1e-12);
/// # Ok::<(), highrank::analysis::AnalysisError>(())
/// ```
#[derive(Debug, Clone)]
pub struct PairwiseKl {
    rows: usize,
    /// `log P_1`.
    first: Vec<f64>,
    /// `Σ_i P_i(v)`.
    probabilities: Vec<f64>,
    /// `Σ_i a_i(v)`.
    shifted: Vec<f64>,
    /// `Σ_i Σ_v P_i(v) a_i(v)`.
    own: f64,
    /// Whether some rows mask other words than the first.
    infinite: bool,
}

impl PairwiseKl {
    /// For distributions over `columns` words.
    pub fn new(columns: usize) -> Self {
        let zeros = vec![0.0; columns];
        Self {
            rows: 0,
            first: zeros.clone(),
            probabilities: zeros.clone(),
            shifted: zeros,
            own: 0.0,
            infinite: false,
        }
    }

    /// Mean over the `T (T − 1)` ordered pairs of different contexts, in nats.
    ///
    /// # Errors
    /// With fewer than two contexts.
    pub fn finish(&self) -> Result<f64, AnalysisError> {
        let rows = rows::at_least("a divergence between contexts", self.rows, 2)?;
        if self.infinite {
            return Ok(f64::INFINITY);
        }
        let cross: f64 = self.probabilities.iter().zip(&self.shifted).map(|(p, a)| p * a).sum();
        Ok((rows * self.own - cross) / (rows * (rows - 1.0)))
    }
}

impl RowAnalysis for PairwiseKl {
    fn columns(&self) -> usize {
        self.first.len()
    }

    fn add_rows(&mut self, values: &[f64]) -> Result<(), AnalysisError> {
        let columns = self.columns();
        let count = rows::check(rows::MATRIX, values, columns, self.rows)?;
        if self.rows == 0 {
            self.first.copy_from_slice(&values[..columns]);
        }
        self.rows += count;
        for row in values.chunks_exact(columns) {
            let sums = self.probabilities.iter_mut().zip(&mut self.shifted);
            for ((log_prob, first), (probabilities, shifted)) in row.iter().zip(&self.first).zip(sums) {
                if (*log_prob, *first) == (MASKED, MASKED) {
                    continue;
                }
                let (probability, a) = (log_prob.exp(), log_prob - first);
                self.infinite |= a.is_infinite();
                *probabilities += probability;
                *shifted += a;
                self.own += probability * a;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Log-probabilities whose logits reach `scale`, from the index alone.
    fn log_probs(rows: usize, columns: usize, scale: f64) -> Vec<f64> {
        let logits: Vec<f64> =
            (0..rows * columns).map(|i| scale * (((i * 7919) % 1009) as f64 / 504.0 - 1.0)).collect();
        let normalise = |row: &[f64]| {
            let max = row.iter().fold(f64::NEG_INFINITY, |a: f64, b| a.max(*b));
            let lse = max + row.iter().map(|x| (x - max).exp()).sum::<f64>().ln();
            row.iter().map(|x| x - lse).collect::<Vec<_>>()
        };
        logits.chunks(columns).flat_map(normalise).collect()
    }

    #[test]
    fn the_separated_sum_is_the_sum_over_pairs() {
        for scale in [1e-6, 1.0, 30.0, 2000.0] {
            let (rows, columns) = (23, 17);
            let values = log_probs(rows, columns, scale);
            let mut streamed = PairwiseKl::new(columns);
            for block in values.chunks(5 * columns) {
                streamed.add_rows(block).unwrap();
            }
            let pairs = values
                .chunks(columns)
                .flat_map(|p| values.chunks(columns).map(move |q| kl_divergence(p, q)))
                .sum::<f64>();
            let want = pairs / (rows * (rows - 1)) as f64;
            let got = streamed.finish().unwrap();
            // Differences of logits of size `scale` are rounded to ε·scale each.
            assert!((got - want).abs() < 1e-13 * (want + scale), "scale {scale}: {got} against {want}");
        }
    }

    #[test]
    fn equal_rows_have_no_divergence() {
        let row = log_probs(1, 50, 5.0);
        let mut divergence = PairwiseKl::new(50);
        (0..9).for_each(|_| divergence.add_rows(&row).unwrap());
        assert_eq!(divergence.finish().unwrap(), 0.0);
    }

    #[test]
    fn too_few_and_bad_rows_are_refused() {
        let mut divergence = PairwiseKl::new(2);
        let too_few =
            |rows| format!("too few contexts for a divergence between contexts: {rows}, expected at least 2");
        assert_eq!(divergence.finish().unwrap_err().to_string(), too_few(0));
        divergence.add_rows(&[0.5f64.ln(); 2]).unwrap();
        assert_eq!(divergence.finish().unwrap_err().to_string(), too_few(1));
        let error = divergence.add_rows(&[0.0, f64::NAN]).unwrap_err().to_string();
        let want = "row 1, column 1 of the matrix is NaN, but a log-probability must be finite, or -inf for a masked word";
        assert_eq!(error, want);
        let error = divergence.add_rows(&[-1.0, -1.0, MASKED, MASKED]).unwrap_err().to_string();
        let want = "row 2 of the matrix is -inf throughout, but a distribution needs at least one word that is not masked";
        assert_eq!(error, want);
        assert_eq!(divergence.rows, 1);
    }

    #[test]
    fn impossible_words_add_nothing_and_missing_ones_infinity() {
        let (half, certain) = ([0.5f64.ln(); 2], [0.0, MASKED]);
        assert_eq!(kl_divergence(&certain, &half), 2f64.ln());
        assert_eq!(kl_divergence(&half, &certain), f64::INFINITY);
        assert_eq!(kl_divergence(&certain, &certain), 0.0);
        // e^-800 underflows.
        assert_eq!(kl_divergence(&[0.0, -800.0], &certain), f64::INFINITY);
        assert_eq!(kl_divergence(&[0.0, -800.0], &[0.0, -900.0]), 0.0);
    }

    #[test]
    fn contexts_that_mask_different_words_are_infinitely_far_apart() {
        let (half, certain) = ([0.5f64.ln(); 2], [0.0, MASKED]);
        for rows in [[half, certain], [certain, half]] {
            let mut divergence = PairwiseKl::new(2);
            divergence.add_rows(&rows.concat()).unwrap();
            assert_eq!(divergence.finish().unwrap(), f64::INFINITY);
        }
    }
}
