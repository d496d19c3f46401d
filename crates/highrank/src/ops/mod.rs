//! The ground floor: what a backend may have kernels for, and the plain data that these operations pass. Only the logit maps
//! lie below: each is a formula with its bodies and needs nothing from here.
//!
//! * [`Kernels`]: matrix products, and what a backend computes for a context, forward and backward. The default bodies are the
//!   portable ones of [`latent`] and [`mix`]. What it computes for the likelihood is
//!   [`LikelihoodKernels`](crate::likelihood::LikelihoodKernels), and what users' tensors pass through is
//!   [`OutputOps`](crate::likelihood::OutputOps).
//! * [`LikelihoodInput`], [`LatentArgs`] and their gradients: generic over the type of a tensor,
//!   so the same data describe a call on users' tensors, on one backend's, or in the queue of Burn's fusion.

mod activation;
mod calls;
mod device;
mod divergence;
pub mod gated;
mod inputs;
pub mod latent;
mod likelihood;
pub mod mix;
mod objective;
mod predict;

pub(crate) use crate::logit_map::LogitMapConfig;
pub use activation::{Activation, UnknownActivation};
pub use calls::{LatentCall, LossCall, PredictionCall};
pub use device::is_cpu;
pub use divergence::Divergence;
pub use gated::{GatedArgs, GatedGradients, GatedInputs, GatedWanted};
pub use highrank_kernels::precision::wide;
pub use highrank_kernels::{Floats, Ints, Precision};
pub use latent::{LatentArgs, LatentGradients, LatentInputs, LatentMask, LatentWanted};
pub use likelihood::{ContextSource, Gradients, LikelihoodInput, PerInput, Wanted, runs};
pub use objective::{MASKING_BIAS, Objective, Scores, Statistic, Targets};
pub use predict::{Draw, Drawn, LogProbs, Prediction};

use highrank_kernels::{Rounding, precision};

/// Matrix products and the operations that make a context, inside one backend. No call is tracked.
///
/// The default bodies are the portable ones. A backend overrides those that it has native kernels for.
pub trait Kernels: Rounding {
    /// `lhs · rhs` of two matrices, what is read of them rounded as `precision` says.
    fn product(lhs: Floats<Self>, rhs: Floats<Self>, precision: Precision) -> Floats<Self> {
        precision::product(lhs, rhs, precision)
    }

    /// The latent layer of a mixture, `a(g·W + b) ∘ mask`, shape `[N, F]`, in the [type of sums](wide).
    fn latent(args: LatentArgs<Floats<Self>>) -> Floats<Self> {
        latent::latent(args)
    }

    /// Gradients of `Σ grad ∘ output`, where `output` is the result of [`latent`](Self::latent) for `args`,
    /// in the type of sums.
    fn latent_backward(
        args: LatentArgs<Floats<Self>>,
        output: Floats<Self>,
        grad: Floats<Self>,
        wanted: LatentWanted,
    ) -> LatentGradients<Floats<Self>> {
        latent::latent_backward(args, output, grad, wanted)
    }

    /// The mixed context `Σ_k π_k h_k`, shape `[N, d]`, from `π`, `[N, K]`, and `h`, `[N, K·d]`, of one float
    /// type.
    fn mix(prior: Floats<Self>, latent: Floats<Self>) -> Floats<Self> {
        mix::mix(prior, latent)
    }

    /// Gradients of `Σ grad ∘ output`, where `output` is the result of [`mix`](Self::mix): those that are wanted of `π` and of
    /// `h`, each of its tensor's shape.
    fn mix_backward(
        prior: Floats<Self>,
        latent: Floats<Self>,
        grad: Floats<Self>,
        wanted: [bool; 2],
    ) -> [Option<Floats<Self>>; 2] {
        mix::mix_backward(prior, latent, grad, wanted)
    }
}
