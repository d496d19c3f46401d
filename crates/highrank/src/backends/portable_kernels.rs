//! The portable bodies of [`Kernels`](crate::ops::Kernels), for backends that have no others.

/// All methods of `Kernels` that compute, composed of Burn's own operations.
macro_rules! portable_kernels {
    () => {
        fn score(
            input: $crate::ops::Likelihood<highrank_kernels::Floats<Self>>,
            objective: $crate::ops::Objective<highrank_kernels::Floats<Self>, highrank_kernels::Ints<Self>>,
        ) -> $crate::ops::Scores<highrank_kernels::Floats<Self>> {
            $crate::likelihood::portable::score(&input, &objective)
        }

        fn score_and_gradients(
            input: $crate::ops::Likelihood<highrank_kernels::Floats<Self>>,
            objective: $crate::ops::Objective<highrank_kernels::Floats<Self>, highrank_kernels::Ints<Self>>,
            upstream: highrank_kernels::Floats<Self>,
            wanted: $crate::ops::Wanted,
        ) -> (
            $crate::ops::Scores<highrank_kernels::Floats<Self>>,
            $crate::ops::Gradients<highrank_kernels::Floats<Self>>,
        ) {
            $crate::likelihood::portable::score_and_gradients(&input, &objective, upstream, wanted)
        }

        fn product(
            lhs: highrank_kernels::Floats<Self>,
            rhs: highrank_kernels::Floats<Self>,
            precision: highrank_kernels::Precision,
        ) -> highrank_kernels::Floats<Self> {
            highrank_kernels::precision::product(lhs, rhs, precision)
        }

        fn latent(
            args: $crate::ops::LatentArgs<highrank_kernels::Floats<Self>>,
        ) -> highrank_kernels::Floats<Self> {
            $crate::context::latent::latent(args)
        }

        fn latent_backward(
            args: $crate::ops::LatentArgs<highrank_kernels::Floats<Self>>,
            output: highrank_kernels::Floats<Self>,
            grad: highrank_kernels::Floats<Self>,
            wanted: $crate::ops::LatentWanted,
        ) -> $crate::ops::LatentGradients<highrank_kernels::Floats<Self>> {
            $crate::context::latent::latent_backward(args, output, grad, wanted)
        }
    };
}
pub(super) use portable_kernels;
