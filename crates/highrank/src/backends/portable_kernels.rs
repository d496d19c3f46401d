//! The portable bodies of [`Kernels`](crate::ops::Kernels), for backends that have no others.

/// The methods of `Kernels` for the mixed context.
macro_rules! portable_mix {
    () => {
        fn mix(
            prior: highrank_kernels::Floats<Self>,
            latent: highrank_kernels::Floats<Self>,
        ) -> highrank_kernels::Floats<Self> {
            $crate::context::mixed::mix(prior, latent)
        }

        fn mix_backward(
            prior: highrank_kernels::Floats<Self>,
            latent: highrank_kernels::Floats<Self>,
            grad: highrank_kernels::Floats<Self>,
            wanted: $crate::ops::MixWanted,
        ) -> $crate::ops::MixGradients<highrank_kernels::Floats<Self>> {
            $crate::context::mixed::mix_backward(prior, latent, grad, wanted)
        }
    };
}
pub(super) use portable_mix;

/// The method of `Kernels` for predictions.
macro_rules! portable_predictions {
    () => {
        fn predict(
            input: $crate::ops::Likelihood<highrank_kernels::Floats<Self>>,
            prediction: $crate::ops::Prediction<'_>,
        ) -> Option<highrank_kernels::Floats<Self>> {
            $crate::likelihood::portable::predict(&input, prediction)
        }
    };
}
pub(super) use portable_predictions;

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

        $crate::backends::portable_kernels::portable_mix!();
        $crate::backends::portable_kernels::portable_predictions!();
    };
}
pub(super) use portable_kernels;
