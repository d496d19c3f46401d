//! A right-hand side that many small products share, such as a recurrent weight.

// Loops and no closures, which would not be compiled for the vectors.
#![allow(clippy::needless_range_loop)]

use core::marker::PhantomData;

#[cfg(target_arch = "x86_64")]
use burn::tensor::DType;
use faer::MatMut;
use faer::prelude::ReborrowMut;
use pulp::{Arch, Simd, WithSimd};

#[cfg(target_arch = "x86_64")]
use super::bf16::{Amx, Avx512, product::Packed, product::Unit};
use super::blocked::Room;
use super::matrix::{Factor, by_columns, fetch_ahead};
use super::vectors::of_height;
use super::{Buffer, Matrix, Real, share};
use crate::Precision;

/// Vectors of a panel's row.
const VECTORS: usize = 2;

/// Rows of a panel that meet all rows of the left factor before the next ones do: the first-level cache holds two such blocks.
const DEPTH: usize = 128;

/// Rows whose sums are made at a time, at most.
const MOST: usize = 12;

/// A matrix cut into panels of columns, each stored row by row in one run of memory.
///
/// A product with few rows runs at the speed at which it reads its right-hand side. Cut from a wide row-major matrix, a
/// block of columns is a few bytes on every other page; as a panel it is read from front to back, and from memory only once.
#[derive(Debug)]
pub struct Panels<T> {
    kept: Kept<T>,
    rows: usize,
    columns: usize,
    precision: Precision,
}

/// What the panels are made of.
#[derive(Debug)]
enum Kept<T> {
    /// Rounded numbers, block after block of [`DEPTH`] rows, in each panel after panel, the last one filled with zeros.
    Numbers {
        values: Buffer<T>,
        /// Columns of a panel.
        width: usize,
    },
    /// Pairs of bfloat16, half as much memory, for a processor that multiplies such, to vectors or tiles of sums.
    #[cfg(target_arch = "x86_64")]
    Vectors(Packed<Avx512>),
    #[cfg(target_arch = "x86_64")]
    Tiles(Packed<Amx>),
}

impl<T: Real> Panels<T> {
    /// Rounds a matrix, or its transpose, to `precision` and cuts it into panels; on all threads of the current pool.
    pub fn new<'a>(matrix: impl Into<Factor<'a, T>>, precision: Precision) -> Self {
        let matrix = matrix.into();
        let (rows, columns) = (matrix.rows(), matrix.columns());
        #[cfg(target_arch = "x86_64")]
        if T::dtype() == DType::F32
            && precision == Precision::Bf16
            && let Some(unit) = Unit::new()
        {
            let kept = match unit {
                Unit::Vectors(unit) => Kept::Vectors(Packed::new(unit, matrix.cast())),
                Unit::Tiles(unit) => Kept::Tiles(Packed::new(unit, matrix.cast())),
            };
            return Self { kept, rows, columns, precision };
        }
        let width = Arch::new().dispatch(Width::<T>(PhantomData));
        let kept = Kept::Numbers { values: numbers(matrix, precision, width), width };
        Self { kept, rows, columns, precision }
    }

    /// Adds `a · b` to `out`, row-major, where b is the matrix that was cut and a is rounded as it was; on all threads of
    /// the current pool.
    ///
    /// The result does not depend on the number of threads.
    ///
    /// # Panics
    /// If the sizes do not fit, or if `a` is a transpose.
    pub fn multiply_add(&self, out: &mut [T], a: Matrix<'_, T>) {
        assert_eq!(a.columns(), self.rows, "panels: columns of the first matrix, rows of the second");
        assert_eq!(out.len(), a.rows() * self.columns, "panels: the result has another size");
        assert!(!a.is_transposed(), "panels: the first matrix has no rows in memory");
        match &self.kept {
            Kept::Numbers { values, width } => {
                let out = MatMut::from_row_major_slice_mut(out, a.rows(), self.columns);
                let a = staged(a, self.precision.digits());
                let threads = rayon::current_num_threads();
                numbers_multiply_add(values, (self.rows, self.columns), *width, &a, out, threads);
            }
            #[cfg(target_arch = "x86_64")]
            Kept::Vectors(packed) => packed.multiply_add(sums(out, self.columns), Factor::from(a).cast()),
            #[cfg(target_arch = "x86_64")]
            Kept::Tiles(packed) => packed.multiply_add(sums(out, self.columns), Factor::from(a).cast()),
        }
    }
}

/// A row-major matrix of f32, of so many columns.
#[cfg(target_arch = "x86_64")]
fn sums<T: Real>(out: &mut [T], columns: usize) -> MatMut<'_, f32> {
    let rows = out.len() / columns.max(1);
    MatMut::from_row_major_slice_mut(bytemuck::cast_slice_mut(out), rows, columns)
}

