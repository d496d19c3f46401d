//! Products of few rows with columns that are contiguous in memory, such as those of a decoder that generates text.
//!
//! Such a product is as fast as its right factor can be read. Each column is read once, from front to back, with all rows in
//! the cache; nothing is packed. Infinite numbers in the right factor may give NaN sums.

// Loops and no closures, which would not be compiled for the vectors.
#![allow(clippy::needless_range_loop, clippy::manual_memcpy)]

use faer::MatMut;
use pulp::{Arch, Simd, WithSimd};

use super::Real;
use super::matrix::{Matrix, fetch_ahead};
use super::vectors::of_height;

/// Rows up to which this is faster than `faer`, which packs the factors, and for few rows mostly zeros.
const MOST: usize = 16;

/// Rows and columns whose sums are made at a time, each in a vector.
const HEIGHT: usize = 4;
const WIDTH: usize = 4;

/// Columns by which the next are fetched ahead.
const AHEAD: usize = 8;

/// Whether a product is one of these.
pub(super) fn fits<T: Real>(a: Matrix<'_, T>, b: Matrix<'_, T>) -> bool {
    (1..=MOST).contains(&a.rows()) && !a.is_transposed() && b.is_transposed()
}

/// `a · b` to `out`, or added to it, on this thread, of factors that [fit](fits).
pub(super) fn multiply<T: Real>(
    mut out: MatMut<'_, T>,
    a: Matrix<'_, T>,
    b: Matrix<'_, T>,
    accumulate: bool,
) {
    let write = |row: usize, column: usize, sum: T| {
        let out = &mut out[(row, column)];
        *out = if accumulate { *out + sum } else { sum };
    };
    Arch::new().dispatch(Dots { a, b, write });
}

struct Dots<'a, T, W> {
    a: Matrix<'a, T>,
    b: Matrix<'a, T>,
    /// Takes a sum, after its row and column.
    write: W,
}

impl<T: Real, W: FnMut(usize, usize, T)> WithSimd for Dots<'_, T, W> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { a, b, mut write } = self;
        let (rows, columns) = (a.rows(), b.columns());
        // What is left of each row behind its whole vectors, in the last places of a vector of zeros.
        let mut ends = [T::splat(simd, T::ZERO); MOST + HEIGHT];
        for row in 0..rows {
            let rest = T::vectors::<S>(a.line(row)).1;
            let end: &mut [T] = bytemuck::cast_slice_mut(&mut ends[row..row + 1]);
            let first = end.len() - rest.len();
            end[first..].copy_from_slice(rest);
        }
        for first in (0..columns).step_by(WIDTH) {
            let width = WIDTH.min(columns - first);
            // Edges repeat the first line; the extra sums are discarded.
            let mut lines = [b.line(first); WIDTH];
            for i in 0..width {
                lines[i] = b.line(first + i);
            }
            let ahead = AHEAD * b.stride();
            for top in (0..rows).step_by(HEIGHT) {
                let height = HEIGHT.min(rows - top);
                // The first rows alone fetch.
                let ahead = (top == 0).then_some(ahead);
                let mut rows = [a.line(top); HEIGHT];
                for i in 1..height {
                    rows[i] = a.line(top + i);
                }
                let ends = &ends[top..];
                let out = of_height!(height, sums(simd, rows, ends, lines, ahead));
                for row in 0..height {
                    for i in 0..width {
                        write(top + row, first + i, out[row][i]);
                    }
                }
            }
        }
    }
}

/// The products of the first `ROWS` rows and all columns, which have the same length.
#[inline(always)]
fn sums<T: Real, S: Simd, const ROWS: usize>(
    simd: S,
    rows: [&[T]; HEIGHT],
    ends: &[T::Vector<S>],
    columns: [&[T]; WIDTH],
    ahead: Option<usize>,
) -> [[T; WIDTH]; HEIGHT] {
    let mut left = [(&[] as &[T::Vector<S>], &[] as &[T]); ROWS];
    let mut right = [(&[] as &[T::Vector<S>], &[] as &[T]); WIDTH];
    for row in 0..ROWS {
        left[row] = T::vectors::<S>(rows[row]);
    }
    for i in 0..WIDTH {
        right[i] = T::vectors::<S>(columns[i]);
    }
    let steps = right[0].0.len();
    for row in 0..ROWS {
        left[row].0 = &left[row].0[..steps];
    }
    for i in 0..WIDTH {
        right[i].0 = &right[i].0[..steps];
    }
    let mut sums = [[T::splat(simd, T::ZERO); WIDTH]; ROWS];
    for step in 0..steps {
        // One vector at a time: all at once would wait for each other.
        if let Some(ahead) = ahead {
            for i in 0..WIDTH {
                fetch_ahead(right[i].0[step..].as_ptr().cast::<T>().wrapping_add(ahead), 1);
            }
        }
        for row in 0..ROWS {
            let numbers = left[row].0[step];
            for i in 0..WIDTH {
                sums[row][i] = T::add_products(simd, numbers, right[i].0[step], sums[row][i]);
            }
        }
    }
    let (length, lanes) = (columns[0].len(), T::lanes::<S>());
    if !right[0].1.is_empty() && length >= lanes {
        // A whole vector, whose first numbers have been taken and now meet zeros: loading part of one is a call, before
        // which all sums are stored.
        for i in 0..WIDTH {
            let end = T::vectors::<S>(&columns[i][length - lanes..]).0[0];
            for row in 0..ROWS {
                sums[row][i] = T::add_products(simd, ends[row], end, sums[row][i]);
            }
        }
    } else if !right[0].1.is_empty() {
        for i in 0..WIDTH {
            let end = T::load(simd, right[i].1);
            for row in 0..ROWS {
                let numbers = T::load(simd, left[row].1);
                sums[row][i] = T::add_products(simd, numbers, end, sums[row][i]);
            }
        }
    }
    let mut out = [[T::ZERO; WIDTH]; HEIGHT];
    for row in 0..ROWS {
        for i in 0..WIDTH {
            out[row][i] = T::sum(simd, sums[row][i]);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Precision;
    use crate::cpu::matrix::testing::{assert_sums, sums, whole};

    fn check<T: Real>() {
        let [all_rows, all_depths, all_columns]: [&[usize]; 3] = match cfg!(miri) {
            true => [&[5], &[17], &[5]],
            false => [&[1, 2, 3, 4, 5, 8, 15, 16], &[1, 7, 8, 16, 17, 40], &[1, 3, 4, 5, 9]],
        };
        for rows in all_rows.iter().copied() {
            for depth in all_depths.iter().copied() {
                for columns in all_columns.iter().copied() {
                    let (a, b) = (whole::<T>(rows * depth, 7), whole::<T>(columns * depth, 3));
                    let (a, b) = (Matrix::new(&a, rows, depth), Matrix::new(&b, columns, depth).t());
                    assert!(fits(a, b));
                    for accumulate in [false, true] {
                        let mut out = vec![T::ONE; rows * columns];
                        multiply(MatMut::from_row_major_slice_mut(&mut out, rows, columns), a, b, accumulate);
                        let before = if accumulate { 1.0 } else { 0.0 };
                        let want = sums([a.into(), b.into()], Precision::Full, |_| before);
                        assert_sums(&out, &want, 0.0, format_args!("{rows} × {depth} × {columns}"));
                    }
                }
            }
        }
    }

    #[test]
    fn few_rows_give_the_product() {
        check::<f32>();
        check::<f64>();
    }
}
