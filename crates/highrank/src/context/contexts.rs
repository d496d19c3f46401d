//! What a context makes of a run of tokens.

use highrank_kernels::Floats;

use crate::ops::ContextSource;

/// Contexts of a run of tokens, ready for the decoder.
#[derive(Debug, Clone)]
pub(crate) struct Contexts {
    /// `h_k`.
    pub contexts: ContextSource,
    /// `log π_k`, shape `[N, K]`; `None` where there is one component only.
    pub log_prior: Option<Floats>,
    /// `log π_k` of the latent contexts, shape `[N, K]`, also where they have been mixed into one; `None` without a mixture.
    pub component_log_prior: Option<Floats>,
}
