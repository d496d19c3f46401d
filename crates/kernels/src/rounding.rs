//! Rounding to fewer binary digits, on the bits of the numbers.
//!
//! The usual formula `far − (far − x)`, with a multiple `far` of x, is gone once a compiler fuses its product into a sum or
//! cancels its terms, and it overflows for large x. Integer operations on the bits mean the same everywhere.

// Burn has deprecated NdArray; the feature stays for as long as Burn has it.
#![allow(deprecated)]

use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Dispatch, backend_extension};
use burn::tensor::DType;

use crate::node::{inner, record};
use crate::tensor::Floats;

/// A backend that rounds numbers to fewer digits.
pub trait Rounding: Backend {
    /// The nearest numbers with `digits` significant binary digits, one at least, ties to even, in the tensor's own type, f32 or
    /// f64. Of as many digits as the type has, or more, the numbers stay what they are.
    ///
    /// NaN and infinities stay, and a number becomes infinite where the next power of two that would be its nearest is beyond
    /// the type. Numbers below the smallest normal one are cut at the same place as that one; f64 on GPUs may keep more digits
    /// of them. The gradient passes as if nothing were rounded.
    fn nearest(x: Floats<Self>, digits: u32) -> Floats<Self>;
}

/// Significant binary digits of a type whose bits are rounded; none for shorter types, which are left as they are.
pub(crate) fn significant(dtype: DType) -> Option<u32> {
    match dtype {
        DType::F32 | DType::Flex32 => Some(f32::MANTISSA_DIGITS),
        DType::F64 => Some(f64::MANTISSA_DIGITS),
        _ => None,
    }
}

/// Binary digits that rounding cuts off the numbers of a type; none where it leaves them all.
pub(crate) fn cut(dtype: DType, digits: u32) -> Option<u32> {
    significant(dtype)?.checked_sub(digits).filter(|cut| *cut > 0)
}

/// A float type of the host.
#[cfg(any(feature = "flex", feature = "ndarray"))]
pub trait Number: Copy + Send + Sync {
    /// See [`Rounding::nearest`].
    fn nearest(self, digits: u32) -> Self;
}

#[cfg(any(feature = "flex", feature = "ndarray"))]
macro_rules! number {
    ($float:ident, $bits:ident) => {
        impl Number for $float {
            #[inline(always)]
            fn nearest(self, digits: u32) -> Self {
                let cut = $float::MANTISSA_DIGITS.saturating_sub(digits);
                let bits = self.to_bits();
                // All that is cut off; where that is nothing, so is what is added.
                let below: $bits = (1 << cut) - 1;
                let odd = (bits >> cut) & below & 1;
                // A carry out of the digits counts the exponent up, at last to that of infinity. That of NaN has nowhere to
                // go, but its bits are not used.
                let rounded = (bits.wrapping_add((below >> 1) + odd) >> cut) << cut;
                if self.is_nan() { self } else { Self::from_bits(rounded) }
            }
        }
    };
}
#[cfg(any(feature = "flex", feature = "ndarray"))]
number!(f32, u32);
#[cfg(any(feature = "flex", feature = "ndarray"))]
number!(f64, u64);

#[cfg(feature = "ndarray")]
impl Rounding for burn::backend::NdArray {
    fn nearest(x: Floats<Self>, digits: u32) -> Floats<Self> {
        fn each<T: Number + burn::tensor::Element>(data: &mut burn::tensor::TensorData, digits: u32) {
            let values = data.as_mut_slice::<T>().expect("data of the tensor's type");
            values.iter_mut().for_each(|x| *x = x.nearest(digits));
        }
        let (device, dtype) = (x.device(), x.dtype());
        let mut data = x.into_data();
        match dtype {
            DType::F64 => each::<f64>(&mut data, digits),
            _ => each::<f32>(&mut data, digits),
        }
        Floats::from_data(data, &device)
    }
}

impl<B: Rounding, C: CheckpointStrategy> Rounding for Autodiff<B, C> {
    fn nearest(x: Floats<Self>, digits: u32) -> Floats<Self> {
        // Differentiated as the identity.
        record("Rounding", [Some(x.clone())], |_| {
            (B::nearest(inner(x), digits), Some(|upstream: Floats<B>| [Some(upstream)]))
        })
    }
}

impl Rounding for Dispatch {
    fn nearest(x: Floats, digits: u32) -> Floats {
        match is_listed(&x.device()) {
            true => Floats::new(<Self as Dispatched>::dispatched(x.into_primitive(), digits)),
            false => by_sums(x, digits),
        }
    }
}

/// [`Rounding`] of the backend that a tensor is on.
#[backend_extension(
    Flex: cfg(feature = "flex"),
    NdArray: cfg(feature = "ndarray"),
    Cube: cfg(feature = "gpu"),
    Autodiff
)]
trait Dispatched: Rounding {
    #[allow(unused_variables)] // In the generated dispatch, if no backend's feature is on.
    fn dispatched(x: FloatTensor<Self>, digits: u32) -> FloatTensor<Self> {
        Self::nearest(Floats::new(x), digits).into_primitive()
    }
}

#[cfg(feature = "flex")]
impl Dispatched for burn::backend::Flex {}

#[cfg(feature = "ndarray")]
impl Dispatched for burn::backend::NdArray {}

#[cfg(feature = "gpu")]
impl Dispatched for burn::backend::Cube {}

impl<B: Rounding, C: CheckpointStrategy> Dispatched for Autodiff<B, C> {}

crate::listed_backends! {
    /// Whether [`Dispatched`] reaches the backend of a device.
    fn is_listed
}

/// Rounding by Veltkamp's splitting, for backends whose bits cannot be reached, and for f64 on GPUs; differentiable by composition.
///
/// The only products are by powers of two, which are exact, so fusing them with a sum changes nothing, and large numbers
/// are made small first. Numbers below the smallest normal one may keep more digits.
pub(crate) fn by_sums<B: Backend>(x: Floats<B>, digits: u32) -> Floats<B> {
    const LARGE: f64 = (1u128 << 64) as f64;
    let Some(cut) = cut(x.dtype(), digits) else { return x };
    let shift = (1u64 << cut) as f64;
    let magnitude = x.clone().abs();
    let large = magnitude.at_least(1.0);
    let small = x.clone().mul_scalar(1.0 / LARGE).keep_where(large.clone(), x.clone());
    let far = small.clone().mul_scalar(shift) + small.clone();
    let near = far.clone() - (far - small);
    let rounded = near.clone().mul_scalar(LARGE).keep_where(large, near);
    x.keep_where(magnitude.at_least(f64::INFINITY), rounded)
}

#[cfg(all(test, any(feature = "flex", feature = "ndarray", feature = "gpu")))]
#[path = "rounding_tests.rs"]
pub(crate) mod tests;
