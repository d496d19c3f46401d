//! The losses of a step.

use burn::tensor::Tensor;

use crate::model::StepLoss;

/// The loss of a step and what it is made of, in nats; each `[1]`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Losses<T = Tensor<1>> {
    /// Mean nll of the step's tokens before the update.
    pub nll: T,
    /// `nll` + AR + TAR + the priors' term, the loss that was differentiated.
    pub total: T,
    /// AR; 0 without.
    pub ar: T,
    /// TAR; 0 without.
    pub tar: T,
    /// The term of the mixture's priors, `prior_cv · cv²`; 0 without.
    pub prior_cv: T,
}

impl Losses {
    /// Those of a loss, outside of its graph.
    pub(super) fn of(loss: &StepLoss) -> Self {
        let StepLoss { nll, total, ar, tar, prior_cv, state: _ } = loss.clone();
        Self::from_array([nll, total, ar, tar, prior_cv].map(Tensor::inner))
    }
}

impl<T> Losses<T> {
    /// In the order of the fields.
    pub(super) fn into_array(self) -> [T; 5] {
        let Self { nll, total, ar, tar, prior_cv } = self;
        [nll, total, ar, tar, prior_cv]
    }

    /// The inverse of [`into_array`](Self::into_array).
    pub(super) fn from_array([nll, total, ar, tar, prior_cv]: [T; 5]) -> Self {
        Self { nll, total, ar, tar, prior_cv }
    }
}
