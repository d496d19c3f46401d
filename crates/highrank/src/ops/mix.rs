//! Which gradients the mixed context of a Mixture of Contexts has.

use super::inputs::per_input;

per_input! {
    /// A value for each input of the mixed context `h̄ = Σ_k π_k h_k`.
    pub struct MixInputs {
        /// Of the priors, `[N, K]`.
        prior,
        /// Of the components' contexts, `[N, K·d]`.
        latent,
    }
    /// Gradients of the mixed context, each of its tensor's shape; `None` where not wanted.
    pub type MixGradients;
    /// Which gradients of the mixed context are asked for.
    pub type MixWanted;
}
