//! How the targets of a loss divide among the head cluster and the tails.

use burn::tensor::{DType, Device, IndexingUpdateOp, Int, Tensor, TensorData};

use super::clustered::numbers;
use super::target::{Target, Words};
use crate::head::clusters::Clusters;
use crate::loss::TargetDistribution;

/// The target of a part where a token does not count.
pub(super) const IGNORED: i64 = -1;

/// What the head cluster and each tail are scored against.
pub(super) struct Division {
    /// Of all tokens.
    pub(super) head: PartTargets,
    pub(super) tails: Vec<Share>,
}

/// What of the targets falls to a tail.
pub(super) struct Share {
    /// The tokens of which anything does; `None` stands for all. Of none the targets are one token's that does not count.
    pub(super) tokens: Option<Vec<u32>>,
    /// `Q_i` of each of these tokens; `None` stands for 1.
    pub(super) mass: Option<Tensor<1>>,
    pub(super) targets: PartTargets,
}

/// Targets among the words of a part.
pub(super) struct PartTargets {
    /// A word a token, [`IGNORED`] where the token does not count.
    pub(super) words: Tensor<1, Int>,
    /// What tokens are scored against in its place.
    pub(super) distribution: Option<TargetDistribution>,
}

impl Division {
    /// `Q_i` of all tokens, `[N]` for each tail.
    pub(super) fn masses(&self, tokens: usize, on: (&Device, DType)) -> Vec<Tensor<1>> {
        self.tails.iter().map(|share| share.mass_of_all(tokens, on)).collect()
    }

    /// Of one word a token: a tail has the tokens of its own words.
    ///
    /// - words: none where a token does not count
    pub(super) fn of_words(clusters: &Clusters, words: &[Option<usize>], device: &Device) -> Self {
        let tails = (0..clusters.tails.len()).map(|cluster| {
            let first = clusters.words_of(cluster).start;
            let own = |word: &usize| clusters.cluster_of(*word) == Some(cluster);
            let own = words.iter().enumerate().filter_map(|(token, word)| Some((token, word.filter(own)?)));
            let (tokens, targets): (Vec<_>, Vec<_>) =
                own.map(|(token, word)| (token as u32, (word - first) as i64)).unzip();
            match tokens.is_empty() {
                true => Share::blank(device),
                false => {
                    Share { tokens: Some(tokens), mass: None, targets: PartTargets::words(targets, device) }
                }
            }
        });
        let tails = tails.collect();
        Self { head: head_words(clusters, words, device), tails }
    }

    /// Of one word a token, with all tokens in every tail: the mass of a tail is 1 for the tokens of its own words, and 0 for others.
    pub(super) fn of_words_everywhere(
        clusters: &Clusters,
        words: &[Option<usize>],
        (device, dtype): (&Device, DType),
    ) -> Self {
        let tails = (0..clusters.tails.len()).map(|cluster| {
            let range = clusters.words_of(cluster);
            let own = |word: usize| range.contains(&word).then(|| (word - range.start) as i64);
            let mass = words.iter().map(|word| f64::from(u8::from(word.and_then(own).is_some())));
            let targets = words.iter().map(|word| word.map_or(IGNORED, |word| own(word).unwrap_or(0)));
            Share {
                tokens: None,
                mass: Some(column(mass.collect(), (device, dtype))),
                targets: PartTargets::words(targets.collect(), device),
            }
        });
        let tails = tails.collect();
        Self { head: head_words(clusters, words, device), tails }
    }

    /// Of what each token is scored against.
    ///
    /// - targets: none where a token does not count
    /// - unmasked: of all words
    pub(super) fn of_targets(
        clusters: &Clusters,
        targets: &[Option<Target>],
        unmasked: &[bool],
        on: (&Device, DType),
    ) -> Self {
        let shortlist = clusters.shortlist();
        let within_shortlist = |target: &Target| target.words(&(0..shortlist));
        let mut in_head: Vec<Target> = targets
            .iter()
            .map(|target| target.as_ref().map_or_else(Target::nothing, within_shortlist))
            .collect();
        let tails = (0..clusters.tails.len()).map(|cluster| {
            let words = clusters.words_of(cluster);
            let own = Words::new(&unmasked[words.clone()]);
            let (mut tokens, mut masses, mut rows) = (vec![], vec![], vec![]);
            for (token, target) in targets.iter().enumerate() {
                let Some(target) = target else {
                    in_head[token].list(shortlist + cluster, 0.0);
                    continue;
                };
                let part = target.words(&words);
                let mass = part.mass(&own);
                in_head[token].list(shortlist + cluster, mass);
                if mass > 0.0 {
                    tokens.push(token as u32);
                    rows.push(part.over(mass));
                    masses.push(mass);
                }
            }
            if tokens.is_empty() {
                return Share::blank(on.0);
            }
            let words = vec![0; rows.len()];
            let teacher = Target::teacher(&rows, &own, on);
            Share {
                mass: Some(column(masses, on)),
                targets: PartTargets { words: integers(words, on.0), distribution: teacher },
                tokens: Some(tokens),
            }
        });
        let tails = tails.collect();
        let words = targets.iter().map(|target| if target.is_some() { 0 } else { IGNORED }).collect();
        let teacher = Target::teacher(&in_head, &Words::new(&unmasked[..shortlist]), on);
        Self { head: PartTargets { words: integers(words, on.0), distribution: teacher }, tails }
    }

