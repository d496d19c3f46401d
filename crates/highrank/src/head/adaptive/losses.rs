//! The loss of an adaptive head: that of the head cluster for all tokens, and of each tail for those that have a share in it.

use burn::tensor::{Bool, DType, IndexingUpdateOp, Int, Tensor};

use super::clustered::{Clustered, TailHead, in_a_row, numbers, of_tokens};
use super::division::{Division, IGNORED, PartTargets};
use super::target::{Target, Words};
use crate::error::HeadError;
use crate::head::bound::{BoundHead, leading, same_shape, with_last};
use crate::likelihood::Shares;
use crate::loss::{Counted, CountedWords, Loss, LossOptions, Reduction};
use crate::ops::wide;

impl Clustered<'_> {
    pub(in crate::head) fn loss_with<const D: usize, const T: usize>(
        &self,
        hidden: Tensor<D>,
        targets: Tensor<T, Int>,
        options: &LossOptions,
    ) -> Result<Loss<T>, HeadError> {
        self.short.validate_hidden(&hidden.dims())?;
        let shape = leading::<D, T>(&hidden.dims())?;
        same_shape("targets", targets.dims(), shape)?;
        let vocab = self.clusters.vocab();
        options.validate(&shape, vocab)?;
        self.short.validate_prior_cv(options)?;
        let device = hidden.device();
        let targets = targets.reshape([shape.iter().product::<usize>()]);
        let counted = CountedWords::read(&targets, options, vocab)?;
        let (head, on) = (self.of_one_loss(&shape, options)?, (&device, self.wide()));
        let division = match options.label_smoothing == 0.0 && options.teacher.is_none() {
            true => Division::of_words(self.clusters, &counted.words, &device),
            false => {
                let unmasked = head.unmasked()?;
                let targets = scored(&counted, options.label_smoothing, &Words::new(&unmasked));
                Division::of_targets(self.clusters, &targets, &unmasked, on)
            }
        };
        let statistics = options.statistics.then(|| {
            let masses = division.masses(counted.words.len(), on);
            let truth = Division::of_words_everywhere(self.clusters, &counted.words, on);
            head.statistics(hidden.clone(), truth, masses, None)
        });
        let statistics = statistics.transpose()?.map(|statistics| statistics.reshape(shape));
        let made =
            head.reduced(hidden, division, counted.weights.clone(), options, || counted.blank(&device))?;
        Ok(Loss { loss: made.loss, prior_cv: made.prior_cv, statistics })
    }

    pub(in crate::head) fn soft_loss_with<const D: usize>(
        &self,
        hidden: Tensor<D>,
        distributions: Tensor<D>,
        options: &LossOptions,
    ) -> Result<Loss<1>, HeadError> {
        let (dims, vocab) = (hidden.dims(), self.clusters.vocab());
        self.short.validate_hidden(&dims)?;
        same_shape("distributions", distributions.dims(), with_last(dims, vocab))?;
        let tokens = dims[..D - 1].iter().product();
        options.validate(&[tokens], vocab)?;
        options.validate_without_words()?;
        self.short.validate_prior_cv(options)?;
        let weights = options.weights_of_tokens(tokens);
        let (mut hidden, mut rows) = (hidden, in_a_row(distributions).cast(self.wide()));
        if let Some(weights) = &weights {
            // What belongs to tokens that do not count may be anything.
            let blank = weights.clone().detach().equal_elem(0.0).reshape([tokens, 1]);
            rows = rows.mask_fill(blank.clone().expand([tokens, vocab]), 0.0);
            let width = dims[D - 1];
            hidden = in_a_row(hidden).mask_fill(blank.expand([tokens, width]), 0.0).reshape(dims);
        }
        let head = self.of_one_loss(&dims[..D - 1], options)?;
        let tail_rows: Vec<usize> = head.tails().iter().map(TailHead::rows).collect();
        let divided = |rows: Tensor<2>| {
            Division::of_distributions(self.clusters, rows, self.short.head.decoder.rows(), &tail_rows)
        };
        let truth = options.statistics.then(|| divided(rows.clone()));
        let division = divided(match options.label_smoothing {
            0.0 => rows,
            epsilon => {
                let unmasked: Vec<f64> =
                    head.unmasked()?.into_iter().map(|x| f64::from(u8::from(x))).collect();
                let level = epsilon / unmasked.iter().sum::<f64>();
                let unmasked = Tensor::<1>::from_data(unmasked.as_slice(), (&rows.device(), rows.dtype()));
                rows * (1.0 - epsilon) + unmasked.reshape([1, vocab]) * level
            }
        });
        let on = (&hidden.device(), self.wide());
        let statistics = truth.map(|truth| {
            head.statistics(hidden.clone(), truth, division.masses(tokens, on), weights.clone())
        });
        let statistics = statistics.transpose()?;
        let made = head.reduced(hidden, division, weights, options, || None)?;
        Ok(Loss { statistics, ..made })
    }

    /// The loss of all parts by the reduction of the options.
    ///
    /// - weights: `[N]`; those of tokens that do not count may be anything
    /// - blank: which tokens do not count; `None` if all do, or their weights are 0
    fn reduced<const D: usize>(
        &self,
        hidden: Tensor<D>,
        division: Division,
        weights: Option<Tensor<1>>,
        options: &LossOptions,
        blank: impl FnOnce() -> Option<Tensor<1, Bool>>,
    ) -> Result<Loss<1>, HeadError> {
        if options.reduction != Reduction::Mean {
            return self.summed(hidden, division, weights, options);
        }
        let on = (&hidden.device(), self.wide());
        let tokens = hidden.dims()[..D - 1].iter().product::<usize>();
        let weights = weights.unwrap_or_else(|| Tensor::ones([tokens], on)).cast(on.1);
        let weights = match blank() {
            Some(blank) => weights.mask_fill(blank, 0.0),
            None => weights,
        };
        let shares = Shares::weighted(weights.clone(), weights);
        let made = self.summed(hidden, division, Some(shares.of_tokens.clone()), options)?;
        Ok(Loss { loss: shares.mean(made.loss), ..made })
    }

    /// The same head at the temperature of a loss, with one latent mask for all that the loss calls.
    fn of_one_loss(&self, leading: &[usize], options: &LossOptions) -> Result<Self, HeadError> {
        let short = self.short.try_at_temperature(self.short.temperature * options.temperature)?;
        let short = if options.statistics { short.with_drawn_mask(leading) } else { short };
        Ok(Self { short, clusters: self.clusters })
    }

    /// Which words are not masked, and whose clusters are not.
    fn unmasked(&self) -> Result<Vec<bool>, HeadError> {
        let (shortlist, tails) = (self.clusters.shortlist(), self.tails());
        let mut unmasked = vec![true; self.clusters.vocab()];
        for (cluster, tail) in tails.iter().enumerate() {
            let words = self.clusters.words_of(cluster);
            let masked = tail.bound()?.masked_rows().into_iter().filter(|row| *row < words.len());
            masked.for_each(|row| unmasked[words.start + row] = false);
        }
        for row in self.short.masked_rows() {
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

    /// The sum of the losses of all parts, or without a reduction that of each token; of the options the z-loss, the penalty of the
    /// priors and the reduction.
    fn summed<const D: usize>(
        &self,
        hidden: Tensor<D>,
        division: Division,
        weights: Option<Tensor<1>>,
        options: &LossOptions,
    ) -> Result<Loss<1>, HeadError> {
        // Sums, which add up whatever the tokens of a tail are.
        let reduction = match options.reduction {
            Reduction::None => Reduction::None,
            Reduction::Mean | Reduction::Sum => Reduction::Sum,
        };
        let of_tail = LossOptions { z_loss: options.z_loss, reduction, ..LossOptions::new() };
        // Priors are those of the head cluster.
        let of_head = LossOptions { prior_cv: options.prior_cv, ..of_tail.clone() };
        let rows = in_a_row(hidden.clone());
        let Loss { mut loss, prior_cv, .. } =
            of_part(&self.short, hidden, division.head, weights.clone(), &of_head)?;
        for (tail, share) in self.tails().iter().zip(division.tails) {
            let (rows, weights) = match &share.tokens {
                None => (rows.clone(), weights.clone()),
                Some(tokens) if tokens.is_empty() => (rows.zeros_like().narrow(0, 0, 1), None),
                Some(tokens) => {
                    let weights = weights.clone().map(|weights| of_tokens(weights, tokens));
                    (of_tokens(rows.clone(), tokens), weights)
                }
            };
            let weights = match (weights, share.mass) {
                (Some(weights), Some(mass)) => Some(weights.cast(mass.dtype()) * mass),
                (weights, mass) => weights.or(mass),
            };
            let added = of_part(&tail.bound()?, tail.contexts(rows), share.targets, weights, &of_tail)?.loss;
            loss = match (reduction, &share.tokens) {
                (Reduction::None, Some(tokens)) if !tokens.is_empty() => {
                    let numbers = numbers(tokens, &loss.device());
                    loss.select_assign(0, numbers, added, IndexingUpdateOp::Add)
                }
                _ => loss + added,
            };
        }
        Ok(Loss { loss, prior_cv, statistics: None })
    }

    /// The type of losses.
    fn wide(&self) -> DType {
        wide(self.short.weight.dtype())
    }
}

/// The loss of a part by targets of its own.
///
/// - weights: `[N]`
pub(super) fn of_part<const D: usize>(
    part: &BoundHead<'_>,
    hidden: Tensor<D>,
    targets: PartTargets,
    weights: Option<Tensor<1>>,
    options: &LossOptions,
) -> Result<Loss<1>, HeadError> {
    let tokens = hidden.dims()[..D - 1].iter().product();
    let mut options = LossOptions { token_weights: weights.map(Into::into), ..options.clone() };
    let counted = match targets {
        PartTargets::Words(words, teacher) => {
            options = LossOptions {
                teacher: teacher.map(|teacher| *teacher),
                ignore_index: Some(IGNORED),
                ..options
            };
            Counted::words(words, &options, part.head.decoder.vocab, || part.bias())?
        }
        PartTargets::Distributions(rows) => Counted::distributions(rows, &options)?,
    };
    Ok(part.scored(hidden, counted, &options, [tokens]))
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
