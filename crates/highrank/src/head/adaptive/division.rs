//! How the targets of a loss divide among the head cluster and the tails.

use std::ops::Range;

use burn::tensor::{DType, Device, Tensor, TensorData};

use super::target::{Target, Words};
use crate::head::clusters::Clusters;
use crate::loss::TargetDistribution;

/// The target of a part where a token has no share in it.
pub(super) const IGNORED: i64 = -1;

/// What the head cluster and each tail are scored against.
pub(super) struct Division {
    pub(super) head: PartTargets,
    pub(super) tails: Vec<PartTargets>,
}

/// What all tokens are scored against in a part.
pub(super) struct PartTargets {
    /// Among the words of the part; [`IGNORED`] where a token has no share in it.
    pub(super) words: Vec<i64>,
    /// What the others are scored against in place of their words.
    pub(super) distribution: Option<TargetDistribution>,
    /// `Q_i` of each token, `[N]`; `None` stands for 1 where the token has a share.
    pub(super) share: Option<Tensor<1>>,
}

impl PartTargets {
    /// One word a token, by what becomes of the words of the tokens that count.
    pub(super) fn of_words(words: &[Option<usize>], part: impl Fn(usize) -> Option<usize>) -> Self {
        let words = words.iter().map(|word| word.and_then(&part).map_or(IGNORED, |word| word as i64));
        Self { words: words.collect(), distribution: None, share: None }
    }

    /// `Q_i` of all tokens, `[N]`.
    pub(super) fn shares(&self, on: (&Device, DType)) -> Tensor<1> {
        let has_one = self.words.iter().map(|word| f64::from(u8::from(*word != IGNORED)));
        self.share.clone().unwrap_or_else(|| column(has_one.collect(), on))
    }
}

impl Division {
    /// Of one word a token: a tail has the tokens of its own words.
    ///
    /// - words: none where a token does not count
    pub(super) fn of_words(clusters: &Clusters, words: &[Option<usize>]) -> Self {
        let tails = clusters.ranges().map(|range| PartTargets::of_words(words, |word| place(word, &range)));
        Self { tails: tails.collect(), head: head_words(clusters, words) }
    }

    /// Of what each token is scored against.
    ///
    /// - targets: nothing where a token does not count
    /// - unmasked: of all words
    pub(super) fn of_targets(
        clusters: &Clusters,
        words: &[Option<usize>],
        targets: &[Target],
        unmasked: &[bool],
        on: (&Device, DType),
    ) -> Self {
        let shortlist = clusters.shortlist();
        let mut in_head: Vec<Target> = targets.iter().map(|target| target.words(&(0..shortlist))).collect();
        let tails = clusters.ranges().enumerate().map(|(cluster, range)| {
            let own = Words::new(&unmasked[range.clone()]);
            let (mut words, mut masses, mut rows) = (vec![], vec![], vec![]);
            for (in_head, target) in in_head.iter_mut().zip(targets) {
                let part = target.words(&range);
                let mass = part.mass(&own);
                in_head.list(shortlist + cluster, mass);
                words.push(if mass > 0.0 { 0 } else { IGNORED });
                rows.push(if mass > 0.0 { part.over(mass) } else { Target::nothing() });
                masses.push(mass);
            }
            let distribution = Some(Target::teacher(&rows, &own, on));
            PartTargets { words, distribution, share: Some(column(masses, on)) }
        });
        let tails = tails.collect();
        let teacher = Target::teacher(&in_head, &Words::new(&unmasked[..shortlist]), on);
        Self { head: PartTargets { distribution: Some(teacher), ..head_words(clusters, words) }, tails }
    }

    /// Of distributions over all words, `[N, V]`.
    ///
    /// - words: none where a token does not count
    /// - head_rows: of the decoder of the head cluster
    pub(super) fn of_distributions(
        clusters: &Clusters,
        words: &[Option<usize>],
        distributions: Tensor<2>,
        head_rows: usize,
    ) -> Self {
        let [tokens, _] = distributions.dims();
        // With zeros for the padding.
        let dense = |rows: Tensor<2>, width: usize| {
            let rows = match width - rows.dims()[1] {
                0 => rows,
                padding => rows.pad([(0, padding)], 0.0),
            };
            Some(TargetDistribution::Dense(rows.into()))
        };
        let mut in_head = vec![distributions.clone().narrow(1, 0, clusters.shortlist())];
        let tails = clusters.ranges().zip(&clusters.tails).map(|(range, tail)| {
            let part = distributions.clone().narrow(1, range.start, range.len());
            let mass = part.clone().sum_dim(1);
            in_head.push(mass.clone());
            let part = part / mass.clone().clamp_min(f64::from(f32::MIN_POSITIVE));
            PartTargets {
                distribution: dense(part, tail.decoder.rows()),
                // Rounding of a caller's may have made it less than 0.
                share: Some(mass.reshape([tokens]).clamp_min(0.0)),
                ..PartTargets::of_words(words, |_| Some(0))
            }
        });
        let tails = tails.collect();
        let distribution = dense(Tensor::cat(in_head, 1), head_rows);
        Self { head: PartTargets { distribution, ..head_words(clusters, words) }, tails }
    }
}

/// The word of the head cluster that stands for each target.
fn head_words(clusters: &Clusters, words: &[Option<usize>]) -> PartTargets {
    PartTargets::of_words(words, |word| Some(clusters.head_word(word)))
}

/// A word's place in a range of words, if it is in it.
pub(super) fn place(word: usize, range: &Range<usize>) -> Option<usize> {
    range.contains(&word).then(|| word - range.start)
}

fn column(values: Vec<f64>, on: (&Device, DType)) -> Tensor<1> {
    let count = values.len();
    Tensor::from_data(TensorData::new(values, [count]), on)
}
