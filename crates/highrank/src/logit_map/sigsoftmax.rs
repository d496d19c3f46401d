//! Sigsoftmax: Kanai et al., *Sigsoftmax: Reanalysis of the Softmax Bottleneck*, NeurIPS 2018.

use burn::backend::Backend;
use burn::module::Module;
use highrank_kernels::Floats;

use super::contract::Pointwise;
use crate::math::{log_sigmoid, sigmoid};

/// The sigsoftmax map `f(z) = z + log σ(z) = 2z − log(1 + e^z)`, without parameters.
///
/// `softmax(f(z))` is proportional to `e^z σ(z)`. Computed in log space, so no exponential overflows.
/// Introduced by Kanai et al., *Sigsoftmax: Reanalysis of the Softmax Bottleneck*, NeurIPS 2018.
#[derive(Module, Debug, Default, Copy)]
pub struct Sigsoftmax;

pub(crate) type Function = Sigsoftmax;

impl Pointwise for Sigsoftmax {
    fn apply<B: Backend>(self, z: Floats<B>) -> Floats<B> {
        z.clone() + log_sigmoid(z)
    }

    /// `f'(z) = 1 + σ(−z)`.
    fn vjp<B: Backend>(self, z: Floats<B>, g: Floats<B>) -> Floats<B> {
        g * sigmoid(-z).add_scalar(1.0)
    }
}
