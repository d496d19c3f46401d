//! The loss of an adaptive head: that of the head cluster for all tokens, and of each tail for its own.

use burn::tensor::{IndexingUpdateOp, Int, Tensor};
use highrank_kernels::Floats;

use super::clustered::{Clustered, in_a_row, numbers, of_tokens};
use crate::error::HeadError;
use crate::head::bound::{leading, same_shape};
use crate::loss::{CountedWords, Loss, LossOptions, Reduction};

/// The target of a cluster where a token does not count.
const IGNORED: i64 = -1;

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
        options.validate(&shape, self.clusters.vocab())?;
        refuse(options)?;
        let device = targets.device();
        let tokens = shape.iter().product::<usize>();
        let CountedWords { words, weights } =
            CountedWords::read(&targets.reshape([tokens]), options, self.clusters.vocab())?;
        // Sums, which add up whatever the tokens of a cluster are.
        let reduction = match options.reduction {
            Reduction::None => Reduction::None,
            Reduction::Mean | Reduction::Sum => Reduction::Sum,
        };
        let of_cluster = |weights: Option<Floats>| LossOptions {
            ignore_index: Some(IGNORED),
            token_weights: weights,
            z_loss: options.z_loss,
            temperature: options.temperature,
            reduction,
            ..LossOptions::new()
        };
        let in_head =
            words.iter().map(|word| word.map_or(IGNORED, |word| self.clusters.head_word(word) as i64));
        let in_head = Tensor::<1, Int>::from_data(in_head.collect::<Vec<_>>().as_slice(), &device);
        let rows = in_a_row(hidden.clone());
        // In their own dimensions, which tell the latent dropout what is time.
        let of_head = of_cluster(weights.clone().map(|weights| Floats::from(weights).reshape(shape)));
        // Priors are those of the head cluster.
        let of_head = LossOptions { prior_cv: options.prior_cv, ..of_head };
        let Loss { mut loss, prior_cv, .. } =
            self.short.try_loss_with(hidden, in_head.reshape(shape), &of_head)?;
        for (cluster, tail) in self.tails().into_iter().enumerate() {
            let first = self.clusters.cutoffs()[cluster];
            let (mut members, mut targets) = (vec![], vec![]);
            for (token, word) in words.iter().enumerate() {
                if let Some(word) = word.filter(|word| self.clusters.cluster_of(*word) == Some(cluster)) {
                    members.push(token as u32);
                    targets.push((word - first) as i64);
                }
            }
            if members.is_empty() {
                // One that does not count: every parameter has a gradient, of 0 if need be.
                members.push(0);
                targets.push(IGNORED);
            }
            let targets = Tensor::<1, Int>::from_data(targets.as_slice(), &device);
            let options = of_cluster(weights.clone().map(|weights| of_tokens(weights, &members).into()));
            let contexts = tail.contexts(of_tokens(rows.clone(), &members));
            let of_tail = tail.bound()?.try_loss_with::<2, 1>(contexts, targets, &options)?.loss;
            loss = match reduction {
                Reduction::None => {
                    let numbers = numbers(&members, &loss.device());
                    loss.select_assign(0, numbers, of_tail, IndexingUpdateOp::Add)
                }
                _ => loss + of_tail,
            };
        }
        if options.reduction == Reduction::Mean {
            loss = mean(loss, &words, weights);
        }
        Ok(Loss { loss, prior_cv, statistics: None })
    }
}

/// A sum over the tokens that count over the sum of their weights.
fn mean(sum: Tensor<1>, words: &[Option<usize>], weights: Option<Tensor<1>>) -> Tensor<1> {
    let counted: Vec<u32> =
        (0..words.len() as u32).filter(|token| words[*token as usize].is_some()).collect();
    let total = match weights {
        Some(weights) if counted.len() == words.len() => weights.cast(sum.dtype()).sum(),
        // Those of tokens that do not count may be anything.
        Some(weights) if !counted.is_empty() => of_tokens(weights, &counted).cast(sum.dtype()).sum(),
        // As a tensor: the derivative of a division by a number is made of an f32.
        _ => Tensor::full([1], counted.len() as f64, (&sum.device(), sum.dtype())),
    };
    sum / total
}

/// Refuses what needs the probabilities of all words for every token.
fn refuse(options: &LossOptions) -> Result<(), HeadError> {
    let refused = [
        ("label_smoothing", options.label_smoothing != 0.0),
        ("teacher", options.teacher.is_some()),
        ("statistics", options.statistics),
    ];
    match refused.into_iter().find(|(_, given)| *given) {
        Some((what, _)) => Err(HeadError::NeedsAllWords { what }),
        None => Ok(()),
    }
}
