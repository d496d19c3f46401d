//! Sigsoftmax: Kanai et al., *Sigsoftmax: Reanalysis of the Softmax Bottleneck*, NeurIPS 2018.

use burn::backend::Backend;
use burn::module::Module;
use highrank_kernels::Floats;

use crate::math::{log_sigmoid, sigmoid};

/// The sigsoftmax map `f(z) = z + log σ(z) = 2z − log(1 + e^z)`, without parameters.
///
/// `softmax(f(z))` is proportional to `e^z σ(z)`. Computed in log space, so no exponential overflows.
/// Introduced by Kanai et al., *Sigsoftmax: Reanalysis of the Softmax Bottleneck*, NeurIPS 2018.
#[derive(Module, Debug, Default)]
pub struct Sigsoftmax;

pub(super) fn apply<B: Backend>(z: Floats<B>) -> Floats<B> {
    z.clone() + log_sigmoid(z)
}

/// `f'(z) = 1 + σ(−z)`.
pub(super) fn vjp<B: Backend>(z: Floats<B>, g: Floats<B>) -> Floats<B> {
    g * sigmoid(-z).add_scalar(1.0)
}