/// Numbers of a panel's row.
struct Width<T>(PhantomData<T>);

impl<T: Real> WithSimd for Width<T> {
    type Output = usize;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) -> usize {
        VECTORS * T::lanes::<S>()
    }
}

/// The numbers of a matrix, rounded, block by block and panel by panel.
fn numbers<T: Real>(matrix: Factor<'_, T>, precision: Precision, width: usize) -> Buffer<T> {
    let (rows, columns) = (matrix.rows(), matrix.columns());
    let padded = columns.next_multiple_of(width);
    let mut values = Buffer::new(padded * rows);
    let blocks = values.chunks_mut((DEPTH * padded).max(1)).enumerate();
    let panels = blocks.flat_map(|(block, values)| {
        let rows = block * DEPTH..rows.min((block + 1) * DEPTH);
        let panels = values.chunks_mut(rows.len() * width).enumerate();
        panels.map(move |(panel, values)| (rows.clone(), panel * width, values))
    });
    share(panels, |(rows, first, values)| {
        let here = width.min(columns - first);
        if here < width {
            values.fill(T::ZERO);
        }
        let panel = MatMut::from_row_major_slice_mut(values, rows.len(), width);
        let mut room = Room::new(matrix, precision.digits(), rows.len() * here);
        let block = matrix.block(rows, first..first + here);
        panel.subcols_mut(0, here).copy_from(room.stage(block, precision.digits()));
    });
    values
}

/// The left factor, rounded: block after block of [`DEPTH`] columns, in each row after row.
fn staged<T: Real>(a: Matrix<'_, T>, digits: Option<u32>) -> Buffer<T> {
    let (rows, depth) = (a.rows(), a.columns());
    let mut staged = Buffer::new(depth.div_ceil(DEPTH) * rows * DEPTH);
    for (place, out) in staged.chunks_exact_mut(DEPTH).enumerate() {
        let (block, row) = (place / rows, place % rows);
        let columns = block * DEPTH..depth.min((block + 1) * DEPTH);
        let (out, line) = (&mut out[..columns.len()], &a.line(row)[columns]);
        match digits {
            None => out.copy_from_slice(line),
            Some(digits) => out.iter_mut().zip(line).for_each(|(out, x)| *out = x.nearest(digits)),
        }
    }
    staged
}

/// Adds the product with panels of the matrix of so many rows and columns to `out`, in a part for each of `threads`.
fn numbers_multiply_add<T: Real>(
    values: &[T],
    (rows, columns): (usize, usize),
    width: usize,
    a: &[T],
    out: MatMut<'_, T>,
    threads: usize,
) {
    let (a, _) = a.as_chunks();
    by_columns(out, 0, width, threads, &|out, first| {
        Arch::new().dispatch(MultiplyAdd { values, a, out, first, rows, columns });
    });
}

/// Adds the product with the panels from column `first` on to `out`.
struct MultiplyAdd<'a, T> {
    /// Their numbers, all of them.
    values: &'a [T],
    /// The rows of the [`staged`] left factor.
    a: &'a [[T; DEPTH]],
    out: MatMut<'a, T>,
    first: usize,
    /// Of the right factor.
    rows: usize,
    columns: usize,
}

impl<T: Real> WithSimd for MultiplyAdd<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { values, a, mut out, first, rows: depth, columns } = self;
        let (rows, width) = (out.nrows(), VECTORS * T::lanes::<S>());
        let padded = columns.next_multiple_of(width);
        // Three quarters of the registers hold sums.
        let most = (S::REGISTER_COUNT * 3 / 4 / VECTORS).clamp(1, MOST);
        let height = rows.div_ceil(rows.div_ceil(most).max(1)).max(1);
        for start in (0..depth).step_by(DEPTH) {
            let steps = DEPTH.min(depth - start);
            let a = &a[start / DEPTH * rows..][..rows];
            for left in (0..out.ncols()).step_by(width) {
                let panel = &values[start * padded + (first + left) * steps..][..steps * width];
                let here = width.min(out.ncols() - left);
                for top in (0..rows).step_by(height) {
                    let (count, is_last) = (height.min(rows - top), top + height >= rows);
                    let out = out.rb_mut().submatrix_mut(top, left, count, here);
                    of_height!(
                        count,
                        [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11],
                        MOST,
                        add(simd, &a[top..], panel, out, is_last)
                    );
                }
            }
        }
    }
}

