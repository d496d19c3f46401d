//! The two ways in which a context is computed.

use burn::backend::{Dispatch, TensorMetadata};
use highrank_kernels::{Floats, Precision};

use crate::likelihood::{OutputOps, has_kernels};
use crate::ops::{Kernels, LatentArgs};

/// Selects portable or native products and latent layers for a context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ContextPath {
    /// The formulas themselves, composed of Burn's operations.
    Composed,
    /// The operations of the tensors' backend, where it has any.
    Native,
}

impl ContextPath {
    /// Whether the operations of the backend that the tensor is on are to be used.
    fn is_native(self, tensor: &Floats) -> bool {
        self == Self::Native && has_kernels(&tensor.primitive().device())
    }

    /// `lhs · rhs` of two matrices.
    pub(crate) fn product(self, lhs: Floats, rhs: Floats, precision: Precision) -> Floats {
        match self.is_native(&rhs) {
            true => Floats::new(<Dispatch as OutputOps>::product(
                lhs.into_primitive(),
                rhs.into_primitive(),
                precision,
            )),
            false => <Dispatch as Kernels>::product(lhs, rhs, precision),
        }
    }

    /// The latent layer, `[N, F]`.
    pub(crate) fn latent(self, args: LatentArgs) -> Floats {
        match self.is_native(&args.weight) {
            true => Floats::new(<Dispatch as OutputOps>::latent(args)),
            false => <Dispatch as Kernels>::latent(args),
        }
    }

    /// `Σ_k π_k h_k`, `[N, d]`, from `[N, K]` and `[N, K·d]`.
    pub(super) fn mix(self, prior: Floats, latent: Floats) -> Floats {
        match self.is_native(&prior) {
            true => {
                Floats::new(<Dispatch as OutputOps>::mix(prior.into_primitive(), latent.into_primitive()))
            }
            false => <Dispatch as Kernels>::mix(prior, latent),
        }
    }
}
