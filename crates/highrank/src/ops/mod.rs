//! The ground floor: what a backend may have kernels for, and the plain data that these operations pass. Only the logit maps
//! lie below: each is a formula with its bodies and needs nothing from here.
//!
//! * [`Kernels`]: matrix products, and what a backend computes for a context, forward and backward. The default bodies are the
//!   portable ones of [`latent`] and [`mix`]. What it computes for the likelihood is
//!   [`LikelihoodKernels`](crate::likelihood::LikelihoodKernels).
//! * [`OutputOps`]: what users' tensors pass through, dispatched at run time to the backend they are on.
//! * [`Likelihood`], [`LatentArgs`] and their gradients: generic over the type of a tensor,
//!   so the same data describe a call on users' tensors, on one backend's, or in the queue of Burn's fusion.

// Burn has deprecated NdArray; the feature stays for as long as Burn has it.
#![allow(deprecated)]

mod activation;
mod calls;
mod device;
mod divergence;
mod gated;
mod inputs;
pub mod latent;
mod likelihood;
pub mod mix;
mod objective;
mod predict;

pub(crate) use crate::logit_map::MapFunction;
pub use activation::{Activation, UnknownActivation};
pub use calls::{LatentCall, LossCall, PredictionCall};
pub use device::is_cpu;
pub use divergence::Divergence;
pub use gated::{GatedArgs, GatedGradients, GatedInputs, GatedWanted};
pub use highrank_kernels::precision::wide;
pub use highrank_kernels::{Floats, Ints, Precision};
pub use latent::{LatentArgs, LatentGradients, LatentInputs, LatentMask, LatentWanted};
pub use likelihood::{ContextSource, Gradients, Likelihood, PerInput, Wanted, runs};
pub use mix::{MixGradients, MixInputs, MixWanted};
pub(crate) use objective::assert_constant;
pub use objective::{MASKING_BIAS, Objective, Scores, Statistic, Targets};
pub use predict::{Draw, Drawn, LogProbs, Prediction};

use std::sync::Arc;

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, backend_extension};
use burn::tensor::TensorData;
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

    /// Gradients of `Σ grad ∘ output`, where `output` is the result of [`mix`](Self::mix).
    fn mix_backward(
        prior: Floats<Self>,
        latent: Floats<Self>,
        grad: Floats<Self>,
        wanted: MixWanted,
    ) -> MixGradients<Floats<Self>> {
        mix::mix_backward(prior, latent, grad, wanted)
    }
}

/// Sums a gradient with those that others have of the same tensor: values of the same shape and type.
pub type GradientSum = Arc<dyn Fn(TensorData) -> TensorData + Send + Sync>;

/// The operations that users' tensors pass through.
///
/// On a plain backend they are its [`Kernels`] and
/// [`LikelihoodKernels`](crate::likelihood::LikelihoodKernels); on `Autodiff` a hand-written backward pass
/// over these.
#[backend_extension(
    Flex: cfg(feature = "flex"),
    NdArray: cfg(feature = "ndarray"),
    Cube: cfg(feature = "gpu"),
    Autodiff
)]
pub trait OutputOps: Backend {
    /// The weighted sum of the losses, `[1]`, or without weights the loss of each token, `[N]`; after it the
    /// [other scores](Scores), if asked for. Of listed words, which have no weights, their [results](Scores::listed) are
    /// differentiable in place of the loss.
    fn loss(#[extension_type] call: LossCall<Self>) -> Vec<FloatTensor<Self>>;

    /// The latent layer of a mixture, shape `[N, F]`.
    fn latent(#[extension_type] args: LatentCall<Self>) -> FloatTensor<Self>;

    /// The mixed context `Σ_k π_k h_k`, shape `[N, d]`, from `π`, `[N, K]`, and `h`, `[N, K·d]`.
    #[allow(unused_variables)] // In the generated dispatch, if no backend's feature is on.
    fn mix(prior: FloatTensor<Self>, latent: FloatTensor<Self>) -> FloatTensor<Self>;

    /// What is predicted of every token; a tensor, if one was asked for. A constant: no gradient flows
    /// through it.
    #[allow(unused_variables)] // In the generated dispatch, if no backend's feature is on.
    fn predict(
        #[extension_type] input: PredictionCall<Self>,
        prediction: Prediction<'_>,
    ) -> Option<FloatTensor<Self>>;

    /// `lhs · rhs` of two matrices, what is read of them rounded as `precision` says.
    #[allow(unused_variables)] // In the generated dispatch, if no backend's feature is on.
    fn product(lhs: FloatTensor<Self>, rhs: FloatTensor<Self>, precision: Precision) -> FloatTensor<Self>;

    /// The tensor itself, whose gradient becomes what `sum` makes of it.
    #[allow(unused_variables)] // In the generated dispatch, if no backend's feature is on.
    fn with_gradient_sum(tensor: FloatTensor<Self>, sum: GradientSum) -> FloatTensor<Self>;
}

highrank_kernels::listed_backends! {
    /// Whether [`OutputOps`] reaches the backend of a device. If not, the portable bodies run on the
    /// dispatched backend.
    pub fn has_kernels
}
