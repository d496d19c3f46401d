//! A right-hand side that many small products share, such as a recurrent weight.

use faer::linalg::matmul::matmul;
use faer::{Accum, MatMut, MatRef, Par};
use rayon::prelude::*;

use super::{Buffer, Matrix, Real};

/// Columns of a panel: a multiple of the products' own block for every vector width.
const WIDTH: usize = 96;

/// A matrix cut into panels of columns, each stored row by row in one run of memory.
///
/// A product with few rows runs at the speed at which it reads its right-hand side. Cut from a wide row-major matrix, a
/// block of columns is a few hundred bytes on every other page; as a panel it is read from front to back.
#[derive(Debug)]
pub struct Panels<T> {
    values: Buffer<T>,
    rows: usize,
    columns: usize,
}

impl<T: Real> Panels<T> {
    /// Cuts a matrix, or its transpose, into panels; on all threads of the current pool.
    pub fn new(matrix: Matrix<'_, T>) -> Self {
        let matrix = matrix.view();
        let (rows, columns) = (matrix.nrows(), matrix.ncols());
        let mut values = Buffer::new(rows * columns);
        let panels: Vec<_> = values.chunks_mut((rows * WIDTH).max(1)).enumerate().collect();
        panels.into_par_iter().for_each(|(panel, values)| {
            let first = panel * WIDTH;
            let width = WIDTH.min(columns - first);
            let mut out = MatMut::from_row_major_slice_mut(values, rows, width);
            out.copy_from(matrix.subcols(first, width));
        });
        Self { values, rows, columns }
    }

    /// Adds `a · b` to `out`, row-major, where b is the matrix that was cut; on all threads of the current pool.
    ///
    /// # Panics
    /// If the sizes do not fit.
    pub fn multiply_add(&self, out: &mut [T], a: Matrix<'_, T>) {
        let a = a.view();
        assert_eq!(a.ncols(), self.rows, "panels: columns of the first matrix, rows of the second");
        assert_eq!(out.len(), a.nrows() * self.columns, "panels: the result has another size");
        let out = MatMut::from_row_major_slice_mut(out, a.nrows(), self.columns);
        let threads = rayon::current_num_threads().min(self.columns.div_ceil(WIDTH));
        self.part(out, a, 0, threads);
    }

    /// The columns of the result from panel `first` on.
    fn part(&self, out: MatMut<'_, T>, a: MatRef<'_, T>, first: usize, threads: usize) {
        let panels = out.ncols().div_ceil(WIDTH);
        if threads > 1 {
            let left = panels * (threads / 2) / threads;
            let (out_left, out_right) = out.split_at_col_mut(left * WIDTH);
            rayon::join(
                || self.part(out_left, a, first, threads / 2),
                || self.part(out_right, a, first + left, threads - threads / 2),
            );
            return;
        }
        let mut rest = out;
        for panel in first..first + panels {
            let width = WIDTH.min(rest.ncols());
            let (block, right) = rest.split_at_col_mut(width);
            rest = right;
            let values = &self.values[panel * WIDTH * self.rows..][..self.rows * width];
            let b = MatRef::from_row_major_slice(values, self.rows, width);
            matmul(block, Accum::Add, a, b, T::ONE, Par::Seq);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::multiply;

    #[test]
    fn panels_give_the_product_of_the_whole() {
        for columns in [1, 95, 96, 97, 300] {
            let (m, k) = (3, 5);
            let spread = |count: usize| (0..count).map(|i| (i * 7 % 11) as f64 - 5.0).collect::<Vec<_>>();
            let (a, b) = (spread(m * k), spread(k * columns));
            let a = Matrix::new(&a, m, k);
            for b in [Matrix::new(&b, k, columns), Matrix::new(&b, columns, k).t()] {
                let (mut got, mut want) = (vec![1.0; m * columns], vec![1.0; m * columns]);
                Panels::new(b).multiply_add(&mut got, a);
                multiply(&mut want, a, b, true);
                assert_eq!(got, want, "{columns} columns");
            }
        }
    }
}
