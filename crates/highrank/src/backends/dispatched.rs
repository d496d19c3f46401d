//! What users' tensors pass through on a plain backend.

/// The dispatched operations of a plain backend are its kernels.
macro_rules! dispatch_to_kernels {
    ($backend:ty $(where $($generics:tt)*)?) => {
        impl$(<$($generics)*>)? $crate::ops::OutputOps for $backend {
            fn loss(call: $crate::ops::LossCall<Self>) -> Vec<burn::backend::tensor::FloatTensor<Self>> {
                let $crate::ops::LossCall { input, objective, weights } = call;
                let parts = $crate::likelihood::portable::loss(input, objective, weights);
                parts.into_iter().map(|part| part.into_primitive()).collect()
            }

            fn latent(call: $crate::ops::LatentCall<Self>) -> burn::backend::tensor::FloatTensor<Self> {
                <Self as $crate::ops::Kernels>::latent(call.0).into_primitive()
            }

            fn mix(
                prior: burn::backend::tensor::FloatTensor<Self>,
                latent: burn::backend::tensor::FloatTensor<Self>,
            ) -> burn::backend::tensor::FloatTensor<Self> {
                let (prior, latent) =
                    (highrank_kernels::Floats::new(prior), highrank_kernels::Floats::new(latent));
                <Self as $crate::ops::Kernels>::mix(prior, latent).into_primitive()
            }

            fn predict(
                call: $crate::ops::LikelihoodCall<Self>,
                prediction: $crate::ops::Prediction<'_>,
            ) -> Option<burn::backend::tensor::FloatTensor<Self>> {
                let made = <Self as $crate::ops::Kernels>::predict(call.0, prediction);
                made.map(highrank_kernels::Floats::into_primitive)
            }

            fn product(
                lhs: burn::backend::tensor::FloatTensor<Self>,
                rhs: burn::backend::tensor::FloatTensor<Self>,
                precision: highrank_kernels::Precision,
            ) -> burn::backend::tensor::FloatTensor<Self> {
                let (lhs, rhs) = (highrank_kernels::Floats::new(lhs), highrank_kernels::Floats::new(rhs));
                <Self as $crate::ops::Kernels>::product(lhs, rhs, precision).into_primitive()
            }
        }
    };
}
pub(super) use dispatch_to_kernels;
