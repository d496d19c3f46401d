//! The loss of an adaptive head: that of the head cluster for all tokens, and of each tail for those that have a share in it.

use burn::tensor::{DType, Device, IndexingUpdateOp, Int, Tensor};

use super::clustered::{Clustered, TailHead, in_a_row, numbers, of_tokens};
use super::division::{Division, IGNORED, PartTargets};
use super::target::{Target, Words};
use crate::error::HeadError;
use crate::head::output::OutputHead;
use crate::likelihood::Shares;
use crate::loss::{CountedWords, Loss, LossOptions, Reduction, TargetDistribution, of_counted};
use crate::ops::{assert_constant, wide};

impl Clustered<'_> {
    /// The loss of checked targets and options.
    pub(in crate::head) fn loss_with<const D: usize, const T: usize>(
        &self,
        hidden: Tensor<D>,
        targets: Tensor<T, Int>,
        options: &LossOptions,
    ) -> Result<Loss<T>, HeadError> {
        let (shape, device) = (targets.dims(), hidden.device());
        let tokens = shape.iter().product::<usize>();
        let counted = CountedWords::read(&targets.reshape([tokens]), options, self.clusters.vocab())?;
        let (head, on) = (self.of_one_loss(&shape, options), (&device, self.wide()));
        let division = head.divided(&counted, options, on)?;
        let blank = counted.blank(&device);
        // A distribution sends all tokens through all tails, those that do not count too.
        let hidden = match (&options.distribution, &blank) {
            (Some(TargetDistribution::Dense(_)), Some(blank)) => {
                let (dims, rows) = (hidden.dims(), in_a_row(hidden));
                let blank = blank.clone().reshape([tokens, 1]).expand(rows.dims());
                rows.mask_fill(blank, 0.0).reshape(dims)
            }
            _ => hidden,
        };
        let statistics = options.statistics.then(|| {
            let masses = division.masses(tokens, on);
            let truth = Division::of_words_everywhere(self.clusters, &counted.words, on);
            head.statistics(hidden.clone(), truth, masses)
        });
        let statistics = statistics.transpose()?.map(|statistics| statistics.reshape(shape));

        let weights = counted.weights.clone().unwrap_or_else(|| Tensor::ones([tokens], on)).cast(on.1);
        let weights = match blank {
            Some(blank) => weights.mask_fill(blank, 0.0),
            None => weights,
        };
        let shares = match options.reduction {
            Reduction::Mean => Shares::weighted(weights.clone(), weights.clone()),
            Reduction::Sum => Shares::sum(weights),
        };
        let made = head.summed(hidden, division, shares.of_tokens.clone(), options)?;
        let per_token = made.per_token.map(|losses| shares.undone(losses).reshape(shape));
        Ok(Loss { value: shares.finish(made.value), per_token, prior_cv: made.prior_cv, statistics })
    }

    /// How what the tokens are scored against divides among the parts.
    fn divided(
        &self,
        counted: &CountedWords,
        options: &LossOptions,
        on: (&Device, DType),
    ) -> Result<Division, HeadError> {
        let (vocab, smoothing) = (self.clusters.vocab(), options.label_smoothing);
        if let Some(TargetDistribution::Dense(distributions)) = &options.distribution {
            let rows = distributions.clone().reshape([counted.words.len(), vocab]).tensor::<2>();
            assert_constant(rows.is_tracked());
            let mut rows = rows.cast(on.1);
            if smoothing != 0.0 {
                let unmasked: Vec<f64> =
                    self.unmasked()?.into_iter().map(|unmasked| f64::from(u8::from(unmasked))).collect();
                let level = smoothing / unmasked.iter().sum::<f64>();
                let unmasked = Tensor::<1>::from_data(unmasked.as_slice(), on);
                rows = rows * (1.0 - smoothing) + unmasked.reshape([1, vocab]) * level;
            }
            let tail_rows: Vec<usize> = self.tails().iter().map(TailHead::rows).collect();
            let head_rows = self.short.decoder.rows();
            return Ok(Division::of_distributions(
                self.clusters,
                &counted.words,
                rows,
                head_rows,
                &tail_rows,
            ));
        }
        if smoothing == 0.0 && counted.teacher.is_none() {
            return Ok(Division::of_words(self.clusters, &counted.words, on.0));
        }
        let unmasked = self.unmasked()?;
        let targets = scored(counted, smoothing, &Words::new(&unmasked));
        Ok(Division::of_targets(self.clusters, &targets, &unmasked, on))
    }

    /// The same head with one latent mask for all that a loss calls.
    fn of_one_loss(&self, leading: &[usize], options: &LossOptions) -> Self {
        let short = match options.statistics {
            true => self.short.with_drawn_mask(leading),
            false => self.short.clone(),
        };
        Self { short, clusters: self.clusters }
    }

    /// Which words are not masked, and whose clusters are not.
    fn unmasked(&self) -> Result<Vec<bool>, HeadError> {
        let (shortlist, tails) = (self.clusters.shortlist(), self.tails());
        let mut unmasked = vec![true; self.clusters.vocab()];
        for (cluster, tail) in tails.iter().enumerate() {
            let words = self.clusters.words_of(cluster);
            let masked = tail.head.masked_rows()?.into_iter().filter(|row| *row < words.len());
            masked.for_each(|row| unmasked[words.start + row] = false);
        }
        for row in self.short.masked_rows()? {
            match row.checked_sub(shortlist) {
                None => unmasked[row] = false,
                Some(cluster) if cluster < tails.len() => {
                    unmasked[self.clusters.words_of(cluster)].fill(false);
                }
                // Padding.
                Some(_) => {}
            }
        }
        Ok(unmasked)
    }

    /// The sum of the losses of all parts and, if asked for, that of each token; of the options the z-loss, the penalty of the
    /// priors and whether tokens are asked for.
    ///
    /// - weights: what each token is multiplied with, `[N]`
    fn summed<const D: usize>(
        &self,
        hidden: Tensor<D>,
        division: Division,
        weights: Tensor<1>,
        options: &LossOptions,
    ) -> Result<Loss<1>, HeadError> {
        // Sums, which add up whatever the tokens of a tail are.
        let of_tail = LossOptions {
            z_loss: options.z_loss,
            reduction: Reduction::Sum,
            per_token: options.per_token,
            ..LossOptions::new()
        };
        // Priors are those of the head cluster.
        let of_head = LossOptions { prior_cv: options.prior_cv, ..of_tail.clone() };
        let rows = in_a_row(hidden.clone());
        let mut made = of_part(&self.short, hidden, division.head, Some(weights.clone()), &of_head)?;
        for (tail, share) in self.tails().iter().zip(division.tails) {
            let (rows, weights) = match &share.tokens {
                None => (rows.clone(), Some(weights.clone())),
                Some(tokens) if tokens.is_empty() => (rows.zeros_like().narrow(0, 0, 1), None),
                Some(tokens) => (of_tokens(rows.clone(), tokens), Some(of_tokens(weights.clone(), tokens))),
            };
            let weights = match (weights, share.mass) {
                (Some(weights), Some(mass)) => Some(weights.cast(mass.dtype()) * mass),
                (weights, _) => weights,
            };
            let added = of_part(&tail.head, tail.contexts(rows), share.targets, weights, &of_tail)?;
            made.value = made.value + added.value;
            made.per_token = match (made.per_token, added.per_token) {
                (Some(all), Some(added)) => Some(match &share.tokens {
                    None => all + added,
                    Some(tokens) if tokens.is_empty() => all + added,
                    Some(tokens) => {
                        let numbers = numbers(tokens, &all.device());
                        all.select_assign(0, numbers, added, IndexingUpdateOp::Add)
                    }
                }),
                _ => None,
            };
        }
        Ok(made)
    }

    /// The type of losses.
    fn wide(&self) -> DType {
        self.short.decoder.weight.as_ref().map_or(DType::F32, |weight| wide(weight.val().dtype()))
    }
}

/// The loss of a part by targets of its own.
///
/// - weights: `[N]`
pub(super) fn of_part<const D: usize>(
    part: &OutputHead,
    hidden: Tensor<D>,
    targets: PartTargets,
    weights: Option<Tensor<1>>,
    options: &LossOptions,
) -> Result<Loss<1>, HeadError> {
    let options = LossOptions {
        token_weights: weights.map(Into::into),
        distribution: targets.distribution,
        ignored: vec![IGNORED],
        ..options.clone()
    };
    of_counted(
        targets.words,
        &options,
        part.decoder.vocab,
        || part.bias(),
        |rows| part.native(rows.of_hidden(hidden)),
    )
}

/// What each token that counts is scored against.
fn scored(counted: &CountedWords, smoothing: f64, all: &Words<'_>) -> Vec<Option<Target>> {
    let of_word = |(token, word): (usize, &Option<usize>)| {
        let word = (*word)?;
        Some(match &counted.teacher {
            Some(teacher) => Target::new(teacher.row(token), smoothing, all),
            None => Target::new([(word, 1.0)].into_iter(), smoothing, all),
        })
    };
    counted.words.iter().enumerate().map(of_word).collect()
}
