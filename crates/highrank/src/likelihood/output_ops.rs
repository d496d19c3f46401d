//! What users' tensors pass through, dispatched at run time to the backend that they are on.

// Burn has deprecated NdArray; the feature stays for as long as Burn has it.
#![allow(deprecated)]

use std::sync::Arc;

use burn::backend::backend_extension;
use burn::backend::tensor::FloatTensor;
use burn::tensor::TensorData;
use highrank_kernels::{Floats, Precision};

use super::kernels::LikelihoodKernels;
use crate::ops::{Kernels, LatentCall, LossCall, Prediction, PredictionCall};

/// Sums a gradient with those that others have of the same tensor: values of the same shape and type.
pub type GradientSum = Arc<dyn Fn(TensorData) -> TensorData + Send + Sync>;

/// The operations that users' tensors pass through.
///
/// The default bodies are those of a plain backend: its [`Kernels`] and [`LikelihoodKernels`]. `Autodiff` has a hand-written
/// backward pass over these.
#[backend_extension(
    Flex: cfg(feature = "flex"),
    NdArray: cfg(feature = "ndarray"),
    Cube: cfg(feature = "gpu"),
    Autodiff
)]
pub trait OutputOps: LikelihoodKernels {
    /// The weighted sum of the losses, `[1]`, or without weights the loss of each token, `[N]`; after it the
    /// [other scores](crate::ops::Scores), if asked for. Of listed words, which have no weights, their
    /// [results](crate::ops::Scores::listed) are differentiable in place of the loss.
    fn loss(#[extension_type] call: LossCall<Self>) -> Vec<FloatTensor<Self>> {
        let (scores, _) = Self::score(call.input, call.objective, None);
        scores.weighted(call.weights).into_parts().into_iter().map(Floats::into_primitive).collect()
    }

    /// The latent layer of a mixture, shape `[N, F]`.
    fn latent(#[extension_type] args: LatentCall<Self>) -> FloatTensor<Self> {
        <Self as Kernels>::latent(args).into_primitive()
    }

    /// The mixed context `Σ_k π_k h_k`, shape `[N, d]`, from `π`, `[N, K]`, and `h`, `[N, K·d]`.
    #[allow(unused_variables)] // In the generated dispatch, if no backend's feature is on.
    fn mix(prior: FloatTensor<Self>, latent: FloatTensor<Self>) -> FloatTensor<Self> {
        <Self as Kernels>::mix(Floats::new(prior), Floats::new(latent)).into_primitive()
    }

    /// What is predicted of every token; a tensor, if one was asked for. A constant: no gradient flows
    /// through it.
    #[allow(unused_variables)] // In the generated dispatch, if no backend's feature is on.
    fn predict(
        #[extension_type] input: PredictionCall<Self>,
        prediction: Prediction<'_>,
    ) -> Option<FloatTensor<Self>> {
        <Self as LikelihoodKernels>::predict(input, prediction).map(Floats::into_primitive)
    }

    /// `lhs · rhs` of two matrices, what is read of them rounded as `precision` says.
    #[allow(unused_variables)] // In the generated dispatch, if no backend's feature is on.
    fn product(lhs: FloatTensor<Self>, rhs: FloatTensor<Self>, precision: Precision) -> FloatTensor<Self> {
        <Self as Kernels>::product(Floats::new(lhs), Floats::new(rhs), precision).into_primitive()
    }

    /// The tensor itself, whose gradient becomes what `sum` makes of it. A plain backend has no gradients.
    #[allow(unused_variables)] // No gradients, no sum.
    fn with_gradient_sum(tensor: FloatTensor<Self>, sum: GradientSum) -> FloatTensor<Self> {
        tensor
    }
}

highrank_kernels::listed_backends! {
    /// Whether [`OutputOps`] reaches the backend of a device. If not, the portable bodies run on the
    /// dispatched backend.
    pub fn has_kernels
}
