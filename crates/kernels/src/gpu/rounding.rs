//! Rounding of f32 to fewer digits on the bits, which no shader compiler may change; of f64 by sums.

// `#[cube]` makes a module beside each function, which cannot have documentation.
#![allow(missing_docs)]

use burn::tensor::DType;
use burn_cubecl::kernel::into_contiguous;
use cubecl::prelude::*;

use super::fused::{Fusion, FusionBackend, Inputs, Taken, operation};
use super::{CubeBackend, CubeTensor, MAX_INDEX, empty, one_unit_each};
use crate::precision::Precision;
use crate::rounding::{self, Rounding, by_sums};
use crate::tensor::Floats;

impl Rounding for CubeBackend {
    fn nearest(x: Floats<Self>, digits: u32) -> Floats<Self> {
        let Some(cut) = rounding::cut(x.dtype(), digits) else { return x };
        let elements = x.num_elements();
        if elements == 0 {
            return x;
        }
        if x.dtype() == DType::F64 || elements > MAX_INDEX {
            return by_sums(x, digits);
        }
        let tensor = x.into_primitive();
        // Numbers are rounded where they lie, so the transpose of a matrix stays one.
        let is_dense = tensor.is_contiguous_buffer() && tensor.is_nonoverlapping();
        let tensor = if is_dense { tensor } else { into_contiguous(tensor) };
        let out = empty(&tensor, [elements], tensor.dtype);
        let out = CubeTensor { meta: tensor.meta.clone(), ..out };
        let client = tensor.client.clone();
        let (cubes, units) = one_unit_each(&tensor, elements);
        // SAFETY: either memory has so many numbers, and no index is above them. All bits are valid in either type.
        unsafe {
            nearest::launch_unchecked(
                &client,
                cubes,
                units,
                BufferArg::from_raw_parts(tensor.handle, elements),
                BufferArg::from_raw_parts(out.handle.clone(), elements),
                elements as u32,
                cut,
            );
        }
        Floats::new(out)
    }
}

impl<B: FusionBackend + Rounding> Rounding for Fusion<B> {
    fn nearest(x: Floats<Self>, digits: u32) -> Floats<Self> {
        let output = (x.shape(), x.dtype());
        let inputs = Inputs::<B>::default();
        let x = inputs.float(x);
        let run = move |taken: &Taken<B>| vec![B::nearest(taken.float(x), digits)];
        operation("highrank_nearest", inputs, &[output], run).remove(0)
    }
}

/// Binary digits that a precision cuts off a number of f32, for [`short`]; 0 where it leaves all.
pub fn cut(precision: Precision) -> u32 {
    precision.digits().map_or(0, |digits| f32::MANTISSA_DIGITS - digits)
}

/// The nearest number of f32 without its last `cut` digits, ties to even.
#[cube]
pub fn short(x: f32, #[comptime] cut: u32) -> f32 {
    let mut nearest = x;
    if comptime!(cut > 0) {
        nearest = f32::reinterpret(short_bits(u32::reinterpret(x), cut));
    }
    nearest
}

/// The bits of [`short`].
#[cube]
fn short_bits(bits: u32, #[comptime] cut: u32) -> u32 {
    let odd = (bits >> cut) & 1u32;
    let mut rounded = ((bits + comptime!((1u32 << (cut - 1)) - 1) + odd) >> cut) << cut;
    // Neither NaN nor infinity has an exponent to carry into.
    if (bits & 0x7f80_0000u32) == 0x7f80_0000u32 {
        rounded = bits;
    }
    rounded
}

/// Cuts `cut` digits off each of `count` numbers, to nearest, ties to even.
#[cube(launch_unchecked)]
fn nearest(numbers: &[u32], out: &mut [u32], count: u32, #[comptime] cut: u32) {
    let mut number = ABSOLUTE_POS as u32;
    while number < count {
        out[number as usize] = short_bits(numbers[number as usize], cut);
        number += CUBE_COUNT_X * CUBE_DIM_X;
    }
}

