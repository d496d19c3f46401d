//! The operations that a backend may have kernels of its own for, as values: what the portable code computes with.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use crate::context::latent::{self, LatentArgs, LatentGradients, LatentWanted};
use crate::likelihood::LikelihoodBackend;
use crate::precision::{self, Precision};

/// Composed of Burn's operations, which any backend has, or native.
pub(crate) struct Operations<B: Backend> {
    /// See [`LikelihoodBackend::product`].
    pub(crate) product: fn(Tensor<B, 2>, Tensor<B, 2>, Precision) -> Tensor<B, 2>,
    /// See [`LikelihoodBackend::latent`].
    pub(crate) latent: fn(LatentArgs<B>) -> Tensor<B, 2>,
    /// See [`LikelihoodBackend::latent_backward`].
    pub(crate) latent_backward: LatentBackward<B>,
}

type LatentBackward<B> = fn(LatentArgs<B>, Tensor<B, 2>, Tensor<B, 2>, LatentWanted) -> LatentGradients<B>;

impl<B: Backend> Clone for Operations<B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: Backend> Copy for Operations<B> {}

impl<B: Backend> Operations<B> {
    pub(crate) const COMPOSED: Self = Self {
        product: precision::product,
        latent: latent::portable::latent,
        latent_backward: latent::portable::latent_backward,
    };
}

impl<B: LikelihoodBackend> Operations<B> {
    pub(crate) const NATIVE: Self =
        Self { product: B::product, latent: B::latent, latent_backward: B::latent_backward };
}