/// Adds the product of the first `H` rows and a block of a panel to `out`.
#[inline(always)]
fn add<T: Real, S: Simd, const H: usize>(
    simd: S,
    rows: &[[T; DEPTH]],
    panel: &[T],
    mut out: MatMut<'_, T>,
    fetches: bool,
) {
    let lanes = T::lanes::<S>();
    let rows: &[[T; DEPTH]; H] = rows[..H].try_into().expect("as many rows");
    let (vectors, _) = T::vectors::<S>(panel);
    let (vectors, _) = vectors.as_chunks::<VECTORS>();
    let steps = vectors.len().min(DEPTH);
    let mut sums = [[T::splat(simd, T::ZERO); VECTORS]; H];
    for step in 0..steps {
        // The same of the next block, which follows in memory.
        if fetches {
            fetch_ahead(panel.as_ptr().wrapping_add(panel.len() + step * VECTORS * lanes), VECTORS * lanes);
        }
        let right = vectors[step];
        for i in 0..H {
            let number = T::splat(simd, rows[i][step]);
            for v in 0..VECTORS {
                sums[i][v] = T::add_products(simd, number, right[v], sums[i][v]);
            }
        }
    }
    let one = T::splat(simd, T::ONE);
    for i in 0..H {
        let row = out.rb_mut().row_mut(i).try_as_row_major_mut().expect("rows are contiguous").as_slice_mut();
        for v in 0..VECTORS {
            let numbers = (v * lanes).min(row.len())..((v + 1) * lanes).min(row.len());
            let row = &mut row[numbers];
            if row.len() == lanes {
                let (whole, _) = T::vectors_mut::<S>(row);
                whole[0] = T::add_products(simd, one, sums[i][v], whole[0]);
            } else if !row.is_empty() {
                let before = T::load(simd, row);
                T::store(simd, row, T::add_products(simd, one, sums[i][v], before));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::matrix::testing::whole;
    use crate::cpu::multiply;

    /// Rows and sizes at which one, some and all of the registers, blocks and panels are in use.
    const ROWS: [usize; 9] = [1, 2, 3, 5, 7, 11, 12, 13, 30];
    const DEPTHS: [usize; 5] = [0, 1, 5, 321, 1100];
    const COLUMNS: [usize; 6] = [1, 15, 16, 33, 96, 300];

    fn check<T: Real>() {
        for (m, k) in ROWS.into_iter().flat_map(|m| DEPTHS.map(|k| (m, k))) {
            for columns in COLUMNS {
                let (a, b) = (whole::<T>(m * k, 7), whole::<T>(k * columns, 7));
                let a = Matrix::new(&a, m, k);
                for b in [Matrix::new(&b, k, columns), Matrix::new(&b, columns, k).t()] {
                    let mut want = vec![T::ONE; m * columns];
                    multiply(&mut want, a, b, true, Precision::Full);
                    // All numbers and sums are exact in either precision.
                    for precision in [Precision::Full, Precision::Tf32, Precision::Bf16] {
                        let mut got = vec![T::ONE; m * columns];
                        Panels::new(b, precision).multiply_add(&mut got, a);
                        assert_eq!(got, want, "{m} × {k} × {columns}, {precision}");
                    }
                    // As where the processor has no instructions for bfloat16, in three parts.
                    let mut got = vec![T::ONE; m * columns];
                    let width = Arch::new().dispatch(Width::<T>(PhantomData));
                    let values = numbers(b.into(), Precision::Bf16, width);
                    let out = MatMut::from_row_major_slice_mut(&mut got, m, columns);
                    numbers_multiply_add(&values, (k, columns), width, &staged(a, Some(8)), out, 3);
                    assert_eq!(got, want, "{m} × {k} × {columns}, rounded first");
                }
            }
        }
    }

    #[test]
    fn panels_give_the_product_of_the_whole() {
        check::<f32>();
        check::<f64>();
    }

    #[test]
    #[should_panic(expected = "no rows in memory")]
    fn a_transpose_is_refused() {
        let numbers = [0f32; 4];
        let a = Matrix::new(&numbers, 2, 2);
        Panels::new(a, Precision::Full).multiply_add(&mut [0.0; 4], a.t());
    }

    #[test]
    fn both_sides_are_rounded() {
        // 1 + 2⁻⁹ is 1 in bfloat16.
        let (a, b) = ([1.0f32 + 1.0 / 512.0; 4], [1.0 - 1.0 / 1024.0f32; 4]);
        let (a, b) = (Matrix::new(&a, 2, 2), Matrix::new(&b, 2, 2));
        for (precision, want) in
            [(Precision::Bf16, 2.0), (Precision::Full, 2.0 * (513.0 / 512.0) * (1023.0 / 1024.0))]
        {
            let mut out = [0.0; 4];
            Panels::new(b, precision).multiply_add(&mut out, a);
            assert_eq!(out, [want; 4]);
        }
    }
}
