//! What each backend computes with: one file or folder a backend.
//!
//! | backend | likelihood | of contexts with gates | predictions | latent layer | products |
//! |---|---|---|---|---|---|
//! | Flex | native | native | native | native | native |
//! | CubeCL, in and out of fusion | native | native, gates composed | composed | native | of the stated precision |
//! | NdArray | portable | portable | portable | portable | Burn's |
//! | any other, on the dispatched backend | composed | composed | composed | composed | Burn's |
//!
//! `Autodiff` adds a backward pass written by hand to the first three.

/// Implements the dispatched operations of a plain backend by its kernels.
// Before the modules, which use it by its place.
#[cfg(any(feature = "flex", feature = "ndarray", feature = "gpu"))]
macro_rules! dispatch_to_kernels {
    ($backend:ty $(where $($generics:tt)*)?) => {
        const _: () = {
            use burn::backend::tensor::FloatTensor;
            use $crate::likelihood::LikelihoodKernels;
            use $crate::ops::{
                Floats, GradientSum, Kernels, LatentCall, LossCall, OutputOps, Precision, Prediction,
                PredictionCall,
            };

            impl$(<$($generics)*>)? OutputOps for $backend {
                fn loss(call: LossCall<Self>) -> Vec<FloatTensor<Self>> {
                    let (scores, _) = Self::score(call.input, call.objective, None);
                    scores.weighted(call.weights).into_parts().into_iter().map(Floats::into_primitive).collect()
                }

                fn latent(args: LatentCall<Self>) -> FloatTensor<Self> {
                    <Self as Kernels>::latent(args).into_primitive()
                }

                fn mix(prior: FloatTensor<Self>, latent: FloatTensor<Self>) -> FloatTensor<Self> {
                    <Self as Kernels>::mix(Floats::new(prior), Floats::new(latent)).into_primitive()
                }

                fn predict(
                    input: PredictionCall<Self>,
                    prediction: Prediction<'_>,
                ) -> Option<FloatTensor<Self>> {
                    <Self as LikelihoodKernels>::predict(input, prediction).map(Floats::into_primitive)
                }

                fn product(
                    lhs: FloatTensor<Self>,
                    rhs: FloatTensor<Self>,
                    precision: Precision,
                ) -> FloatTensor<Self> {
                    let (lhs, rhs) = (Floats::new(lhs), Floats::new(rhs));
                    <Self as Kernels>::product(lhs, rhs, precision).into_primitive()
                }

                fn with_gradient_sum(tensor: FloatTensor<Self>, _: GradientSum) -> FloatTensor<Self> {
                    tensor
                }
            }
        };
    };
}

mod autodiff;
#[cfg(feature = "gpu")]
mod cube;
#[cfg(feature = "flex")]
mod flex;
#[cfg(feature = "ndarray")]
mod ndarray;

use burn::backend::Dispatch;

use crate::likelihood::LikelihoodKernels;
use crate::ops::Kernels;

// The portable bodies are differentiable by composition, on whatever backend a device has.
impl Kernels for Dispatch {}

impl LikelihoodKernels for Dispatch {}

#[cfg(all(test, feature = "flex"))]
mod fallback_tests;
#[cfg(all(test, feature = "flex"))]
mod gated_tests;
#[cfg(all(test, feature = "flex"))]
mod latent_tests;
#[cfg(all(test, feature = "flex"))]
mod mix_tests;
#[cfg(all(test, feature = "flex"))]
mod testing;
