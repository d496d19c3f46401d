//! What a backend may compute of the likelihood by kernels of its own.

use super::portable;
use crate::ops::{Floats, Gradients, Ints, Kernels, LikelihoodInput, Objective, Prediction, Scores, Wanted};

/// The likelihood inside one backend. No call is tracked.
///
/// The default bodies are the [portable] ones. A backend overrides those that it has native kernels for.
pub trait LikelihoodKernels: Kernels {
    /// Loss of every token in nats, and what else the objective asks for; for an upstream gradient, shape `[N]`, also the
    /// wanted gradients of `Σ_n upstream_n · loss_n`.
    ///
    /// Tensors may have any float type; results have the [type of sums](crate::ops::wide). Targets are words of the vocabulary.
    /// The upstream gradient does not depend on the losses, so one pass computes both.
    fn score(
        input: LikelihoodInput<Floats<Self>>,
        objective: Objective<Floats<Self>, Ints<Self>>,
        gradient: Option<(Floats<Self>, Wanted)>,
    ) -> (Scores<Floats<Self>>, Gradients<Floats<Self>>) {
        portable::score(&input, &objective, gradient)
    }

    /// What is predicted of every token; a tensor in the [type of sums](crate::ops::wide), if one was asked
    /// for.
    fn predict(input: LikelihoodInput<Floats<Self>>, prediction: Prediction<'_>) -> Option<Floats<Self>> {
        portable::predict(&input, prediction)
    }
}