#[cfg(all(test, any(feature = "wgpu", feature = "cuda")))]
mod tests {
    use super::*;
    use crate::gpu::testing::{Fused, Plain, device, values};
    use crate::rounding::tests::{DIGITS, assert_same, examples, expected};
    use burn::backend::{Backend, TensorMetadata};
    use burn::tensor::TensorData;

    fn check<B: Rounding<Device = super::super::CubeDevice>>(what: &str) {
        let from = examples();
        for digits in DIGITS {
            let want: Vec<f32> = from.iter().map(|x| expected(*x, digits)).collect();
            let x = Floats::<B>::from_data(TensorData::new(from.clone(), [from.len()]), &device());
            assert_same(&values(B::nearest(x, digits)), &want, &from, &format!("{what}, {digits} digits"));
        }
    }

    #[test]
    fn bits_are_rounded_to_the_nearest() {
        check::<Plain>("plain");
        check::<Fused>("fused");
    }

    /// By sums, on devices that have f64.
    #[test]
    fn numbers_of_f64_are_rounded_alike() {
        if !Plain::supports_dtype(&device(), DType::F64) {
            return;
        }
        let from: Vec<f64> = (0..4000)
            .map(|i| (f64::from(i) * 0.731).sin() * 2f64.powi(i % 61 - 30))
            .chain([
                0.0,
                -1.0,
                1.0 + 2f64.powi(-8),
                1.0 + 3.0 * 2f64.powi(-8),
                1.0 + 2f64.powi(-8) + 2f64.powi(-50),
            ])
            .chain([f64::MAX, f64::INFINITY, f64::NEG_INFINITY, 1e-300, -1e300])
            .collect();
        for digits in [8, 11, 20, 21, 30, 50] {
            let x = Floats::<Plain>::from_data(TensorData::new(from.clone(), [from.len()]), &device());
            let got: Vec<f64> = Plain::nearest(x, digits).into_data().iter().collect();
            for (got, from) in got.into_iter().zip(&from) {
                let cut = 53 - digits;
                let bits = from.to_bits();
                let odd = (bits >> cut) & 1;
                let rounded = f64::from_bits(((bits + (1 << (cut - 1)) - 1 + odd) >> cut) << cut);
                assert_eq!(got, if from.is_finite() { rounded } else { *from }, "{from:e}, {digits} digits");
            }
        }
        let nan = Floats::<Plain>::from_data(TensorData::new(vec![f64::NAN], [1]), &device());
        assert!(Plain::nearest(nan, 8).into_data().iter::<f64>().all(f64::is_nan));
    }

    #[test]
    fn as_many_digits_as_f64_has_leave_every_number() {
        let from = [1.0 + f64::EPSILON, f64::MAX];
        for digits in [53, 60] {
            let x = Floats::<Plain>::from_data(TensorData::new(from.to_vec(), [2]), &device());
            assert_eq!(Plain::nearest(x, digits).into_data().iter::<f64>().collect::<Vec<_>>(), from);
        }
    }

    #[test]
    fn a_transpose_stays_one() {
        let from: Vec<f32> = (0..70 * 33).map(|i| (i as f32 * 0.731).sin()).collect();
        let whole = Floats::<Plain>::from_data(TensorData::new(from, [70, 33]), &device());
        for view in
            [whole.clone(), whole.clone().transpose(), whole.clone().rows(3..9), whole.rows(3..9).transpose()]
        {
            let want: Vec<f32> = values(view.clone()).into_iter().map(|x| expected(x, 8)).collect();
            let rounded = Plain::nearest(view.clone(), 8);
            assert_eq!(rounded.primitive().shape(), view.primitive().shape());
            assert_eq!(values(rounded), want);
        }
        assert_eq!(values(Plain::nearest(Floats::zeros([0, 3], &device(), DType::F32), 8)), [0f32; 0]);
    }
}
