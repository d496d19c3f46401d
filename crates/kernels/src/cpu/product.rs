//! Matrix products on slices, by `faer`: its kernels for x86 pack into memory that they keep, and their rate on one
//! thread holds on several because each thread here has a part of the result to itself.

use faer::linalg::matmul::matmul;
use faer::{Accum, MatMut, MatRef, Par};

use super::Real;

/// Multiply-adds below which a product stays on one thread: some ten microseconds, a few times what handing out a
/// part costs.
const PARALLEL: usize = 1 << 20;

/// Bytes of either factor that a thread packs at a time, and keeps the memory for: several threads' lie in the last
/// level of cache together.
const PACKED: usize = 4 << 20;

/// Rows or columns that the inner product is packed for at a time, by `faer`.
const DEPTH: usize = 512;

/// A matrix on a slice.
#[derive(Debug, Clone, Copy)]
pub struct Matrix<'a, T>(MatRef<'a, T>);

impl<'a, T: Real> Matrix<'a, T> {
    /// `rows` rows of `columns` values, one after the other.
    ///
    /// # Panics
    /// If the slice has another number of values.
    pub fn new(values: &'a [T], rows: usize, columns: usize) -> Self {
        assert_eq!(values.len(), rows * columns, "matrix: the values do not make {rows} rows of {columns}");
        Self(MatRef::from_row_major_slice(values, rows, columns))
    }

    pub(super) fn view(self) -> MatRef<'a, T> {
        self.0
    }

    /// The transpose, on the same values.
    pub fn t(self) -> Self {
        Self(self.0.transpose())
    }
}

/// Writes `a · b` to `out`, row-major, or adds it to what is there; on all threads of the current pool.
///
/// The result does not depend on which thread makes which part.
///
/// # Panics
/// If the sizes do not fit.
pub fn multiply<T: Real>(out: &mut [T], a: Matrix<'_, T>, b: Matrix<'_, T>, accumulate: bool) {
    let (rows, columns) = (a.0.nrows(), b.0.ncols());
    assert_eq!(a.0.ncols(), b.0.nrows(), "multiply: columns of the first, rows of the second matrix");
    assert_eq!(out.len(), rows * columns, "multiply: the result must have {rows} rows of {columns}");
    let out = MatMut::from_row_major_slice_mut(out, rows, columns);
    let accumulate = if accumulate { Accum::Add } else { Accum::Replace };
    let work = rows * columns * a.0.ncols();
    let parts = rayon::current_num_threads().min(work.div_ceil(PARALLEL));
    split(out, a.0, b.0, accumulate, parts);
}

/// Halves the longer side of the result until there are `parts` of it.
fn split<T: Real>(out: MatMut<'_, T>, a: MatRef<'_, T>, b: MatRef<'_, T>, accumulate: Accum, parts: usize) {
    if parts <= 1 {
        return blocks(out, a, b, accumulate);
    }
    let share = |size: usize| size * (parts / 2) / parts;
    let halves = (parts / 2, parts - parts / 2);
    if out.ncols() >= out.nrows() {
        let middle = share(out.ncols());
        let (left, right) = out.split_at_col_mut(middle);
        let (b_left, b_right) = b.split_at_col(middle);
        rayon::join(
            || split(left, a, b_left, accumulate, halves.0),
            || split(right, a, b_right, accumulate, halves.1),
        );
    } else {
        let middle = share(out.nrows());
        let (top, bottom) = out.split_at_row_mut(middle);
        let (a_top, a_bottom) = a.split_at_row(middle);
        rayon::join(
            || split(top, a_top, b, accumulate, halves.0),
            || split(bottom, a_bottom, b, accumulate, halves.1),
        );
    }
}

/// A thread's part, cut so that the factors of each piece fit [`PACKED`].
fn blocks<T: Real>(out: MatMut<'_, T>, a: MatRef<'_, T>, b: MatRef<'_, T>, accumulate: Accum) {
    let most = PACKED / (size_of::<T>() * a.ncols().clamp(1, DEPTH));
    let mut rest = out;
    for first in (0..b.ncols()).step_by(most) {
        let width = most.min(b.ncols() - first);
        let (mut columns, right) = rest.split_at_col_mut(width);
        rest = right;
        for top in (0..a.nrows()).step_by(most) {
            let height = most.min(a.nrows() - top);
            let (piece, below) = columns.split_at_row_mut(height);
            columns = below;
            matmul(piece, accumulate, a.subrows(top, height), b.subcols(first, width), T::ONE, Par::Seq);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transposes_and_accumulation_are_respected() {
        // a [2, 3] stored transposed, b [3, 2] row-major.
        let a = [1.0, 4.0, 2.0, 5.0, 3.0, 6.0];
        let b = [1.0, 0.0, 0.0, 1.0, 1.0, 1.0];
        let (a, b) = (Matrix::new(&a, 3, 2).t(), Matrix::new(&b, 3, 2));
        let mut out = [10.0, 20.0, 30.0, 40.0];
        multiply(&mut out, a, b, true);
        assert_eq!(out, [14.0, 25.0, 40.0, 51.0]);
        multiply(&mut out, a, b, false);
        assert_eq!(out, [4.0, 5.0, 10.0, 11.0]);
    }

    #[test]
    fn any_number_of_parts_gives_the_whole_product() {
        for (rows, columns) in [(1, 1), (1, 7), (7, 1), (5, 6), (6, 5), (13, 13)] {
            let inner = 4;
            let a: Vec<f64> = (0..rows * inner).map(|i| (i % 7) as f64).collect();
            let b: Vec<f64> = (0..inner * columns).map(|i| (i % 5) as f64).collect();
            let (a, b) = (Matrix::new(&a, rows, inner).0, Matrix::new(&b, inner, columns).0);
            for parts in 1..9 {
                let mut out = vec![0.0; rows * columns];
                split(MatMut::from_row_major_slice_mut(&mut out, rows, columns), a, b, Accum::Replace, parts);
                for (i, value) in out.iter().enumerate() {
                    let want: f64 = (0..inner).map(|k| a[(i / columns, k)] * b[(k, i % columns)]).sum();
                    assert_eq!(*value, want, "{rows} rows, {columns} columns, {parts} parts");
                }
            }
        }
    }

    #[test]
    #[should_panic(expected = "columns of the first, rows of the second")]
    fn sizes_that_do_not_fit_are_refused() {
        multiply(&mut [0f32; 4], Matrix::new(&[0.0; 6], 2, 3), Matrix::new(&[0.0; 4], 2, 2), false);
    }
}
