//! Matrix products on slices.
//!
//! `faer` makes the products of f32 and f64. Each thread computes a part of the result alone, so its kernels keep their
//! single-thread rate.
//!
//! [`multiply`] rounds the factors first where a precision asks for it. Where the processor has instructions for bfloat16, they round and multiply.

#[cfg(target_arch = "x86_64")]
use burn::tensor::DType;
use faer::linalg::matmul::matmul;
use faer::prelude::ReborrowMut;
use faer::{Accum, MatMut, Par};

#[cfg(target_arch = "x86_64")]
use super::bf16::{self, product::Unit};
use super::matrix::{Factor, Matrix};
use super::{Real, blocked, few_rows};
use crate::Precision;

/// Multiply-adds below which a product stays on one thread: some ten microseconds, a few times what handing out a
/// part costs.
const PARALLEL: usize = 1 << 20;

/// Bytes of either factor that a thread packs at a time, and keeps the memory for: several threads' lie in the last
/// level of cache together.
const PACKED: usize = 4 << 20;

/// Rows or columns that the inner product is packed for at a time, by `faer`.
const DEPTH: usize = 512;

/// Writes `a · b` to `out`, row-major, or adds it to what is there, of factors rounded to `precision`; on all threads of
/// the current pool.
///
/// A factor is a matrix of the type of the sums or, exact at every precision, of bfloat16. No rounded or widened copy of a whole
/// large factor is made.
///
/// Where both factors are bfloat16 once they are rounded, and the sums f32, a processor with AVX-512 BF16 multiplies pairs
/// of them, and one with AMX tiles of such pairs, if it runs Linux 5.16 or newer. Elsewhere blocks are rounded first. All
/// ways round to nearest, ties to even, keep NaN and infinities, and sum in f32, so they agree up to the order of sums, with
/// one exception: the instructions take subnormal numbers, below 1.2e-38, for 0. The result does not depend on the number of
/// threads.
///
/// # Panics
/// If the sizes do not fit.
pub fn multiply<'a, 'b, T: Real>(
    out: &mut [T],
    a: impl Into<Factor<'a, T>>,
    b: impl Into<Factor<'b, T>>,
    accumulate: bool,
    precision: Precision,
) {
    let (a, b) = (a.into(), b.into());
    let work = a.rows() * a.columns() * b.columns();
    let parts = rayon::current_num_threads().min(work.div_ceil(PARALLEL));
    product(Route::of(a, b, precision), out, a, b, accumulate, precision, parts);
}

/// Who makes a product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Route {
    /// `faer`, straight from the factors.
    Plain,
    /// `faer`, from copies of blocks, rounded or widened, or of a factor that it is slow to read.
    Blocked,
    /// The processor's instructions for pairs of bfloat16.
    #[cfg(target_arch = "x86_64")]
    Pairs(Unit),
}

impl Route {
    /// The best there is on this processor.
    fn of<T: Real>(a: Factor<'_, T>, b: Factor<'_, T>, precision: Precision) -> Self {
        #[cfg(target_arch = "x86_64")]
        if Self::is_of_pairs(a, b, precision)
            && let Some(unit) = Unit::new()
        {
            return Self::Pairs(unit);
        }
        Self::portable(a, b, precision)
    }

    /// Without instructions for bfloat16.
    fn portable<T: Real>(a: Factor<'_, T>, b: Factor<'_, T>, precision: Precision) -> Self {
        match (a, b) {
            (Factor::Wide(a), Factor::Wide(_)) if precision == Precision::Full && !blocked::is_far(a) => {
                Self::Plain
            }
            _ => Self::Blocked,
        }
    }

    /// Whether both factors are bfloat16 once they are rounded, and sums f32.
    #[cfg(target_arch = "x86_64")]
    fn is_of_pairs<T: Real>(a: Factor<'_, T>, b: Factor<'_, T>, precision: Precision) -> bool {
        let short = |factor| precision == Precision::Bf16 || matches!(factor, Factor::Short(_));
        T::dtype() == DType::F32 && short(a) && short(b)
    }
}

