//! The vectors of f32 and f64 under the same names, for loops that say what they keep in registers.
//!
//! Such loops have no closures, which would not be compiled for the vectors.

use bytemuck::Pod;
use pulp::Simd;

/// A float type with vectors.
pub trait Vectors: Sized {
    /// As many numbers as the processor takes at a time.
    type Vector<S: Simd>: Pod;

    /// Whole vectors, and the numbers behind them.
    fn vectors<S: Simd>(numbers: &[Self]) -> (&[Self::Vector<S>], &[Self]);

    /// As [`vectors`](Self::vectors), to be changed.
    fn vectors_mut<S: Simd>(numbers: &mut [Self]) -> (&mut [Self::Vector<S>], &mut [Self]);

    /// Fewer numbers than a vector has, and 0 behind them.
    fn load<S: Simd>(simd: S, numbers: &[Self]) -> Self::Vector<S>;

    /// Writes the first numbers of a vector.
    fn store<S: Simd>(simd: S, numbers: &mut [Self], vector: Self::Vector<S>);

    /// A number in every place.
    fn splat<S: Simd>(simd: S, number: Self) -> Self::Vector<S>;

    /// `a · b + sums`.
    fn add_products<S: Simd>(
        simd: S,
        a: Self::Vector<S>,
        b: Self::Vector<S>,
        sums: Self::Vector<S>,
    ) -> Self::Vector<S>;

    /// The sum of a vector's numbers.
    fn sum<S: Simd>(simd: S, vector: Self::Vector<S>) -> Self;

    /// Numbers of a vector.
    #[inline(always)]
    fn lanes<S: Simd>() -> usize {
        size_of::<Self::Vector<S>>() / size_of::<Self>()
    }
}

macro_rules! vectors {
    ($float:ident, $vector:ident, $of:ident, $of_mut:ident, $load:ident, $store:ident, $splat:ident, $mul_add:ident,
     $sum:ident) => {
        impl Vectors for $float {
            type Vector<S: Simd> = S::$vector;

            #[inline(always)]
            fn vectors<S: Simd>(numbers: &[Self]) -> (&[S::$vector], &[Self]) {
                S::$of(numbers)
            }

            #[inline(always)]
            fn vectors_mut<S: Simd>(numbers: &mut [Self]) -> (&mut [S::$vector], &mut [Self]) {
                S::$of_mut(numbers)
            }

            #[inline(always)]
            fn load<S: Simd>(simd: S, numbers: &[Self]) -> S::$vector {
                simd.$load(numbers)
            }

            #[inline(always)]
            fn store<S: Simd>(simd: S, numbers: &mut [Self], vector: S::$vector) {
                simd.$store(numbers, vector);
            }

            #[inline(always)]
            fn splat<S: Simd>(simd: S, number: Self) -> S::$vector {
                simd.$splat(number)
            }

            #[inline(always)]
            fn add_products<S: Simd>(simd: S, a: S::$vector, b: S::$vector, sums: S::$vector) -> S::$vector {
                simd.$mul_add(a, b, sums)
            }

            #[inline(always)]
            fn sum<S: Simd>(simd: S, vector: S::$vector) -> Self {
                simd.$sum(vector)
            }
        }
    };
}
vectors!(
    f32,
    f32s,
    as_simd_f32s,
    as_mut_simd_f32s,
    partial_load_f32s,
    partial_store_f32s,
    splat_f32s,
    mul_add_e_f32s,
    reduce_sum_f32s
);
vectors!(
    f64,
    f64s,
    as_simd_f64s,
    as_mut_simd_f64s,
    partial_load_f64s,
    partial_store_f64s,
    splat_f64s,
    mul_add_e_f64s,
    reduce_sum_f64s
);

/// Calls a function that is compiled for the number of rows it works on, with the types `T` and `S`: one to four rows, or those
/// listed and the most.
macro_rules! of_height {
    ($height:expr, $function:ident $arguments:tt) => {
        of_height!($height, [1, 2, 3], 4, $function $arguments)
    };
    ($height:expr, [$($fewer:tt),+], $most:tt, $function:ident $arguments:tt) => {
        match $height {
            $($fewer => $function::<T, S, $fewer> $arguments,)+
            _ => $function::<T, S, $most> $arguments,
        }
    };
}
pub(super) use of_height;
