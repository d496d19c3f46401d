//! The two float types of the CPU kernels, with the elementary functions that their loops are vectorised over.
//!
//! Both are branch-free, so the compiler turns a loop over a row into vector instructions; `mul_add` is one instruction
//! wherever the kernel is dispatched to AVX2, AVX-512 or NEON. NaN goes in, NaN comes out.

use burn::tensor::Element;
use bytemuck::Pod;
use core::ops::{Add, AddAssign, Div, Mul, MulAssign, Neg, Sub};

mod sealed {
    /// What the matrix products ask of an element.
    pub trait Sealed: faer::traits::ComplexField {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
}

/// f32 or f64, and no other type.
pub trait Real:
    sealed::Sealed
    + Element
    + Pod
    + PartialOrd
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + AddAssign
    + MulAssign
{
    /// 0.
    const ZERO: Self;
    /// 1.
    const ONE: Self;
    /// Minus infinity.
    const LOWEST: Self;

    /// The nearest value of this type.
    fn of(value: f64) -> Self;
    /// The value in f64.
    fn wide(self) -> f64;
    /// Natural logarithm.
    fn ln(self) -> Self;
    /// Hyperbolic tangent of the standard library, exact for small arguments; not vectorised.
    fn tanh(self) -> Self;
    /// Largest whole number not above.
    fn floor(self) -> Self;
    /// Magnitude.
    fn abs(self) -> Self;
    /// The value, a whole number from 0 to 2²³ − 1, as an index.
    fn index(self) -> u32;
    /// `self · a + b` with one rounding.
    fn mul_add(self, a: Self, b: Self) -> Self;

    /// `e^x`: relative error below 2.5 units of the last place for x up to 88 (f32) or 709 (f64); results
    /// below the smallest normal number are 0.
    fn exp(self) -> Self;

    /// `log(1 + t)` for `t` in [0, 1], relative error below 4 units of the last place.
    fn log1p_of_unit(self) -> Self;

    /// Natural logarithm of a finite positive number that is not subnormal, vectorised; relative error below 4 units of the
    /// last place. Of any other number but NaN it is a number without meaning.
    fn log(self) -> Self;
}

/// `2 artanh(s)` by its series up to the term of degree `2 last + 1`.
macro_rules! twice_artanh {
    ($float:ident, $s:expr, $last:expr) => {{
        let s: $float = $s;
        let square = s * s;
        let mut terms = 1.0 / (2 * ($last) + 1) as $float;
        let mut i = $last;
        while i > 0 {
            i -= 1;
            terms = terms.mul_add(square, 1.0 / (2 * i + 1) as $float);
        }
        2.0 * s * terms
    }};
}

macro_rules! real {
    ($float:ident, $bits:ident, $unit:expr, $magic:expr, $mantissa:expr, $bias:expr, $low:expr, $high:expr,
     $ln2_high:expr, $ln2_low:expr, $exp:expr, $log:expr) => {
        impl Real for $float {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            const LOWEST: Self = <$float>::NEG_INFINITY;

            #[inline(always)]
            fn of(value: f64) -> Self {
                value as $float
            }

            #[inline(always)]
            fn wide(self) -> f64 {
                self as f64
            }

            #[inline(always)]
            fn ln(self) -> Self {
                <$float>::ln(self)
            }

            #[inline(always)]
            fn tanh(self) -> Self {
                <$float>::tanh(self)
            }

            #[inline(always)]
            fn floor(self) -> Self {
                <$float>::floor(self)
            }

            #[inline(always)]
            fn abs(self) -> Self {
                <$float>::abs(self)
            }

            #[inline(always)]
            fn index(self) -> u32 {
                // Added to a power of two whose unit is 1, the number stands in the low bits. A cast would saturate,
                // for which there is no vector instruction.
                (self + $unit).to_bits() as u32 & 0x7f_ffff
            }

            #[inline(always)]
            fn mul_add(self, a: Self, b: Self) -> Self {
                <$float>::mul_add(self, a, b)
            }

            #[inline(always)]
            fn exp(self) -> Self {
                // Comparisons, not min and max: those would turn NaN into a number.
                let x = if self < $low { $low } else { self };
                let x = if x > $high { $high } else { x };
                // Adding 1.5·2^mantissa rounds to a whole number n and leaves it in the low bits.
                let shifted = x.mul_add(core::f64::consts::LOG2_E as $float, $magic);
                let n = shifted - $magic;
                // x = n ln 2 + r, the first part of ln 2 exact in few bits.
                let r = n.mul_add(-$ln2_low, n.mul_add(-$ln2_high, x));
                let coefficients: &[$float] = &$exp;
                let mut y = coefficients[0];
                let mut i = 1;
                while i < coefficients.len() {
                    y = y.mul_add(r, coefficients[i]);
                    i += 1;
                }
                let power = shifted.to_bits().wrapping_add($bias).wrapping_shl($mantissa);
                let result = y * <$float>::from_bits(power);
                if self < $low { 0.0 } else { result }
            }

            #[inline(always)]
            fn log1p_of_unit(self) -> Self {
                // log(1 + t) = 2 artanh(s) with s = t/(2 + t), at most 1/3.
                twice_artanh!($float, self / (self + 2.0), $log)
            }

            #[inline(always)]
            fn log(self) -> Self {
                // x = m 2^n with m from √½ to √2. The exponent, with its bias, becomes a number as in `index`.
                let half = (core::f64::consts::FRAC_1_SQRT_2 as $float).to_bits();
                let one = (1.0 as $float).to_bits();
                let biased = self.to_bits().wrapping_sub(half).wrapping_add(one) >> $mantissa;
                let n = <$float>::from_bits(biased | ($unit as $float).to_bits()) - ($unit + $bias as $float);
                let m = self.to_bits().wrapping_sub(biased.wrapping_sub($bias) << $mantissa);
                let m = <$float>::from_bits(m);
                // log m = 2 artanh(s) with |s| at most 0.172.
                let log = twice_artanh!($float, (m - 1.0) / (m + 1.0), $log / 2 + 2);
                let result = n.mul_add($ln2_high, n.mul_add($ln2_low, log));
                if self.is_nan() { self } else { result }
            }
        }
    };
}

// Coefficients of the exponential on |r| ≤ ½ ln 2, highest power first: for f32 the minimax polynomial of the Cephes
// library, for f64 the Taylor polynomial of degree 13, whose remainder is 4e-18.
real!(
    f32,
    u32,
    8_388_608.0,
    12_582_912.0,
    23,
    127,
    -87.336_54,
    88.0,
    355.0 / 512.0,
    -2.121_944_4e-4,
    [1.987_569_1e-4, 1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5, 1.0, 1.0],
    7
);
real!(
    f64,
    u64,
    4_503_599_627_370_496.0,
    6_755_399_441_055_744.0,
    52,
    1023,
    -708.396_418_532_264,
    709.0,
    0.693_145_751_953_125,
    1.428_606_820_309_417_2e-6,
    [
        1.0 / 6_227_020_800.0,
        1.0 / 479_001_600.0,
        1.0 / 39_916_800.0,
        1.0 / 3_628_800.0,
        1.0 / 362_880.0,
        1.0 / 40_320.0,
        1.0 / 5_040.0,
        1.0 / 720.0,
        1.0 / 120.0,
        1.0 / 24.0,
        1.0 / 6.0,
        0.5,
        1.0,
        1.0
    ],
    17
);

/// `log(1 + e^x)` for any x.
#[inline(always)]
pub fn softplus<T: Real>(x: T) -> T {
    let tail = (-x.abs()).exp().log1p_of_unit();
    if x > T::ZERO { x + tail } else { tail }
}

/// `1 / (1 + e^{−x})` for any x.
#[inline(always)]
pub fn sigmoid<T: Real>(x: T) -> T {
    let t = (-x.abs()).exp();
    let top = if x < T::ZERO { t } else { T::ONE };
    top / (T::ONE + t)
}

/// `tanh(x) = 2σ(2x) − 1`, vectorised; absolute error below 3 units of the last place of 1.
#[inline(always)]
pub fn tanh<T: Real>(x: T) -> T {
    let s = sigmoid(x + x);
    s + s - T::ONE
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worst(range: impl Iterator<Item = f64>, got: impl Fn(f64) -> f64, want: impl Fn(f64) -> f64) -> f64 {
        range.map(|x| ((got(x) - want(x)) / want(x)).abs()).fold(0.0, f64::max)
    }

    /// Points spread evenly over [low, high].
    fn grid(low: f64, high: f64) -> impl Iterator<Item = f64> {
        (0..=400_000).map(move |i| low + (high - low) * i as f64 / 400_000.0)
    }

    #[test]
    fn exponentials_keep_their_bound_over_the_whole_range() {
        let f32_error =
            worst(grid(-87.3, 88.0).map(|x| x as f32 as f64), |x| Real::exp(x as f32) as f64, f64::exp);
        assert!(f32_error < 2.5 * f32::EPSILON as f64 / 2.0, "{f32_error:e}");
        let f64_error = worst(grid(-708.0, 709.0), Real::exp, f64::exp);
        assert!(f64_error < 2.5 * f64::EPSILON / 2.0, "{f64_error:e}");
    }

    #[test]
    fn logarithms_keep_their_bound() {
        let small = (0..300).map(|i| 2f64.powi(-i / 3) * 0.9);
        let points = || grid(1e-6, 1.0).chain(small.clone());
        let f64_error = worst(points(), Real::log1p_of_unit, f64::ln_1p);
        assert!(f64_error < 4.0 * f64::EPSILON, "{f64_error:e}");
        let f32_error =
            worst(points().map(|t| t as f32 as f64), |t| (t as f32).log1p_of_unit() as f64, f64::ln_1p);
        assert!(f32_error < 4.0 * f32::EPSILON as f64, "{f32_error:e}");
    }

    #[test]
    fn logarithms_of_any_size_keep_their_bound() {
        let sizes = || (-1021..1023).map(|i: i32| 2f64.powi(i) * (1.0 + f64::from(i * i % 1009) / 1009.0));
        let points =
            || grid(0.4, 2.6).chain(grid(1.0 - 1e-4, 1.0 + 1e-4)).chain(sizes()).filter(|x| *x as f32 != 1.0);
        let f64_error = worst(points(), Real::log, f64::ln);
        assert!(f64_error < 4.0 * f64::EPSILON, "{f64_error:e}");
        let normal = |x: &f64| (1.2e-38..3.4e38).contains(x);
        let points = points().filter(normal).map(|x| x as f32 as f64);
        let f32_error = worst(points, |x| Real::log(x as f32) as f64, f64::ln);
        assert!(f32_error < 4.0 * f32::EPSILON as f64, "{f32_error:e}");
        assert_eq!((Real::log(1f32), Real::log(1f64)), (0.0, 0.0));
    }

    #[test]
    fn the_vectorised_tanh_keeps_its_bound() {
        let error = grid(-12.0, 12.0).map(|x| (tanh(x as f32) as f64 - (x as f32 as f64).tanh()).abs());
        let worst = error.fold(0.0, f64::max);
        assert!(worst < 3.0 * f32::EPSILON as f64, "{worst:e}");
    }

    #[test]
    fn whole_numbers_become_indices() {
        for i in (0..23).map(|bit| (1u32 << bit) - 1).chain([0, 1, 2, 999_999, 1_000_000, (1 << 23) - 1]) {
            assert_eq!((Real::index(i as f32), Real::index(i as f64)), (i, i));
        }
    }

    #[test]
    fn ends_and_nan_are_handled() {
        assert_eq!((Real::exp(0f32), Real::exp(-200f32), Real::exp(f32::NEG_INFINITY)), (1.0, 0.0, 0.0));
        assert_eq!((Real::exp(0f64), Real::exp(-800f64)), (1.0, 0.0));
        assert!(Real::exp(f32::NAN).is_nan() && Real::exp(f64::NAN).is_nan());
        assert!(Real::log(f32::NAN).is_nan() && Real::log(f64::NAN).is_nan());
        assert!(softplus(f32::NAN).is_nan() && sigmoid(f32::NAN).is_nan());
        assert_eq!((softplus(1e4f32), sigmoid(1e4f32), sigmoid(-1e4f32)), (1e4, 1.0, 0.0));
    }
}