fn product<T: Real>(
    route: Route,
    out: &mut [T],
    a: Factor<'_, T>,
    b: Factor<'_, T>,
    accumulate: bool,
    precision: Precision,
    parts: usize,
) {
    let (rows, columns) = (a.rows(), b.columns());
    assert_eq!(a.columns(), b.rows(), "multiply: columns of the first, rows of the second matrix");
    assert_eq!(out.len(), rows * columns, "multiply: the result must have {rows} rows of {columns}");
    match route {
        #[cfg(target_arch = "x86_64")]
        Route::Pairs(unit) => {
            let out = MatMut::from_row_major_slice_mut(bytemuck::cast_slice_mut(out), rows, columns);
            match unit {
                Unit::Vectors(unit) => of_pairs(unit, out, a.cast(), b.cast(), accumulate, parts),
                Unit::Tiles(unit) => of_pairs(unit, out, a.cast(), b.cast(), accumulate, parts),
            }
        }
        Route::Plain | Route::Blocked => {
            let out = MatMut::from_row_major_slice_mut(out, rows, columns);
            let halves = Halves { rows: 1, columns: 1, cut_columns: |a, b| b.columns() >= a.rows() };
            let digits = precision.digits();
            let few = matches!((a, b), (Factor::Wide(a), Factor::Wide(b)) if few_rows::fits(a, b));
            split(out, a, b, parts, &halves, &|out, a, b| match (route, a, b) {
                (Route::Plain, Factor::Wide(a), Factor::Wide(b)) if few => {
                    few_rows::multiply(out, a, b, accumulate)
                }
                (Route::Plain, Factor::Wide(a), Factor::Wide(b)) => blocks(out, a, b, accumulate),
                _ => blocked::multiply(out, a, b, accumulate, digits),
            });
        }
    }
}

/// A product by instructions for pairs of bfloat16.
#[cfg(target_arch = "x86_64")]
fn of_pairs<I: bf16::Instructions>(
    unit: I,
    out: MatMut<'_, f32>,
    a: Factor<'_, f32>,
    b: Factor<'_, f32>,
    accumulate: bool,
    parts: usize,
) {
    // Both are decided here, so that they do not depend on the number of threads.
    let (out, a, b) = match bf16::product::turns::<I>(a, b) {
        true => (out.transpose_mut(), b.t(), a.t()),
        false => (out, a, b),
    };
    let few = bf16::product::is_few(a, b);
    let halves =
        Halves { rows: I::HEIGHT, columns: bf16::WIDTH, cut_columns: bf16::product::cut_columns::<I> };
    split(out, a, b, parts, &halves, &|out, a, b| match few {
        true => bf16::product::multiply_few(unit, out, a, b, accumulate),
        false => bf16::product::multiply(unit, out, a, b, accumulate),
    });
}

/// How a result is halved.
struct Halves<T> {
    /// Rows and columns of which a half shall have a multiple.
    rows: usize,
    columns: usize,
    /// Whether to halve the columns, not the rows, of the product of two factors.
    cut_columns: fn(Factor<'_, T>, Factor<'_, T>) -> bool,
}

