//! No map: the plain softmax.

use burn::backend::Backend;
use burn::module::Module;
use highrank_kernels::Floats;

use super::contract::Pointwise;

/// `f(z) = z`.
#[derive(Module, Debug, Default, Copy)]
pub struct Identity;

pub(crate) type Function = Identity;

impl Pointwise for Identity {
    fn apply<B: Backend>(self, z: Floats<B>) -> Floats<B> {
        z
    }

    fn vjp<B: Backend>(self, _z: Floats<B>, g: Floats<B>) -> Floats<B> {
        g
    }
}

#[cfg(feature = "flex")]
mod cpu {
    use highrank_kernels::cpu::Real;

    use super::super::cpu::{CpuBody, Layout, OnCpu};
    use super::Identity;

    impl OnCpu for Identity {
        type Body<T> = Self;

        fn on_cpu<T: Real>(self, _params: &[T]) -> Self {
            self
        }
    }

    impl<T: Real> CpuBody<T> for Identity {
        fn layout(&self) -> Layout {
            Layout { is_identity: true, ..Layout::NOTHING }
        }

        #[inline(always)]
        fn apply(&self, _block: &mut [T], _parts: &mut [T]) {}
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
        z
    }

    #[cube]
    pub(crate) fn slope(_z: f32, _table: &[f32], _numbers: &MapNumbers) -> f32 {
        1.0f32.runtime()
    }
}
