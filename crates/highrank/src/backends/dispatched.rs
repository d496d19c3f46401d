//! What users' tensors pass through on a plain backend.

/// The dispatched operations of a plain backend are its kernels.
macro_rules! dispatch_to_kernels {
    ($backend:ty $(where $($generics:tt)*)?) => {
        impl$(<$($generics)*>)? $crate::ops::OutputOps for $backend {
            fn loss(call: $crate::ops::LossCall<Self>) -> Vec<burn::backend::tensor::FloatTensor<Self>> {
                let $crate::ops::LossCall { input, objective, weights, reduction } = call;
                let parts = $crate::likelihood::portable::loss(input, objective, weights, reduction);
                parts.into_iter().map(|part| part.into_primitive()).collect()
            }

            fn latent(call: $crate::ops::LatentCall<Self>) -> burn::backend::tensor::FloatTensor<Self> {
                <Self as $crate::ops::Kernels>::latent(call.0).into_primitive()
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
