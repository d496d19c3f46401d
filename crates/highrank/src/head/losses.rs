//! The losses of a head.

use burn::tensor::{Int, Tensor};

use super::output::OutputHead;
use crate::context::ContextPath;
use crate::error::{HeadError, OrPanic};
use crate::loss::{
    Loss, LossOptions, TargetDistribution, check_targets, leading, loss_of_counted, of_targets,
};

impl OutputHead {
    /// Mean of the tokens' negative log-likelihoods in nats, `−(1/N) Σ_n log P(y_n)`.
    ///
    /// Equals `−forward(hidden).gather(targets).mean()` without the `[.., V]` tensor. For everything else, ignored tokens,
    /// weights, smoothing, distributions as targets and more, see [`loss_with`](Self::loss_with).
    ///
    /// # Shapes
    /// - hidden: `[.., H]`, D dimensions
    /// - targets: `[..]`, T = D − 1 dimensions
    /// - output: `[1]`
    ///
    /// # Panics
    /// If the shapes do not fit (both are in the message), or a tensor is on another device than the head. On CPU backends, if a
    /// target is outside `0..V`; on others the loss is NaN then, see [`validate_targets`](crate::validate_targets).
    #[track_caller]
    pub fn loss<const D: usize, const T: usize>(
        &self,
        hidden: Tensor<D>,
        targets: Tensor<T, Int>,
    ) -> Tensor<1> {
        self.try_loss_with(hidden, targets, &LossOptions::new()).or_panic("loss").value
    }

    /// The loss that the [options](LossOptions) describe.
    ///
    /// # Shapes
    /// - hidden: `[.., H]`, D dimensions
    /// - targets: `[..]`, T = D − 1 dimensions
    ///
    /// # Panics
    /// As [`loss`](Self::loss), if an option is outside of its range or of another shape, or on CPU backends, if a weight or a
    /// teacher's row is. If the head has no use for an option, or two do not go together:
    /// - [`with_prior_cv`](LossOptions::with_prior_cv) of a head without priors;
    /// - [distillation](LossOptions::with_distillation) beside label smoothing or class weights;
    /// - distillation of a head with [clusters](crate::HeadConfig::with_adaptive), or its class weights beside label smoothing, a
    ///   z-loss, an entropy bonus or other targets than words.
    #[track_caller]
    pub fn loss_with<const D: usize, const T: usize>(
        &self,
        hidden: Tensor<D>,
        targets: Tensor<T, Int>,
        options: &LossOptions,
    ) -> Loss<T> {
        self.try_loss_with(hidden, targets, options).or_panic("loss_with")
    }

    /// [`loss_with`](Self::loss_with) with an error in place of a panic, for a program whose targets, weights or teachers come
    /// from a file.
    ///
    /// # Errors
    /// Whatever [`loss_with`](Self::loss_with) panics for.
    pub fn try_loss_with<const D: usize, const T: usize>(
        &self,
        hidden: Tensor<D>,
        targets: Tensor<T, Int>,
        options: &LossOptions,
    ) -> Result<Loss<T>, HeadError> {
        let checks = self.check(&hidden)?;
        let shape = leading::<D, T>(&hidden.dims(), of_targets(&targets))?;
        check_targets(&targets, shape, options, self.rows(), self.vocab(), &checks)?;
        self.check_use(options)?;
        match self.adaptive() {
            Some(adaptive) => adaptive.loss_with(hidden, targets, options),
            None => loss_of_counted(
                targets,
                options,
                self.vocab(),
                || self.bias(),
                |counted| self.likelihood_input(counted.of_hidden(hidden), ContextPath::Native),
            ),
        }
    }

    /// Negative log-likelihood of every token in nats, `−log P(target)`, of the targets' shape.
    ///
    /// Takes any upstream gradient; the backward pass recomputes the logits chunk by chunk. For a mean, [`loss`](Self::loss) is
    /// cheaper. A masked word has probability 0: as a target its nll is +∞, and the gradients of such a token are unspecified.
    ///
    /// # Panics
    /// As [`loss`](Self::loss); a target outside `0..V` gives NaN for its token where it does not panic.
    #[track_caller]
    pub fn nll<const D: usize, const T: usize>(
        &self,
        hidden: Tensor<D>,
        targets: Tensor<T, Int>,
    ) -> Tensor<T> {
        let options = LossOptions::new().with_per_token(true);
        let made = self.try_loss_with(hidden, targets, &options).or_panic("nll");
        made.per_token.expect("values of tokens are asked for")
    }

    /// Checks that this kind of head has a use for all options.
    pub(crate) fn check_use(&self, options: &LossOptions) -> Result<(), HeadError> {
        let unused = |option, reason| Err(HeadError::Unused { option, reason });
        if options.prior_cv != 0.0 && !self.context.has_priors() {
            return unused("prior_cv", "this head has no priors: use a mixture, or leave it out");
        }
        if self.clusters.is_none() {
            return Ok(());
        }
        if matches!(options.distribution, Some(TargetDistribution::Model(..))) {
            let reason =
                "a head with clusters learns from teachers' lists and distributions only: use with_teacher";
            return unused("distillation", reason);
        }
        Ok(())
    }
}
