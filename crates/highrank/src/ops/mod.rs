//! The ground floor: what a backend may have kernels for, and the plain data that these operations pass.
//!
//! * [`Kernels`]: what runs inside of one backend, forward and backward. A backend's own folder in `backends/` says, a line a
//!   method, whether it takes a native kernel or the portable body.
//! * [`OutputOps`]: what users' tensors pass through, dispatched at run time to the backend they are on.
//! * [`Likelihood`], [`LatentArgs`], [`MapFunction`] and their gradients: generic over the type of a tensor, so the same data
//!   describe a call on users' tensors, on one backend's, or in the queue of Burn's fusion.
//!
//! The traits have no bodies; the portable bodies are in [`context::latent`](crate::context::latent) and
//! [`likelihood::portable`](crate::likelihood::portable).

// Burn has deprecated NdArray; the feature stays for as long as Burn has it.
#![allow(deprecated)]

mod calls;
mod gated;
mod host;
mod inputs;
mod latent;
mod likelihood;
mod map;
mod mix;
mod objective;
mod predict;

pub use calls::{LatentCall, LikelihoodCall, LossCall};
pub use gated::{GatedArgs, GatedGradients, GatedInputs, GatedWanted};
pub use highrank_kernels::precision::wide;
pub use highrank_kernels::{Floats, Ints, Precision};
pub use host::is_cpu;
pub use latent::{LatentArgs, LatentGradients, LatentInputs, LatentMask, LatentWanted};
pub use likelihood::{ContextSource, Gradients, Likelihood, PerInput, Wanted, runs};
pub use map::MapFunction;
pub use mix::{MixGradients, MixInputs, MixWanted};
pub(crate) use objective::assert_constant;
pub use objective::{MASKED, MASKING_BIAS, Objective, Scores, Statistic, Targets};
pub use predict::{Draw, Drawn, LogProbs, Prediction};

use burn::backend::tensor::{Device, FloatTensor};
use burn::backend::{Backend, backend_extension};
use highrank_kernels::Rounding;

/// What a backend computes inside of itself, by native kernels or by the portable bodies. No call is tracked.
pub trait Kernels: Rounding {
    /// Loss of every token in nats, and what else the objective asks for.
    ///
    /// Tensors may have any float type; results have the [type of sums](wide). Targets are words of the vocabulary.
    fn score(
        input: Likelihood<Floats<Self>>,
        objective: Objective<Floats<Self>, Ints<Self>>,
    ) -> Scores<Floats<Self>>;

    /// As [`score`](Self::score), and the gradients of `Σ_n upstream_n · loss_n`.
    ///
    /// The upstream gradient, shape `[N]`, does not depend on the losses, so one pass computes both.
    fn score_and_gradients(
        input: Likelihood<Floats<Self>>,
        objective: Objective<Floats<Self>, Ints<Self>>,
        upstream: Floats<Self>,
        wanted: Wanted,
    ) -> (Scores<Floats<Self>>, Gradients<Floats<Self>>);

    /// `lhs · rhs` of two matrices, what is read of them rounded as `precision` says.
    fn product(lhs: Floats<Self>, rhs: Floats<Self>, precision: Precision) -> Floats<Self>;

    /// The latent layer of a mixture, `tanh(g·W + b) ∘ mask`, shape `[N, F]`, in the [type of sums](wide).
    fn latent(args: LatentArgs<Floats<Self>>) -> Floats<Self>;

    /// Gradients of `Σ grad ∘ output`, where `output` is the result of [`latent`](Self::latent) for `args`, in the type of
    /// sums.
    fn latent_backward(
        args: LatentArgs<Floats<Self>>,
        output: Floats<Self>,
        grad: Floats<Self>,
        wanted: LatentWanted,
    ) -> LatentGradients<Floats<Self>>;

    /// The mixed context `Σ_k π_k h_k`, shape `[N, d]`, from `π`, `[N, K]`, and `h`, `[N, K·d]`, of one float type.
    fn mix(prior: Floats<Self>, latent: Floats<Self>) -> Floats<Self>;

    /// Gradients of `Σ grad ∘ output`, where `output` is the result of [`mix`](Self::mix).
    fn mix_backward(
        prior: Floats<Self>,
        latent: Floats<Self>,
        grad: Floats<Self>,
        wanted: MixWanted,
    ) -> MixGradients<Floats<Self>>;

    /// What is predicted of every token; a tensor in the [type of sums](wide), if one was asked for.
    fn predict(input: Likelihood<Floats<Self>>, prediction: Prediction<'_>) -> Option<Floats<Self>>;

    /// The largest logit matrix in bytes that a head without a budget of its own makes on the device, for a decoder of
    /// so many bytes.
    fn memory_budget(decoder_bytes: usize, device: &Device<Self>) -> usize;
}

/// The operations that users' tensors pass through.
///
/// On a plain backend they are its [`Kernels`]; on `Autodiff` a hand-written backward pass over these.
#[backend_extension(
    Flex: cfg(feature = "flex"),
    NdArray: cfg(feature = "ndarray"),
    Cube: cfg(feature = "gpu"),
    Autodiff
)]
pub trait OutputOps: Backend {
    /// The weighted sum of the losses, `[1]`, or without weights the loss of each token, `[N]`; after it the
    /// [statistics](Scores::statistics), if asked for.
    fn loss(#[extension_type] call: LossCall<Self>) -> Vec<FloatTensor<Self>>;

    /// The latent layer of a mixture, shape `[N, F]`.
    fn latent(#[extension_type] call: LatentCall<Self>) -> FloatTensor<Self>;

    /// The mixed context `Σ_k π_k h_k`, shape `[N, d]`, from `π`, `[N, K]`, and `h`, `[N, K·d]`.
    #[allow(unused_variables)] // In the generated dispatch, if no backend's feature is on.
    fn mix(prior: FloatTensor<Self>, latent: FloatTensor<Self>) -> FloatTensor<Self>;

    /// What is predicted of every token; a tensor, if one was asked for. A constant: no gradient flows through it.
    #[allow(unused_variables)] // In the generated dispatch, if no backend's feature is on.
    fn predict(
        #[extension_type] call: LikelihoodCall<Self>,
        prediction: Prediction<'_>,
    ) -> Option<FloatTensor<Self>>;

    /// `lhs · rhs` of two matrices, what is read of them rounded as `precision` says.
    #[allow(unused_variables)] // In the generated dispatch, if no backend's feature is on.
    fn product(lhs: FloatTensor<Self>, rhs: FloatTensor<Self>, precision: Precision) -> FloatTensor<Self>;
}

highrank_kernels::listed_backends! {
    /// Whether [`OutputOps`] reaches the backend of a device. If not, the portable bodies run on the dispatched backend.
    pub fn has_kernels
}
