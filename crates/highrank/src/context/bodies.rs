//! The two ways in which a context is computed.

use burn::backend::{Dispatch, TensorMetadata};
use highrank_kernels::{Floats, Precision, precision};

use super::latent;
use crate::ops::{Kernels, LatentArgs, LatentCall, OutputOps, has_kernels};

/// Which bodies compute the products and the latent layer of a context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bodies {
    /// The formulas themselves, composed of Burn's operations.
    Composed,
    /// The operations of the tensors' backend, where it has any.
    Native,
}

impl Bodies {
    /// Whether the operations of the backend that the tensor is on are to be used.
    fn is_native(self, tensor: &Floats) -> bool {
        self == Self::Native && has_kernels(&tensor.primitive().device())
    }

    /// `lhs · rhs` of two matrices.
    pub(super) fn product(self, lhs: Floats, rhs: Floats, precision: Precision) -> Floats {
        match self.is_native(&rhs) {
            true => Floats::new(<Dispatch as OutputOps>::product(
                lhs.into_primitive(),
                rhs.into_primitive(),
                precision,
            )),
            false => precision::product(lhs, rhs, precision),
        }
    }

    /// The latent layer, `[N, F]`.
    pub(super) fn latent(self, args: LatentArgs) -> Floats {
        match self.is_native(&args.weight) {
            true => Floats::new(<Dispatch as OutputOps>::latent(LatentCall(args))),
            false => latent::latent(args),
        }
    }

    /// `Σ_k π_k h_k`, `[N, d]`, from `[N, K]` and `[N, K, d]`.
    pub(super) fn mix(self, prior: Floats, latent: Floats) -> Floats {
        let [tokens, components, d] = latent.dims();
        if self.is_native(&prior) && !Dispatch::is_cpu(&prior.device()) {
            // Fuses into one kernel and involves no matrix product, so nothing is rounded.
            return (latent * prior.reshape([tokens, components, 1])).sum_dim(1).reshape([tokens, d]);
        }
        // A batch of products of one row: on a CPU the faster bodies.
        prior.reshape([tokens, 1, components]).matmul(latent).reshape([tokens, d])
    }
}
