//! The two float types of the CPU kernels, with the elementary functions that their loops are vectorised over.
//!
//! Both are branch-free, so the compiler turns a loop over a row into vector instructions; `mul_add` is one instruction
//! wherever the kernel is dispatched to AVX2, AVX-512 or NEON. NaN goes in, NaN comes out.

use burn::tensor::Element;
use bytemuck::Pod;
use core::ops::{Add, AddAssign, Div, Mul, MulAssign, Neg, Sub};

mod sealed {
    /// What the matrix products ask of an element.
    pub trait Sealed:
        faer::traits::ComplexField + crate::rounding::Number + crate::cpu::vectors::Vectors
    {
    }
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
    /// The smallest finite number.
    const MIN: Self;

    /// The nearest value of this type.
    fn of(value: f64) -> Self;
    /// The value in f64.
    fn wide(self) -> f64;
    /// Largest whole number not above.
    fn floor(self) -> Self;
    /// Magnitude.
    fn abs(self) -> Self;
    /// Whether the sign is a minus, that of −0 too.
    fn has_minus(self) -> bool;
    /// The value, a whole number from 0 to 2²³ − 1, as an index.
    fn index(self) -> u32;
    /// The largest of some numbers, [`LOWEST`](Self::LOWEST) of none; vectorised. NaN may be passed over, or be the result.
    fn largest(numbers: impl Iterator<Item = Self>) -> Self;
    /// The nearest number from `low` to `high`, which must not be above; NaN stays NaN.
    fn clamped(self, low: Self, high: Self) -> Self;
    /// `self · a + b` with one rounding.
    fn mul_add(self, a: Self, b: Self) -> Self;

    /// `e^x`: relative error below 2.5 units of the last place for x up to 88 (f32) or 709 (f64); results
    /// below the smallest normal number are 0.
    fn exp(self) -> Self;

    /// As [`exp`](Self::exp), but cheaper, and unspecified for x beyond 88 (f32) or 709 (f64).
    fn exp_of_bounded(self) -> Self;

    /// `2^x` for x from −126 to 127, relative error below 4 units of the last place; an unspecified number for any other x
    /// but NaN.
    fn exp2_of_bounded(self) -> Self;

    /// `e^x − 1` for x up to 0, relative error below 4 units of the last place, also near 0; an unspecified number for
    /// positive x.
    fn exp_m1_of_nonpositive(self) -> Self;

    /// `2 artanh(s) = log((1 + s) / (1 − s))` for `|s|` up to 1/3, relative error below 3 units of the last place.
    fn twice_artanh_of_third(self) -> Self;

    /// `log(1 + t)` for `t` in [0, 1], relative error below 4 units of the last place.
    #[inline(always)]
    fn log1p_of_unit(self) -> Self {
        // s = t / (2 + t) is at most 1/3.
        (self / (self + Self::ONE + Self::ONE)).twice_artanh_of_third()
    }

    /// Natural logarithm of a finite positive number that is not subnormal, vectorised; relative error below 4 units of the
    /// last place. An unspecified number for any other number but NaN.
    fn log(self) -> Self;
}

/// A polynomial, highest power first.
macro_rules! polynomial {
    ($float:ident, $x:expr, $coefficients:expr) => {{
        let x: $float = $x;
        let coefficients: &[$float] = &$coefficients;
        let mut y = coefficients[0];
        let mut i = 1;
        while i < coefficients.len() {
            y = y.mul_add(x, coefficients[i]);
            i += 1;
        }
        y
    }};
}

/// `x = n ln 2 + r` with `|r| ≤ ½ ln 2`: `r` and `2^n`.
macro_rules! reduced {
    ($float:ident, $x:expr, $mantissa:expr, $magic:expr, $ln2_high:expr, $ln2_low:expr) => {{
        let x: $float = $x;
        // Adding 1.5·2^mantissa and the exponent's bias rounds to a whole number, and leaves in the low bits the exponent of
        // 2^n.
        let shifted = x.mul_add(core::f64::consts::LOG2_E as $float, $magic);
        let n = shifted - $magic;
        // The first part of ln 2 is exact in few bits.
        let r = n.mul_add(-$ln2_low, n.mul_add(-$ln2_high, x));
        (r, <$float>::from_bits(shifted.to_bits().wrapping_shl($mantissa)))
    }};
}

