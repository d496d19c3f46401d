//! Which gradients the mixed context of a Mixture of Contexts has.

/// A value for each input of the mixed context `h̄ = Σ_k π_k h_k`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MixInputs<T> {
    /// Of the priors, `[N, K]`.
    pub prior: T,
    /// Of the components' contexts, `[N, K·d]`.
    pub latent: T,
}

/// Gradients of the mixed context, each of its tensor's shape; `None` where not wanted.
pub type MixGradients<F> = MixInputs<Option<F>>;

/// Which gradients of the mixed context are asked for.
pub type MixWanted = MixInputs<bool>;

impl<T> MixInputs<T> {
    /// The values in the order prior, contexts.
    pub fn into_array(self) -> [T; 2] {
        [self.prior, self.latent]
    }

    /// The inverse of [`into_array`](Self::into_array).
    pub fn from_array([prior, latent]: [T; 2]) -> Self {
        Self { prior, latent }
    }
}
