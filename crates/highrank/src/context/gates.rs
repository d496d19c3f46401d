//! The gates of a Mixtape's frequent words.

use highrank_kernels::{Floats, Precision};

use crate::ops::GatedArgs;

/// What the logits of the frequent words depend on beside the mixed context, but for their decoder rows.
#[derive(Debug, Clone)]
pub struct Gates {
    /// `π̄`, by which all other words mix, `[N, 4]`.
    pub prior: Floats,
    /// `h`, `[N, 4·d]`.
    pub latent: Floats,
    /// `tanh(U_j g)`, `[N, 3·G]`.
    pub features: Floats,
    /// `u_jᵀ g`, `[N, 3]`.
    pub base: Floats,
    /// `v` of the frequent words, `[S, G]`.
    pub vectors: Floats,
    /// `c` of the frequent words, `[S, 3]`.
    pub bias: Floats,
    /// Of the products.
    pub precision: Precision,
}

impl Gates {
    /// The arguments of the gated logits with the decoder's matrix `[V, d]`, for at most so many bytes at a time.
    pub fn args(self, decoder: Floats, chunk_bytes: usize) -> GatedArgs {
        let Self { prior, latent, features, base, vectors, bias, precision } = self;
        let words = vectors.shape()[0];
        let weight = decoder.rows(0..words);
        GatedArgs { prior, latent, features, base, vectors, bias, weight, chunk_bytes, precision }
    }
}
