//! [`Component`]: maximum, sum, prior and weight of a row of logits, by which it is a part of its token's distribution.

use highrank_kernels::cpu::Real;

/// One row's part of the token.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Component<T> {
    /// A number near the largest mapped logit, or that itself.
    pub(super) top: T,
    /// `S = Σ_v e^{a_v − top}`, and its logarithm.
    pub(super) sum: T,
    pub(super) log_sum: f64,
    pub(super) log_prior: f64,
    /// `π / S`: what an exponential is multiplied with to be its part of a probability.
    pub(super) weight: T,
    /// The logarithm of that.
    pub(super) log_weight: T,
    /// `s`
    pub(super) share: f64,
}

impl<T: Real> Component<T> {
    pub(super) fn new(top: T, sum: T, log_prior: f64) -> Self {
        let log_sum = sum.wide().ln();
        let log_weight = log_prior - log_sum;
        let [weight, log_weight] = [log_weight.exp(), log_weight].map(T::of);
        Self { top, sum, log_sum, log_prior, weight, log_weight, share: 0.0 }
    }

    /// `log Σ_v e^{a_v}`.
    pub(super) fn lse(&self) -> f64 {
        self.top.wide() + self.log_sum
    }

    /// `log π + log p(v)` for `a_v − top`.
    pub(super) fn joint(&self, shift: f64) -> f64 {
        self.log_prior + (shift - self.log_sum)
    }

    /// `π LSE`.
    pub(super) fn pull(&self) -> f64 {
        self.log_prior.exp() * self.lse()
    }
}
