//! Soft cap: logits squeezed smoothly into `(−cap, cap)`.

use burn::backend::Backend;
use burn::module::Module;
use highrank_kernels::Floats;

use super::contract::Pointwise;
use crate::checks::{TensorChecks, scale_of_f32};
use crate::error::{HeadError, in_range};

/// The soft cap `f(z) = cap · tanh(z / cap)`, without parameters.
///
/// Keeps logits within `(−cap, cap)`, as the output layers of several recent language models do
/// (Gemma Team, *Gemma 2*, 2024, section 2), and bends them enough to lift the rank bound.
#[derive(Module, Debug, Copy)]
pub struct SoftCap {
    /// Largest magnitude of a mapped logit.
    pub cap: f64,
}

pub(crate) type Function = SoftCap;

impl Pointwise for SoftCap {
    fn validate(self) -> Result<(), HeadError> {
        in_range("cap", self.cap, "a positive finite number", f64::from_bits(1)..=f64::MAX)?;
        scale_of_f32("cap", self.cap)
    }

    fn check(self, checks: &TensorChecks) -> Result<(), HeadError> {
        checks.scale("cap", self.cap)
    }

    // Multiplied by 1/cap: the derivative of Burn's `div_scalar` rounds the divisor to f32.
    fn apply<B: Backend>(self, z: Floats<B>) -> Floats<B> {
        z.mul_scalar(1.0 / self.cap).tanh().mul_scalar(self.cap)
    }

    /// `f'(z) = 1 − tanh²(z / cap)`.
    fn vjp<B: Backend>(self, z: Floats<B>, g: Floats<B>) -> Floats<B> {
        g * (-z.mul_scalar(1.0 / self.cap).tanh().square()).add_scalar(1.0)
    }
}

#[cfg(feature = "flex")]
mod cpu {
    use highrank_kernels::cpu::{Real, tanh};

    use super::super::cpu::PointwiseOnCpu;
    use super::SoftCap;

    impl PointwiseOnCpu for SoftCap {
        #[inline(always)]
        fn value<T: Real>(self, z: T) -> T {
            T::of(self.cap) * tanh(z * T::of(1.0 / self.cap))
        }

        #[inline(always)]
        fn value_and_slope<T: Real>(self, z: T) -> [T; 2] {
            let t = tanh(z * T::of(1.0 / self.cap));
            [T::of(self.cap) * t, (-t).mul_add(t, T::ONE)]
        }
    }
}

#[cfg(feature = "gpu")]
pub(crate) mod gpu {
    use cubecl::prelude::*;

    use super::super::gpu::MapNumbers;
    use super::Function;

    pub(crate) fn numbers(function: Function) -> MapNumbers {
        MapNumbers { bound: function.cap as f32, ..MapNumbers::default() }
    }

    #[cube]
    pub(crate) fn apply(z: f32, _table: &[f32], numbers: &MapNumbers) -> f32 {
        (z / numbers.bound).tanh() * numbers.bound
    }

    #[cube]
    pub(crate) fn slope(z: f32, _table: &[f32], numbers: &MapNumbers) -> f32 {
        let y = (z / numbers.bound).tanh();
        1.0 - y * y
    }
}