/// Halves the result until there are `parts` of it.
fn split<T: Real>(
    out: MatMut<'_, T>,
    a: Factor<'_, T>,
    b: Factor<'_, T>,
    parts: usize,
    halves: &Halves<T>,
    work: &(impl Fn(MatMut<'_, T>, Factor<'_, T>, Factor<'_, T>) + Sync),
) {
    if parts <= 1 {
        return work(out, a, b);
    }
    let (rows, depth, columns) = (a.rows(), a.columns(), b.columns());
    let share = |size: usize, unit: usize| (size * (parts / 2) / parts).next_multiple_of(unit).min(size);
    let (fewer, more) = (parts / 2, parts - parts / 2);
    if (halves.cut_columns)(a, b) {
        let middle = share(columns, halves.columns);
        let (left, right) = out.split_at_col_mut(middle);
        let (b_left, b_right) = (b.block(0..depth, 0..middle), b.block(0..depth, middle..columns));
        rayon::join(
            || split(left, a, b_left, fewer, halves, work),
            || split(right, a, b_right, more, halves, work),
        );
    } else {
        let middle = share(rows, halves.rows);
        let (top, bottom) = out.split_at_row_mut(middle);
        let (a_top, a_bottom) = (a.block(0..middle, 0..depth), a.block(middle..rows, 0..depth));
        rayon::join(
            || split(top, a_top, b, fewer, halves, work),
            || split(bottom, a_bottom, b, more, halves, work),
        );
    }
}

/// A thread's part, cut so that the factors of each piece fit [`PACKED`].
fn blocks<T: Real>(mut out: MatMut<'_, T>, a: Matrix<'_, T>, b: Matrix<'_, T>, accumulate: bool) {
    let (a, b) = (a.view(), b.view());
    let accumulate = if accumulate { Accum::Add } else { Accum::Replace };
    let most = PACKED / (size_of::<T>() * a.ncols().clamp(1, DEPTH));
    for first in (0..b.ncols()).step_by(most) {
        let width = most.min(b.ncols() - first);
        for top in (0..a.nrows()).step_by(most) {
            let height = most.min(a.nrows() - top);
            let piece = out.rb_mut().submatrix_mut(top, first, height, width);
            matmul(piece, accumulate, a.subrows(top, height), b.subcols(first, width), T::ONE, Par::Seq);
        }
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::bf16;

    use super::*;
    use crate::cpu::matrix::testing::{KINDS, Values, assert_sums, sums};

    #[test]
    fn any_number_of_parts_gives_the_whole_product() {
        for (rows, columns) in [(1, 1), (1, 7), (7, 1), (5, 6), (6, 5), (13, 13), (40, 200), (200, 40)] {
            let inner = 4;
            let a: Vec<f64> = (0..rows * inner).map(|i| (i % 7) as f64).collect();
            let b: Vec<f64> = (0..inner * columns).map(|i| (i % 5) as f64).collect();
            let (a, b) = (Matrix::new(&a, rows, inner).into(), Matrix::new(&b, inner, columns).into());
            let want = sums([a, b], Precision::Full, |_| 0.0);
            for parts in 1..9 {
                for unit in [1, 8] {
                    let mut out = vec![0.0; rows * columns];
                    let target = MatMut::from_row_major_slice_mut(&mut out, rows, columns);
                    let halves =
                        Halves { rows: unit, columns: 2 * unit, cut_columns: |a, b| b.columns() >= a.rows() };
                    split(target, a, b, parts, &halves, &|out, a, b| {
                        blocked::multiply(out, a, b, false, None);
                    });
                    let what = format_args!("{rows} rows, {columns} columns, {parts} parts");
                    assert_sums(&out, &want, 0.0, what);
                }
            }
        }
    }

    /// Each way to make a product, beside the product of factors that were rounded before, in f64.
    fn check_routes<T: Real>(unit: f64) {
        // Columns of the last transposed factor are far apart.
        const SIZES: [[usize; 3]; 7] = [
            [1, 3, 700],
            [3, 50, 33],
            [5, 600, 20],
            [6, 9, 1100],
            [1100, 3, 6],
            [33, 40, 100],
            [1100, 70, 6],
        ];
        for [rows, depth, columns] in SIZES {
            let (a, b) = (Values::<T>::new(rows, depth, 1), Values::<T>::new(depth, columns, 2));
            let kinds = KINDS.into_iter().flat_map(|a_kind| KINDS.map(|b_kind| (a_kind, b_kind)));
            let cases = kinds.flat_map(|kinds| [(kinds, false), (kinds, true)]);
            for ((a_kind, b_kind), accumulate) in cases {
                let (a, b) = (a.factor(a_kind), b.factor(b_kind));
                for precision in [Precision::Full, Precision::Tf32, Precision::Bf16] {
                    let before = if accumulate { 1.0 } else { 0.0 };
                    let want = sums([a, b], precision, |_| before);
                    let mut routes =
                        vec![Route::of(a, b, precision), Route::portable(a, b, precision), Route::Blocked];
                    routes.dedup();
                    for route in routes {
                        let [made, in_parts] = [1, 3].map(|parts| {
                            let mut out = vec![T::ONE; rows * columns];
                            product(route, &mut out, a, b, accumulate, precision, parts);
                            out
                        });
                        let size = format!("{rows} × {depth} × {columns}");
                        let what = format_args!("{route:?}, {precision}, {size}, {a_kind:?}, {b_kind:?}");
                        assert_sums(&made, &want, (8 + depth / 16) as f64 * unit, what);
                        // `faer` chooses its kernel by the size of a part.
                        if route != Route::Plain && route != Route::Blocked {
                            assert_eq!(made, in_parts, "three parts");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn every_route_gives_the_product_of_rounded_factors() {
        check_routes::<f32>(f64::from(f32::EPSILON));
        check_routes::<f64>(f64::EPSILON);
    }

    #[test]
    fn a_route_fits_the_types_and_the_processor() {
        let (wide, double, short) = ([0f32; 4], [0f64; 4], [bf16::ZERO; 4]);
        let wide: Factor<'_, f32> = Matrix::new(&wide, 2, 2).into();
        let short_of_f32: Factor<'_, f32> = Matrix::new(&short, 2, 2).into();
        let double: Factor<'_, f64> = Matrix::new(&double, 2, 2).into();
        let short_of_f64: Factor<'_, f64> = Matrix::new(&short, 2, 2).into();
        let (full, tf32, bf16) = (Precision::Full, Precision::Tf32, Precision::Bf16);

        // Without the instructions no product needs them.
        assert_eq!(Route::portable(wide, wide, full), Route::Plain);
        for precision in [tf32, bf16] {
            assert_eq!(Route::portable(wide, wide, precision), Route::Blocked);
            assert_eq!(Route::portable(double, double, precision), Route::Blocked);
        }
        assert_eq!(Route::portable(wide, short_of_f32, full), Route::Blocked);
        // A page of memory and more from column to column.
        let far = [0f32; 65 * 1024];
        let far: Factor<'_, f32> = Matrix::new(&far, 65, 1024).into();
        assert_eq!(Route::portable(far.t(), far, full), Route::Blocked);
        assert_eq!(Route::portable(far, far.t(), full), Route::Plain);

        let pairs = |route: Route| route != Route::Plain && route != Route::Blocked;
        let found = pairs(Route::of(wide, wide, bf16));
        #[cfg(target_arch = "x86_64")]
        assert_eq!(found, is_x86_feature_detected!("avx512bf16") && is_x86_feature_detected!("avx512bw"));
        #[cfg(not(target_arch = "x86_64"))]
        assert!(!found);
        assert_eq!(pairs(Route::of(wide, short_of_f32, bf16)), found);
        for precision in [full, tf32, bf16] {
            assert_eq!(pairs(Route::of(short_of_f32, short_of_f32, precision)), found);
            assert!(!pairs(Route::of(short_of_f64, short_of_f64, precision)), "sums of f64");
            assert!(!pairs(Route::of(double, short_of_f64, precision)));
        }
        for precision in [full, tf32] {
            assert!(!pairs(Route::of(wide, short_of_f32, precision)), "f32 keeps more digits");
        }
    }

    #[test]
    #[should_panic(expected = "columns of the first, rows of the second")]
    fn sizes_that_do_not_fit_are_refused() {
        let (a, b) = (Matrix::new(&[0.0; 6], 2, 3), Matrix::new(&[0.0; 4], 2, 2));
        multiply(&mut [0f32; 4], a, b, false, Precision::Full);
    }
}
