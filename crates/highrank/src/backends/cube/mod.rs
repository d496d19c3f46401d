//! Native GPU kernels of the likelihood on Burn's CubeCL backend (WebGPU, CUDA), with sums in f32.
//!
//! A chunk of tokens takes one product by tuned kernels ([`gpu::product`]), one visit of the rows for their log-sum-exp and
//! the targets' log-probabilities, a small one for losses and weights, one that puts the gradient in the product's place,
//! and two products out of it. Bias, logit map and temperature are applied during the visits, so nothing of a chunk's size
//! exists but the product itself. Where every word counts (label smoothing, teachers, entropies, statistics) a single component
//! needs no further visit; a mixture has one for its log-probabilities, `[tokens, V]` of a chunk, and one for its components'
//! shares of them.
//!
//! Logit maps in kernels come from [`logit_map`](crate::logit_map), one file a map.
//!
//! Words with [gates](crate::ops::ContextSource::Gated) take two products more. What is made of these comes from the portable
//! body: the backend's own operations, one launch each, and some matrices of `[tokens·3, S]` numbers.
//!
//! Target distributions over all words, other heads' distributions, weights of words, factors of
//! [normalisers](crate::ops::Objective::normaliser), which every sweep over a shared vocabulary asks for, lists of no words,
//! f64, and the maps whose few parameters every logit moves (generalised sigsoftmax, the monotonic network) take the portable
//! path. Inputs in half precision are multiplied as they are, but for those of gates; all else is in f32.
//!
//! # Panics
//! Every tensor is checked before it is given to a kernel: if its shape or type is another than the kernel's, the call panics
//! with both. A target outside of the vocabulary is neither read nor written at; its token's loss is NaN.

mod fusion;
mod kernels;
mod latent;
mod map;
mod mixed;
mod pieces;
mod reduce;
mod sweep;
#[cfg(all(test, any(feature = "wgpu", feature = "cuda")))]
mod tests;

use highrank_kernels::gpu::{self, CubeBackend};
use highrank_kernels::{Floats, Ints, Precision};

use crate::likelihood::{LikelihoodKernels, portable};
use crate::ops::{
    Gradients, Kernels, LatentArgs, LatentGradients, LatentWanted, LikelihoodInput, Objective, Scores, Wanted,
};
use sweep::Sweep;

impl Kernels for CubeBackend {
    fn product(lhs: Floats<Self>, rhs: Floats<Self>, precision: Precision) -> Floats<Self> {
        gpu::product(lhs, rhs, precision)
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
}

impl LikelihoodKernels for CubeBackend {
    fn score(
        input: LikelihoodInput<Floats<Self>>,
        objective: Objective<Floats<Self>, Ints<Self>>,
        gradient: Option<(Floats<Self>, Wanted)>,
    ) -> (Scores<Floats<Self>>, Gradients<Floats<Self>>) {
        match Sweep::new(&input, &objective, gradient.is_some()) {
            Some(sweep) => sweep.score(gradient),
            None => portable::score(&input, &objective, gradient),
        }
    }
}
