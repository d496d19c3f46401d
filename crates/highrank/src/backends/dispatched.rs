//! What users' tensors pass through on a plain backend.

/// The dispatched operations of a plain backend are its kernels.
macro_rules! dispatch_to_kernels {
    ($backend:ty $(where $($generics:tt)*)?) => {
        impl$(<$($generics)*>)? $crate::ops::OutputOps for $backend {
            fn nll(call: $crate::ops::NllCall<Self>) -> burn::backend::tensor::FloatTensor<Self> {
                <Self as $crate::ops::Kernels>::nll(call.input, call.targets).into_primitive()
            }

            fn mean_nll(call: $crate::ops::NllCall<Self>) -> burn::backend::tensor::FloatTensor<Self> {
                let $crate::ops::NllCall { input, targets, weights } = call;
                $crate::likelihood::portable::mean_nll(input, targets, weights).into_primitive()
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
