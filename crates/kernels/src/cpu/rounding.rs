//! Rounding to fewer digits: of tensors on Flex, straight on their memory, and of rows of f32 to bfloat16 in place.

use burn::backend::Flex;
use burn::tensor::{DType, bf16};
use burn_flex::FlexTensor;
use pulp::{Arch, Simd, WithSimd};

use super::{Buffer, Real, share};
use crate::rounding::{Number, Rounding};
use crate::tensor::Floats;

/// Numbers that a thread takes at a time, some ten microseconds' work; fewer wake no other thread.
const BLOCK: usize = 1 << 15;

impl Rounding for Flex {
    fn nearest(x: Floats<Self>, digits: u32) -> Floats<Self> {
        let tensor = x.into_primitive();
        Floats::new(match tensor.dtype() {
            DType::F64 => nearest::<f64>(tensor, digits),
            _ => nearest::<f32>(tensor, digits),
        })
    }
}

/// The result keeps the layout, so a transpose stays one. Memory that nobody else reads is written over.
fn nearest<T: Real + Number>(mut tensor: FlexTensor, digits: u32) -> FlexTensor {
    let elements = tensor.layout().num_elements();
    // A part of a larger tensor leaves the rest of its memory alone.
    if tensor.storage::<T>().len() > elements {
        tensor = match tensor.as_slice::<T>() {
            Some(part) => return copied(part, digits).into_tensor(tensor.layout().shape().clone()),
            None => tensor.to_contiguous(),
        };
    }
    if let Some(values) = tensor.try_storage_mut::<T>() {
        share(values.chunks_mut(BLOCK), |block| block.iter_mut().for_each(|x| *x = x.nearest(digits)));
        return tensor;
    }
    let values = copied(tensor.storage::<T>(), digits);
    let stored = values.len();
    values.into_tensor([stored]).with_layout(tensor.layout().clone())
}

fn copied<T: Real + Number>(values: &[T], digits: u32) -> Buffer<T> {
    let mut out = Buffer::new(values.len());
    share(out.chunks_mut(BLOCK).zip(values.chunks(BLOCK)), |(out, values)| {
        out.iter_mut().zip(values).for_each(|(out, x)| *out = x.nearest(digits));
    });
    out
}

/// Numbers that [`shorten`] reads before it writes over any of them.
const TOGETHER: usize = 64;

/// Multiplies numbers by a scale, rounds them to the nearest bfloat16, ties to even, and leaves these in the first half of
/// the memory; the other half holds nothing of use. Products then read half as much.
///
/// # Panics
/// If the numbers are not f32.
pub fn shorten<T: Real>(numbers: &mut [T], scale: T) {
    assert_eq!(T::dtype(), DType::F32, "bfloat16 is the upper half of an f32");
    let (numbers, scale) = (bytemuck::cast_slice_mut(numbers), bytemuck::cast(scale));
    Arch::new().dispatch(Shorten { numbers, scale });
}

/// The memory of f32 numbers as twice as many bfloat16: of [shortened](shorten) numbers the first half.
///
/// # Panics
/// If the numbers are not f32.
pub fn as_short<T: Real>(numbers: &[T]) -> &[bf16] {
    assert_eq!(T::dtype(), DType::F32, "bfloat16 is the upper half of an f32");
    bytemuck::cast_slice(numbers)
}

struct Shorten<'a> {
    numbers: &'a mut [f32],
    scale: f32,
}

impl WithSimd for Shorten<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) {
        let Self { numbers, scale } = self;
        let whole = numbers.len() / TOGETHER * TOGETHER;
        for first in (0..whole).step_by(TOGETHER) {
            let mut short = [0; TOGETHER];
            for (short, x) in short.iter_mut().zip(&numbers[first..first + TOGETHER]) {
                *short = upper_half(*x * scale);
            }
            bytemuck::cast_slice_mut::<f32, u16>(numbers)[first..first + TOGETHER].copy_from_slice(&short);
        }
        for i in whole..numbers.len() {
            let short = upper_half(numbers[i] * scale);
            bytemuck::cast_slice_mut::<f32, u16>(numbers)[i] = short;
        }
    }
}

/// The bits of the nearest bfloat16. NaN stays.
#[inline(always)]
fn upper_half(x: f32) -> u16 {
    let bits = x.to_bits();
    let to_even = 0x7fff + (bits >> 16 & 1);
    let nearest = bits.wrapping_add(to_even) >> 16;
    // A NaN whose digits are all in the lower half would become infinite.
    let nan = bits >> 16 | 0x40;
    (if x.is_nan() { nan } else { nearest }) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_rounded_to_nearest_in_the_first_half() {
        let special = [0.0, -0.0, 1.0, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::MIN_POSITIVE];
        // Half way between two numbers, and beside that.
        let ties = (0..8).map(|i| f32::from_bits(0x3f80_8000 + (i / 3) * 0x1_0000 + i % 3 - 1));
        let spread = (0..300).map(|i| (i as f32 * 0.731).sin() * 2f32.powi(i % 61 - 30));
        let all: Vec<f32> = special.into_iter().chain(ties).chain(spread).collect();
        for len in [0, 1, 63, 64, 65, 200, all.len()] {
            let mut numbers = all[..len].to_vec();
            let scale = if len % 2 == 0 { 1.0 } else { -0.7 };
            shorten(&mut numbers, scale);
            for (i, (got, x)) in as_short(&numbers).iter().zip(&all[..len]).enumerate() {
                assert_eq!(got.to_bits(), bf16::from_f32(*x * scale).to_bits(), "{x} at {i} of {len}");
            }
        }
    }

    #[test]
    fn what_is_not_a_number_stays_so() {
        let mut numbers = [f32::NAN, f32::from_bits(0x7f80_0001), f32::from_bits(0xff80_0001), 1.0];
        shorten(&mut numbers, 1.0);
        let short = as_short(&numbers);
        assert!(short[..3].iter().all(|x| x.is_nan()) && short[3] == bf16::ONE, "{short:?}");
    }

    #[test]
    #[should_panic(expected = "upper half of an f32")]
    fn f64_has_no_such_half() {
        shorten(&mut [1f64], 1.0);
    }
}
