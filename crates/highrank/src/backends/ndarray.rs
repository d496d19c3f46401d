//! NdArray takes the portable bodies.

// Burn has deprecated the backend; the feature stays for as long as Burn has it.
#![allow(deprecated)]

use burn::backend::NdArray;
use burn::backend::tensor::Device;
use highrank_kernels::{Floats, Ints, Precision, precision};

use super::dispatched::dispatch_to_kernels;
use crate::context::latent;
use crate::likelihood::{default_memory_budget, portable};
use crate::ops::{
    Gradients, Kernels, LatentArgs, LatentGradients, LatentWanted, Likelihood, Targets, Wanted,
};

dispatch_to_kernels!(NdArray);

impl Kernels for NdArray {
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

    fn memory_budget(decoder_bytes: usize, _device: &Device<Self>) -> usize {
        default_memory_budget(decoder_bytes)
    }

    fn is_cpu(_device: &Device<Self>) -> bool {
        true
    }
}
