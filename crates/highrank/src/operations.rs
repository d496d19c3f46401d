//! The operations that a backend may have kernels of its own for, as values: what the portable code computes with.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use crate::context::latent::{self, LatentArgs};
use crate::likelihood::LikelihoodBackend;
use crate::precision::{self, Precision};

/// Composed of Burn's operations, which any backend has, or native.
pub(crate) struct Operations<B: Backend> {
    /// See [`LikelihoodBackend::product`].
    pub(crate) product: fn(Tensor<B, 2>, Tensor<B, 2>, Precision) -> Tensor<B, 2>,
    /// See [`LikelihoodBackend::latent`].
    pub(crate) latent: fn(LatentArgs<B>) -> Tensor<B, 2>,
    /// `Σ_k π_k h_k`, `[N, d]`, from `[N, K]` and `[N, K, d]`.
    pub(crate) mix: fn(Tensor<B, 2>, Tensor<B, 3>) -> Tensor<B, 2>,
}

impl<B: Backend> Clone for Operations<B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: Backend> Copy for Operations<B> {}

impl<B: Backend> Operations<B> {
    pub(crate) const COMPOSED: Self =
        Self { product: precision::product, latent: latent::portable::latent, mix: as_products };
}

impl<B: LikelihoodBackend> Operations<B> {
    pub(crate) const NATIVE: Self = Self {
        product: B::product,
        latent: B::latent,
        mix: |prior, latent| match B::reads_are_free() {
            true => as_products(prior, latent),
            false => as_sum(prior, latent),
        },
    };
}

/// A batch of products of one row: on a CPU the faster form.
fn as_products<B: Backend>(prior: Tensor<B, 2>, latent: Tensor<B, 3>) -> Tensor<B, 2> {
    prior.unsqueeze_dim::<3>(1).matmul(latent).squeeze_dim(1)
}

/// What fusion makes one kernel of, and no product rounds.
fn as_sum<B: Backend>(prior: Tensor<B, 2>, latent: Tensor<B, 3>) -> Tensor<B, 2> {
    (latent * prior.unsqueeze_dim::<3>(2)).sum_dim(1).squeeze_dim(1)
}
