//! The dispatched backend: the portable bodies, composed and differentiable on whatever backend a device brings.

use burn::backend::tensor::Device;
use burn::backend::{Dispatch, DispatchDevice};
use highrank_kernels::{Floats, Ints, Precision, precision};

use crate::context::latent;
use crate::likelihood::{default_memory_budget, portable};
use crate::ops::{
    Gradients, Kernels, LatentArgs, LatentGradients, LatentWanted, Likelihood, Targets, Wanted,
};

impl Kernels for Dispatch {
    fn nll(input: Likelihood<Floats<Self>>, targets: Targets<Floats<Self>, Ints<Self>>) -> Floats<Self> {
        portable::nll(&input, &targets)
    }

    fn nll_and_gradients(
        input: Likelihood<Floats<Self>>,
        targets: Targets<Floats<Self>, Ints<Self>>,
        upstream: Floats<Self>,
        wanted: Wanted,
    ) -> (Floats<Self>, Gradients<Floats<Self>>) {
        portable::nll_and_gradients(&input, &targets, upstream, wanted)
    }

    fn product(lhs: Floats<Self>, rhs: Floats<Self>, precision: Precision) -> Floats<Self> {
        precision::product(lhs, rhs, precision)
    }

    fn latent(args: LatentArgs<Floats<Self>>) -> Floats<Self> {
        latent::latent(args)
    }

    fn latent_backward(
        args: LatentArgs<Floats<Self>>,
        output: Floats<Self>,
        grad: Floats<Self>,
        wanted: LatentWanted,
    ) -> LatentGradients<Floats<Self>> {
        latent::latent_backward(args, output, grad, wanted)
    }

    fn memory_budget(decoder_bytes: usize, device: &Device<Self>) -> usize {
        match device {
            #[cfg(feature = "gpu")]
            DispatchDevice::Cube(device) => {
                <burn::backend::Cube as Kernels>::memory_budget(decoder_bytes, device)
            }
            DispatchDevice::Autodiff(device) => Self::memory_budget(decoder_bytes, device),
            // Without any backend's feature there is no other.
            #[allow(unreachable_patterns)]
            _ => default_memory_budget(decoder_bytes),
        }
    }

    fn is_cpu(device: &Device<Self>) -> bool {
        match device {
            #[cfg(feature = "flex")]
            DispatchDevice::Flex(_) => true,
            #[cfg(feature = "ndarray")]
            DispatchDevice::NdArray(_) => true,
            DispatchDevice::Autodiff(device) => Self::is_cpu(device),
            #[allow(unreachable_patterns)]
            _ => false,
        }
    }
}
