//! The losses of a head.

use burn::tensor::{Device, Int, Tensor};
use highrank_kernels::Floats;

use super::bound::{BoundHead, leading, same_shape, with_last};
use crate::error::{HeadError, OrPanic};
use crate::likelihood;
use crate::loss::{Counted, Loss, LossOptions, Reduction, prior_cv};

impl BoundHead<'_> {
    /// Negative log-likelihood of every token in nats, `−log P(target)`.
    ///
    /// Equals `−log_probs(hidden).gather(targets)` without the `[.., V]` tensor. Takes any upstream gradient; the
    /// backward pass recomputes the logits chunk by chunk. For a mean, [`loss`](Self::loss) is cheaper.
    ///
    /// A masked word has probability 0: as a target its nll is +∞, and the gradients of such a token mean nothing.
    ///
    /// # Shapes
    /// - hidden: `[.., H]`, D dimensions
    /// - targets, output: `[..]`, T = D − 1 dimensions
    ///
    /// # Panics
    /// If the shapes do not fit (both are in the message). On CPU backends, if a target is outside `0..V`; on others
    /// the nll of such a token is NaN, see [`validate_targets`](crate::validate_targets).
    #[track_caller]
    pub fn nll<const D: usize, const T: usize>(
        &self,
        hidden: Tensor<D>,
        targets: Tensor<T, Int>,
    ) -> Tensor<T> {
        let shape = targets.dims();
        let options = LossOptions::new().with_reduction(Reduction::None);
        self.try_loss_with(hidden, targets, &options).or_panic("nll").loss.reshape(shape)
    }

    /// Weighted mean of the tokens' negative log-likelihoods in nats, `Σ w nll / Σ w`.
    ///
    /// Without weights the plain mean. A token of weight 0 is ignored: it adds nothing to the loss or any gradient, whatever
    /// its hidden state and target are. Where nothing counts the mean is NaN, and its gradients are 0. The gradient also reaches
    /// tracked weights.
    ///
    /// # Shapes
    /// - hidden: `[.., H]`, D dimensions
    /// - targets, weights: `[..]`, T = D − 1 dimensions
    /// - output: `[1]`
    ///
    /// # Panics
    /// As [`nll`](Self::nll), and on CPU backends if a weight is negative or not a number.
    #[track_caller]
    pub fn loss<const D: usize, const T: usize>(
        &self,
        hidden: Tensor<D>,
        targets: Tensor<T, Int>,
        weights: Option<Tensor<T>>,
    ) -> Tensor<1> {
        let mut options = LossOptions::new();
        options.token_weights = weights.map(Floats::from);
        self.try_loss_with(hidden, targets, &options).or_panic("loss").loss
    }

    /// The loss that the [options](LossOptions) describe.
    ///
    /// # Shapes
    /// - hidden: `[.., H]`, D dimensions
    /// - targets: `[..]`, T = D − 1 dimensions
    ///
    /// # Panics
    /// As [`nll`](Self::nll), if an option is outside of its range, or on CPU backends, if a weight or a teacher's row is.
    #[track_caller]
    pub fn loss_with<const D: usize, const T: usize>(
        &self,
        hidden: Tensor<D>,
        targets: Tensor<T, Int>,
        options: &LossOptions,
    ) -> Loss<T> {
        self.try_loss_with(hidden, targets, options).or_panic("loss_with")
    }

    /// [`loss_with`](Self::loss_with) with an error in place of a panic.
    ///
    /// # Errors
    /// Whatever [`loss_with`](Self::loss_with) panics for.
    pub fn try_loss_with<const D: usize, const T: usize>(
        &self,
        hidden: Tensor<D>,
        targets: Tensor<T, Int>,
        options: &LossOptions,
    ) -> Result<Loss<T>, HeadError> {
        if let Some(clustered) = self.clustered() {
            return clustered.loss_with(hidden, targets, options);
        }
        self.validate_hidden(&hidden.dims())?;
        let shape = leading::<D, T>(&hidden.dims())?;
        same_shape("targets", targets.dims(), shape)?;
        let vocab = self.head.decoder.vocab;
        options.validate(&shape, vocab)?;
        self.validate_prior_cv(options)?;
        let words = targets.reshape([shape.iter().product::<usize>()]);
        let counted = Counted::words(words, options, vocab, || self.bias())?;
        Ok(self.scored(hidden, counted, options, shape))
    }

    /// Weighted mean of the cross-entropies against full distributions, `−Σ_v q_v log P(v)`, in nats.
    ///
    /// For distillation and for studies where the true distribution is known. The distributions are constants. Where a few
    /// words have most of the probability, [`LossOptions::with_teacher`] needs no `[.., V]` tensor.
    ///
    /// # Shapes
    /// - hidden: `[.., H]`
    /// - distributions: `[.., V]`, probabilities
    /// - weights: `[N]`, N the product of the leading dimensions
    /// - output: `[1]`
    ///
    /// # Panics
    /// If the shapes do not fit (both are in the message), `distributions` is tracked by autodiff, or on CPU backends if a
    /// weight is negative or not a number.
    #[track_caller]
    pub fn soft_loss<const D: usize>(
        &self,
        hidden: Tensor<D>,
        distributions: Tensor<D>,
        weights: Option<Tensor<1>>,
    ) -> Tensor<1> {
        let mut options = LossOptions::new();
        options.token_weights = weights.map(Floats::from);
        self.try_soft_loss_with(hidden, distributions, &options).or_panic("soft_loss").loss
    }

    /// [`soft_loss`](Self::soft_loss) with options; token weights have shape `[N]`, and so do statistics.
    ///
    /// # Errors
    /// [`HeadError::NeedsWords`] of an option that asks about target words, and those of
    /// [`try_loss_with`](Self::try_loss_with).
    pub fn try_soft_loss_with<const D: usize>(
        &self,
        hidden: Tensor<D>,
        distributions: Tensor<D>,
        options: &LossOptions,
    ) -> Result<Loss<1>, HeadError> {
        if let Some(clustered) = self.clustered() {
            return clustered.soft_loss_with(hidden, distributions, options);
        }
        let dims = hidden.dims();
        self.validate_hidden(&dims)?;
        let decoder = &self.head.decoder;
        let rows = decoder.rows();
        same_shape("distributions", distributions.dims(), with_last(dims, rows))?;
        let tokens = dims[..D - 1].iter().product();
        options.validate(&[tokens], decoder.vocab)?;
        self.validate_prior_cv(options)?;
        let counted = Counted::distributions(distributions.reshape([tokens, rows]), options)?;
        Ok(self.scored(hidden, counted, options, [tokens]))
    }

    /// Checks that there are priors where their variation is penalised.
    pub(super) fn validate_prior_cv(&self, options: &LossOptions) -> Result<(), HeadError> {
        match options.prior_cv != 0.0 && !self.head.context.has_priors() {
            true => {
                let reason = "this head has no priors: use a mixture, or leave it out";
                Err(HeadError::Unused { option: "prior_cv", reason })
            }
            false => Ok(()),
        }
    }

    /// The loss of the tokens that count.
    pub(super) fn scored<const D: usize, const T: usize>(
        &self,
        hidden: Tensor<D>,
        counted: Counted,
        options: &LossOptions,
        shape: [usize; T],
    ) -> Loss<T> {
        let (mut input, log_prior) = self.native_with_prior(counted.hidden(hidden));
        input.temperature *= options.temperature;
        let on = (&Device::new(input.weight.device()), input.wide());
        let scores = likelihood::loss;
        let (mut loss, statistics) = match options.reduction {
            Reduction::None => {
                let scores = scores(input, counted.objective(), None);
                (counted.spread_losses(scores.loss.tensor()), scores.statistics)
            }
            Reduction::Sum => {
                let scores = scores(input, counted.objective(), Some(counted.weights_or_ones(on)));
                (scores.loss.tensor(), scores.statistics)
            }
            Reduction::Mean => {
                let shares = counted.shares(on);
                let scores = scores(input, counted.objective(), Some(shares.of_tokens.clone()));
                (shares.mean(scores.loss.tensor()), scores.statistics)
            }
        };
        let log_prior = log_prior.filter(|_| options.prior_cv != 0.0);
        let variation = log_prior.map(|log_prior| {
            let squared = prior_cv(log_prior, counted.shares(on).of_tokens);
            let term = match options.reduction {
                Reduction::Sum => squared.clone() * counted.weights_or_ones(on).cast(squared.dtype()).sum(),
                _ => squared.clone(),
            };
            loss = loss.clone() + term.cast(loss.dtype()) * options.prior_cv;
            squared
        });
        Loss {
            loss,
            prior_cv: variation,
            statistics: statistics.map(|rows| counted.statistics(rows.tensor(), shape)),
        }
    }
}