macro_rules! real {
    ($float:ident, $bits:ident, $int:ident, $unit:expr, $magic:expr, $mantissa:expr, $bias:expr, $low:expr, $high:expr,
     $ln2_high:expr, $ln2_low:expr, $exp:expr, $exp2:expr, $artanh:expr, $log:expr) => {
        impl Real for $float {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            const LOWEST: Self = <$float>::NEG_INFINITY;
            const MIN: Self = <$float>::MIN;

            #[inline(always)]
            fn of(value: f64) -> Self {
                value as $float
            }

            #[inline(always)]
            fn wide(self) -> f64 {
                self as f64
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
            fn has_minus(self) -> bool {
                self.is_sign_negative()
            }

            #[inline(always)]
            fn index(self) -> u32 {
                // Added to a power of two whose unit is 1, the number stands in the low bits. A cast would saturate,
                // for which there is no vector instruction.
                (self + $unit).to_bits() as u32 & 0x7f_ffff
            }

            #[inline(always)]
            fn largest(numbers: impl Iterator<Item = Self>) -> Self {
                // Whole numbers in the order of the floats, because their maximum may be taken in any order.
                let key = |bits: $bits| {
                    bits.cast_signed() ^ ((bits.cast_signed() >> ($bits::BITS - 1)) & $int::MAX)
                };
                let lowest = key(Self::LOWEST.to_bits());
                let largest = numbers.fold(lowest, |most, x| most.max(key(x.to_bits())));
                <$float>::from_bits(key(largest.cast_unsigned()).cast_unsigned())
            }

            #[inline(always)]
            fn clamped(self, low: Self, high: Self) -> Self {
                self.clamp(low, high)
            }

            #[inline(always)]
            fn mul_add(self, a: Self, b: Self) -> Self {
                <$float>::mul_add(self, a, b)
            }

            #[inline(always)]
            fn exp(self) -> Self {
                // A comparison, not min: that would turn NaN into a number.
                let x = if self > $high { $high } else { self };
                x.exp_of_bounded()
            }

            #[inline(always)]
            fn exp_of_bounded(self) -> Self {
                let (r, power) = reduced!($float, self, $mantissa, $magic, $ln2_high, $ln2_low);
                let result = polynomial!($float, r, $exp).mul_add(r, 1.0) * power;
                if self < $low { 0.0 } else { result }
            }

            #[inline(always)]
            fn exp2_of_bounded(self) -> Self {
                let shifted = self + $magic;
                let power = <$float>::from_bits(shifted.to_bits().wrapping_shl($mantissa));
                // The subtractions are exact.
                polynomial!($float, self - (shifted - $magic), $exp2) * power
            }

            #[inline(always)]
            fn exp_m1_of_nonpositive(self) -> Self {
                let (r, power) = reduced!($float, self, $mantissa, $magic, $ln2_high, $ln2_low);
                // e^x − 1 = 2^n (e^r − 1) + (2^n − 1): without a loss of digits, as e^r − 1 is made as such.
                let result = (r * polynomial!($float, r, $exp)).mul_add(power, power - 1.0);
                if self < $low { -1.0 } else { result }
            }

            #[inline(always)]
            fn twice_artanh_of_third(self) -> Self {
                2.0 * self * polynomial!($float, self * self, $artanh)
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
                let s = (m - 1.0) / (m + 1.0);
                let log = 2.0 * s * polynomial!($float, s * s, $log);
                let result = n.mul_add($ln2_high, n.mul_add($ln2_low, log));
                if self.is_nan() { self } else { result }
            }
        }
    };
}

// Minimax polynomials, highest power first. Those of the exponentials are of relative error 3e-9 and 4e-18 (f32 and f64) on
// |r| ≤ ½ ln 2, without their constant 1; those of 2^f 7e-8 and 2e-17 on |f| ≤ ½; those of artanh(s)/s, in s², 4e-9 and
// 5e-17 for |s| ≤ 1/3, and 7e-10 and 1e-18 for |s| ≤ 0.172, which the logarithm takes.
real!(
    f32,
    u32,
    i32,
    8_388_608.0,
    12_582_912.0 + 127.0,
    23,
    127,
    -87.336_54,
    88.0,
    355.0 / 512.0,
    -2.121_944_4e-4,
    [1.381_460_2e-3, 8.368_717_5e-3, 4.166_839e-2, 1.666_652_1e-1, 4.999_999_4e-1, 1.0],
    [1.327_646_9e-3, 9.675_553e-3, 5.550_713_4e-2, 2.402_212e-1, 6.931_469_7e-1, 1.000_000_1],
    [1.408_951_7e-1, 1.398_023_4e-1, 2.001_245_9e-1, 3.333_315_8e-1, 1.0],
    [1.496_453_1e-1, 1.998_733_4e-1, 3.333_341e-1, 1.0]
);
real!(
    f64,
    u64,
    i64,
    4_503_599_627_370_496.0,
    6_755_399_441_055_744.0 + 1023.0,
    52,
    1023,
    -708.396_418_532_264,
    709.0,
    0.693_145_751_953_125,
    1.428_606_820_309_417_2e-6,
    [
        2.500_005_670_816_052_3e-8,
        2.763_024_799_015_508_5e-7,
        2.755_758_638_843_295e-6,
        2.480_149_310_007_098e-5,
        1.984_126_950_656_571e-4,
        1.388_888_894_362_894_5e-3,
        8.333_333_333_494_465e-3,
        4.166_666_666_653_016e-2,
        1.666_666_666_666_641_3e-1,
        5.000_000_000_000_011e-1,
        1.0
    ],
    [
        4.078_085_628_770_343e-10,
        7.072_574_046_366_703e-9,
        1.018_064_809_354_719_3e-7,
        1.321_544_265_716_157e-6,
        1.525_272_738_280_057_7e-5,
        1.540_353_044_160_189_6e-4,
        1.333_355_815_344_398_4e-3,
        9.618_129_107_606_985e-3,
        5.550_410_866_479_037e-2,
        2.402_265_069_591_009_7e-1,
        6.931_471_805_599_457e-1,
        1.0
    ],
    [
        8.898_990_551_803_285e-2,
        4.936_109_649_948_896_4e-2,
        6.796_541_210_803_474e-2,
        7.681_738_805_012_497e-2,
        9.091_436_368_932_884e-2,
        1.111_109_518_329_290_2e-1,
        1.428_571_456_113_988_7e-1,
        1.999_999_999_758_672e-1,
        3.333_333_333_334_152_5e-1,
        1.0
    ],
    [
        7.407_180_555_929_899e-2,
        7.656_038_364_880_106e-2,
        9.091_824_412_811_392e-2,
        1.111_109_836_763_718_2e-1,
        1.428_571_438_185_966_5e-1,
        1.999_999_999_964_419_7e-1,
        3.333_333_333_333_383_7e-1,
        1.0
    ]
);

/// `log(1 + e^x)` for any x.
#[inline(always)]
pub fn softplus<T: Real>(x: T) -> T {
    let tail = (-x.abs()).exp_of_bounded().log1p_of_unit();
    if x > T::ZERO { x + tail } else { tail }
}

/// `1 / (1 + e^{−x})` for any x.
#[inline(always)]
pub fn sigmoid<T: Real>(x: T) -> T {
    let t = (-x.abs()).exp_of_bounded();
    let top = if x < T::ZERO { t } else { T::ONE };
    top / (T::ONE + t)
}

/// [`softplus`] and its derivative, [`sigmoid`], by one exponential and one division.
#[inline(always)]
pub fn softplus_and_sigmoid<T: Real>(x: T) -> [T; 2] {
    let t = (-x.abs()).exp_of_bounded();
    let (one, two) = (T::ONE + t, T::ONE + T::ONE + t);
    let inverse = T::ONE / (one * two);
    let tail = (t * one * inverse).twice_artanh_of_third();
    let top = if x < T::ZERO { t } else { T::ONE };
    [if x > T::ZERO { x + tail } else { tail }, top * two * inverse]
}

/// `tanh(x)` for any x, relative error below 4 units of the last place, also near 0.
#[inline(always)]
pub fn tanh<T: Real>(x: T) -> T {
    let m = (-(x.abs() + x.abs())).exp_m1_of_nonpositive();
    let t = m / (-(T::ONE + T::ONE) - m);
    if x < T::ZERO { -t } else { t }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the relative errors of a function of either type, in units of the last place of that type.
    fn check(
        what: &str,
        points: [&[f64]; 2],
        (of_f32, of_f64): (impl Fn(f32) -> f32, impl Fn(f64) -> f64),
        exact: impl Fn(f64) -> f64,
        most: [f64; 2],
    ) {
        let error = |x: f64, got: f64| ((got - exact(x)) / exact(x)).abs();
        let rounded = points[0].iter().map(|x| *x as f32);
        let errors = [
            rounded.map(|x| error(x as f64, of_f32(x) as f64)).fold(0.0, f64::max) / f32::EPSILON as f64,
            points[1].iter().map(|x| error(*x, of_f64(*x))).fold(0.0, f64::max) / f64::EPSILON,
        ];
        let units = errors.map(|error| 2.0 * error);
        assert!(units[0] < most[0] && units[1] < most[1], "{what}: {units:?} units of the last place");
    }

    /// Points spread evenly over each [low, high].
    fn grid<const N: usize>(ranges: [(f64, f64); N]) -> Vec<f64> {
        let points = |(low, high)| (0..=400_000).map(move |i| low + (high - low) * i as f64 / 400_000.0);
        ranges.into_iter().flat_map(points).collect()
    }

    /// Those of some numbers that a test is for.
    fn only(points: &[f64], test: impl Fn(f64) -> bool) -> Vec<f64> {
        points.iter().copied().filter(|x| test(*x)).collect()
    }

    /// Small numbers of either sign.
    fn small() -> Vec<f64> {
        let sizes = (0..300).map(|i| 2f64.powi(-i / 3) * (1.0 + f64::from(i % 3) / 3.1));
        sizes.flat_map(|size| [size, -size]).collect()
    }

    #[test]
    fn exponentials_keep_their_bounds() {
        let points = [grid([(-87.3, 88.0)]), grid([(-708.0, 709.0)])];
        check("exp", [&points[0], &points[1]], (Real::exp, Real::exp), f64::exp, [2.5; 2]);

        let points = grid([(-126.0, 127.0), (-1.0, 1.0)]);
        let got = (Real::exp2_of_bounded, Real::exp2_of_bounded);
        check("exp2", [&points; 2], got, f64::exp2, [4.0; 2]);

        let negative = only(&small(), |x| x < 0.0);
        let points = [grid([(-90.0, -1e-6), (-2.0, -1e-6)]), negative].concat();
        let got = (Real::exp_m1_of_nonpositive, Real::exp_m1_of_nonpositive);
        check("exp_m1", [&points; 2], got, f64::exp_m1, [4.0; 2]);
    }

    #[test]
    fn logarithms_keep_their_bounds() {
        let sizes = (0..300).map(|i| 2f64.powi(-i / 3) * 0.9).collect();
        let points = [grid([(1e-6, 1.0)]), sizes].concat();
        let got = (Real::log1p_of_unit, Real::log1p_of_unit);
        check("log1p", [&points; 2], got, f64::ln_1p, [8.0; 2]);

        let sizes = (-1021..1023).map(|i: i32| 2f64.powi(i) * (1.0 + f64::from(i * i % 1009) / 1009.0));
        let points = [grid([(0.4, 2.6), (1.0 - 1e-4, 1.0 + 1e-4)]), sizes.collect()].concat();
        let points = only(&points, |x| x as f32 != 1.0);
        let normal = only(&points, |x| (1.2e-38..3.4e38).contains(&x));
        check("log", [&normal, &points], (Real::log, Real::log), f64::ln, [8.0; 2]);
        assert_eq!((Real::log(1f32), Real::log(1f64)), (0.0, 0.0));

        let third = only(&small(), |s| s.abs() <= 1.0 / 3.0);
        let points = [grid([(1e-6, 1.0 / 3.0)]), third].concat();
        let below = only(&points, |s| s as f32 as f64 <= 1.0 / 3.0);
        let got = (Real::twice_artanh_of_third, Real::twice_artanh_of_third);
        let exact = |s: f64| (2.0 * s / (1.0 - s)).ln_1p();
        check("artanh", [&below, &points], got, exact, [3.0, 6.0]);
    }

    #[test]
    fn hyperbolic_tangents_keep_their_bound() {
        let points = [only(&grid([(-12.0, 12.0)]), |x| x != 0.0), grid([(1e-6, 1.0)]), small()].concat();
        check("tanh", [&points; 2], (tanh, tanh), f64::tanh, [4.0, 8.0]);
        assert_eq!((tanh(0f32), tanh(1e3f32), tanh(-1e3f32)), (0.0, 1.0, -1.0));
        assert_eq!((tanh(0f64), tanh(1e3f64), tanh(-1e3f64)), (0.0, 1.0, -1.0));
    }

    #[test]
    fn softplus_and_its_slope_share_their_parts() {
        let points = grid([(-80.0, 80.0), (-4.0, 4.0)]);
        let got = (|x| softplus_and_sigmoid(x)[0], |x| softplus_and_sigmoid(x)[0]);
        check("softplus", [&points; 2], got, |x| x.max(0.0) + (-x.abs()).exp().ln_1p(), [8.0, 16.0]);
        let got = (|x| softplus_and_sigmoid(x)[1], |x| softplus_and_sigmoid(x)[1]);
        check("sigmoid", [&points; 2], got, |x| 1.0 / (1.0 + (-x).exp()), [8.0, 16.0]);
        check("softplus alone", [&points, &[]], (softplus, softplus), softplus, [8.0, 1.0]);
    }

    #[test]
    fn whole_numbers_become_indices() {
        for i in (0..23).map(|bit| (1u32 << bit) - 1).chain([0, 1, 2, 999_999, 1_000_000, (1 << 23) - 1]) {
            assert_eq!((Real::index(i as f32), Real::index(i as f64)), (i, i));
        }
    }

    #[test]
    fn the_largest_of_numbers_is_found() {
        let of = |numbers: &[f32]| {
            let wide = numbers.iter().map(|x| *x as f64);
            assert_eq!(f64::largest(wide), f32::largest(numbers.iter().copied()) as f64);
            f32::largest(numbers.iter().copied())
        };
        assert_eq!(of(&[]), f32::NEG_INFINITY);
        assert_eq!(of(&[f32::NEG_INFINITY; 3]), f32::NEG_INFINITY);
        assert_eq!(of(&[1.0, f32::INFINITY, -1.0]), f32::INFINITY);
        for len in [1, 7, 16, 33, 700] {
            for sign in [1.0, -1.0] {
                for offset in [0.0, 200.0, 400.0] {
                    let numbers: Vec<f32> =
                        (0..len).map(|i| sign * ((i * 7919 % 499) as f32 / 1.7 - offset)).collect();
                    assert_eq!(of(&numbers), numbers.iter().copied().fold(f32::NEG_INFINITY, f32::max));
                }
            }
        }
    }

    #[test]
    fn ends_and_nan_are_handled() {
        assert_eq!((Real::exp(0f32), Real::exp(-200f32), Real::exp(f32::NEG_INFINITY)), (1.0, 0.0, 0.0));
        assert_eq!((Real::exp(0f64), Real::exp(-800f64)), (1.0, 0.0));
        assert!(Real::exp(f32::NAN).is_nan() && Real::exp(f64::NAN).is_nan());
        assert!(Real::log(f32::NAN).is_nan() && Real::log(f64::NAN).is_nan());
        assert!(softplus(f32::NAN).is_nan() && sigmoid(f32::NAN).is_nan() && tanh(f32::NAN).is_nan());
        assert!(softplus_and_sigmoid(f32::NAN).iter().all(|x| x.is_nan()));
        assert!(Real::exp2_of_bounded(f32::NAN).is_nan() && Real::exp_of_bounded(f64::NAN).is_nan());
        assert_eq!((Real::exp_of_bounded(f32::NEG_INFINITY), Real::exp_of_bounded(-1e30f32)), (0.0, 0.0));
        assert_eq!((softplus(1e4f32), sigmoid(1e4f32), sigmoid(-1e4f32)), (1e4, 1.0, 0.0));
        assert!(Real::has_minus(-0f32) && Real::has_minus(-1f64));
        assert!(!Real::has_minus(0f32) && !Real::has_minus(f64::INFINITY));
    }
}
