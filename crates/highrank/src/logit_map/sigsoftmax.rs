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

#[cfg(feature = "flex")]
mod cpu {
    use highrank_kernels::cpu::{Real, softplus, softplus_and_sigmoid};

    use super::super::cpu::PointwiseOnCpu;
    use super::Sigsoftmax;

    impl PointwiseOnCpu for Sigsoftmax {
        #[inline(always)]
        fn value<T: Real>(self, z: T) -> T {
            z - softplus(-z)
        }

        #[inline(always)]
        fn value_and_slope<T: Real>(self, z: T) -> [T; 2] {
            let [softplus, sigmoid] = softplus_and_sigmoid(-z);
            [z - softplus, T::ONE + sigmoid]
        }
    }
}

#[cfg(feature = "gpu")]
pub(crate) mod gpu {
    use cubecl::prelude::*;

    use super::super::gpu::MapNumbers;
    use super::Function;

    pub(crate) fn numbers(_function: Function) -> MapNumbers {
        MapNumbers::default()
    }

    #[cube]
    pub(crate) fn apply(z: f32, _table: &[f32], _numbers: &MapNumbers) -> f32 {
        let mut negative = 0.0f32;
        if z < 0.0 {
            negative = z;
        }
        z + negative - (-z.abs()).exp().log1p()
    }

    #[cube]
    pub(crate) fn slope(z: f32, _table: &[f32], _numbers: &MapNumbers) -> f32 {
        1.0 + 1.0 / (1.0 + z.exp())
    }
}
