//! Which words are in which cluster, and how wide the clusters are.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::error::{HeadError, in_range};

/// The clusters of an [adaptive softmax](crate::HeadConfig::with_adaptive).
///
/// ```
/// use highrank::{AdaptiveConfig, HeadConfig};
///
/// // 4,000 words and 2 clusters in the head cluster, tails of 16,000 and 80,000 words.
/// let adaptive = AdaptiveConfig::new(vec![4_000, 20_000]);
/// let tails: Vec<_> = adaptive.tails(512, 100_000).collect();
/// assert_eq!(tails, [(4_000..20_000, 128), (20_000..100_000, 32)]);
/// assert!(HeadConfig::softmax(512, 100_000).with_adaptive(adaptive).validate().is_ok());
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdaptiveConfig {
    /// The first word of each cluster, ascending, between 1 and `V − 1`. The words below the first are the shortlist.
    pub cutoffs: Vec<usize>,
    /// What the width of a tail is divided by from cluster to cluster, a finite number of at least 1. 4 by default.
    #[serde(default = "division")]
    pub division: f64,
}

fn division() -> f64 {
    AdaptiveConfig::DIVISION
}

impl AdaptiveConfig {
    /// The default of [`division`](Self::division), that of the paper and of PyTorch.
    pub const DIVISION: f64 = 4.0;

    /// Clusters that begin at these words, all else by default.
    pub fn new(cutoffs: Vec<usize>) -> Self {
        Self { cutoffs, division: Self::DIVISION }
    }

    /// Cutoffs for a vocabulary of which nothing is known but its size: a 25th and a fifth of it, at least one word each. The
    /// paper finds good ones by the words' frequencies; these are near those where frequencies fall as `1/rank`.
    ///
    /// ```
    /// use highrank::AdaptiveConfig;
    ///
    /// assert_eq!(AdaptiveConfig::for_vocab(100_000).cutoffs, [4_000, 20_000]);
    /// assert_eq!(AdaptiveConfig::for_vocab(2).cutoffs, [1]);
    /// ```
    pub fn for_vocab(vocab: usize) -> Self {
        let first = (vocab / 25).max(1);
        let cutoffs = [first, (vocab / 5).max(first + 1)];
        Self::new(cutoffs.into_iter().filter(|cutoff| *cutoff < vocab).collect())
    }

    /// Checks the cutoffs and the division for a vocabulary.
    pub(in crate::head) fn validate(&self, vocab: usize) -> Result<(), HeadError> {
        let ascend = self.cutoffs.windows(2).all(|pair| pair[0] < pair[1]);
        let inside = self.cutoffs.iter().all(|cutoff| (1..vocab).contains(cutoff));
        if self.cutoffs.is_empty() || !ascend || !inside {
            return Err(HeadError::Cutoffs { cutoffs: self.cutoffs.clone(), vocab });
        }
        let expected = "a finite number of at least 1";
        in_range("the division of the tails' widths", self.division, expected, 1.0..=f64::MAX)
    }

    /// The words of each cluster with `d_i`, the width of its tail for hidden states of width `H`: `⌊H / division^i⌋`, at least 1,
    /// where the first cluster is number 1. A tail has `d_i (H + words of cluster i)` parameters.
    pub fn tails(&self, d_hidden: usize, vocab: usize) -> impl Iterator<Item = (Range<usize>, usize)> {
        ranges(&self.cutoffs, vocab).zip(1..).map(move |(words, i)| {
            let width = d_hidden as f64 / self.division.powi(i);
            (words, (width as usize).max(1))
        })
    }
}

/// The words from each cutoff to the next, the last up to `V`.
pub(super) fn ranges(cutoffs: &[usize], vocab: usize) -> impl Iterator<Item = Range<usize>> {
    let ends = cutoffs.iter().skip(1).copied().chain([vocab]);
    cutoffs.iter().copied().zip(ends).map(|(start, end)| start..end)
}