    /// Of distributions over all words, `[N, V]`.
    ///
    /// - words: none where a token does not count
    /// - rows: of the decoders of the head cluster and of each tail
    pub(super) fn of_distributions(
        clusters: &Clusters,
        words: &[Option<usize>],
        distributions: Tensor<2>,
        head_rows: usize,
        tail_rows: &[usize],
    ) -> Self {
        let [tokens, _] = distributions.dims();
        let device = distributions.device();
        let targets = |rows: Tensor<2>, width: usize| {
            let words = words.iter().map(|word| word.map_or(IGNORED, |_| 0)).collect();
            let rows = widened(rows, width).into();
            PartTargets {
                words: integers(words, &device),
                distribution: Some(TargetDistribution::Dense(rows)),
            }
        };
        let mut in_head = vec![distributions.clone().narrow(1, 0, clusters.shortlist())];
        let tails = tail_rows.iter().enumerate().map(|(cluster, rows)| {
            let words = clusters.words_of(cluster);
            let part = distributions.clone().narrow(1, words.start, words.len());
            let mass = part.clone().sum_dim(1);
            in_head.push(mass.clone());
            let part = part / mass.clone().clamp_min(f64::from(f32::MIN_POSITIVE));
            Share {
                tokens: None,
                // Rounding of a caller's may have made it less than 0.
                mass: Some(mass.reshape([tokens]).clamp_min(0.0)),
                targets: targets(part, *rows),
            }
        });
        let tails = tails.collect();
        Self { head: targets(Tensor::cat(in_head, 1), head_rows), tails }
    }
}

impl Share {
    /// Of a tail that no token has a share in: its targets are one that does not count, so every parameter has a gradient, of 0.
    fn blank(device: &Device) -> Self {
        Self { tokens: Some(vec![]), mass: None, targets: PartTargets::words(vec![IGNORED], device) }
    }

    /// `Q_i` of all tokens, `[N]`.
    fn mass_of_all(&self, count: usize, (device, dtype): (&Device, DType)) -> Tensor<1> {
        let ones = |count: usize| Tensor::ones([count], (device, dtype));
        match (&self.tokens, &self.mass) {
            (None, mass) => mass.clone().unwrap_or_else(|| ones(count)),
            (Some(tokens), _) if tokens.is_empty() => Tensor::zeros([count], (device, dtype)),
            (Some(tokens), mass) => {
                let mass = mass.clone().unwrap_or_else(|| ones(tokens.len()));
                let of_all = Tensor::zeros([count], (device, dtype));
                of_all.select_assign(0, numbers(tokens, device), mass, IndexingUpdateOp::Add)
            }
        }
    }
}

impl PartTargets {
    fn words(words: Vec<i64>, device: &Device) -> Self {
        Self { words: integers(words, device), distribution: None }
    }
}

/// The word of the head cluster that stands for each target.
fn head_words(clusters: &Clusters, words: &[Option<usize>], device: &Device) -> PartTargets {
    let words = words.iter().map(|word| word.map_or(IGNORED, |word| clusters.head_word(word) as i64));
    PartTargets::words(words.collect(), device)
}

fn integers(words: Vec<i64>, device: &Device) -> Tensor<1, Int> {
    Tensor::from_data(words.as_slice(), device)
}

fn column(values: Vec<f64>, on: (&Device, DType)) -> Tensor<1> {
    let count = values.len();
    Tensor::from_data(TensorData::new(values, [count]), on)
}

/// Rows with zeros up to a width.
fn widened(rows: Tensor<2>, width: usize) -> Tensor<2> {
    let [count, words] = rows.dims();
    match width - words {
        0 => rows,
        padding => {
            let zeros = Tensor::zeros([count, padding], (&rows.device(), rows.dtype()));
            Tensor::cat(vec![rows, zeros], 1)
        }
    }
}
