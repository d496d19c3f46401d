//! Reduction of a tall matrix to a triangle of the same singular values, block of rows by block of rows.

use faer::dyn_stack::{MemBuffer, MemStack, StackReq};
use faer::linalg::householder::{
    apply_block_householder_sequence_transpose_on_the_left_in_place_scratch as apply_scratch,
    apply_block_householder_sequence_transpose_on_the_left_in_place_with_conj as apply_transpose,
};
use faer::linalg::qr::no_pivoting::factor::{qr_in_place, qr_in_place_scratch};
use faer::prelude::{Reborrow, ReborrowMut};
use faer::{Conj, Mat, MatMut, MatRef, Par, get_global_parallelism};
use rayon::prelude::*;

/// Columns that are eliminated together: enough for the update of the rest to be a matrix product.
const PANEL: usize = 96;
/// Columns of the rest that one task updates; with a block's rows they fit a second-level cache.
const TILE: usize = 128;
/// Rows that are eliminated together: many more than a panel has columns, so that the panel's own triangle costs little.
const BLOCK: usize = 1024;

/// `R` of `A = QR` for the rows read so far.
///
/// Every step multiplies from the left by Householder reflections, so `R` has the singular values of `A` with an error
/// of order `ε σ_max` in each: small ones keep their absolute accuracy. (Those of the Gram matrix `AᵀA` are their
/// squares, where everything below `√ε σ_max` is lost.) One row costs `2V²` operations; the memory is `V² + BLOCK·V`
/// values, however many rows there are.
#[derive(Debug, Clone)]
pub(super) struct Triangle {
    /// `R`, `[V, V]`, zero below the diagonal.
    r: Mat<f64>,
    /// [`PANEL`] rows to work in, then the rows to eliminate; `[PANEL + BLOCK, V]`.
    work: Mat<f64>,
    /// Rows waiting in `work`.
    pending: usize,
}

impl Triangle {
    /// The triangle of a square matrix given row by row.
    pub fn new(rows: &[f64], columns: usize) -> Self {
        let mut r = MatRef::from_row_major_slice(rows, columns, columns).to_owned();
        factorise(r.as_mut(), PANEL.min(columns), get_global_parallelism());
        zero_below_diagonal(r.as_mut());
        Self { r, work: Mat::zeros(PANEL + BLOCK, columns), pending: 0 }
    }

    /// Takes in rows.
    pub fn add(&mut self, mut rows: &[f64]) {
        let columns = self.r.ncols();
        while !rows.is_empty() {
            let count = (rows.len() / columns).min(BLOCK - self.pending);
            let (now, later) = rows.split_at(count * columns);
            self.work
                .subrows_mut(PANEL + self.pending, count)
                .copy_from(MatRef::from_row_major_slice(now, count, columns));
            self.pending += count;
            rows = later;
            if self.pending == BLOCK {
                self.eliminate();
            }
        }
    }

    /// `R` of all rows.
    pub fn finish(mut self) -> Mat<f64> {
        self.eliminate();
        self.r
    }

    /// Rotates the pending rows into the triangle, a panel of columns at a time.
    fn eliminate(&mut self) {
        let columns = self.r.ncols();
        let rows = std::mem::take(&mut self.pending);
        if rows == 0 {
            return;
        }
        for start in (0..columns).step_by(PANEL) {
            let width = PANEL.min(columns - start);
            // The panel's rows of R lie on top of the block while they are worked on.
            let mut work = self.work.submatrix_mut(PANEL - width, start, width + rows, columns - start);
            let mut r = self.r.submatrix_mut(start, start, width, columns - start);
            work.rb_mut().subrows_mut(0, width).copy_from(r.rb());
            let (mut panel, rest) = work.rb_mut().split_at_col_mut(width);
            let factor = factorise(panel.rb_mut(), width, Par::Seq);
            update(panel.rb(), factor.as_ref(), rest);
            r.copy_from(work.rb().subrows(0, width));
            zero_below_diagonal(r.subcols_mut(0, width));
        }
    }
}

/// QR in place, in blocks of `width` columns; returns the factor of the block reflections, which goes with what is left
/// below the diagonal.
fn factorise(matrix: MatMut<'_, f64>, width: usize, par: Par) -> Mat<f64> {
    let (rows, columns) = matrix.shape();
    let mut factor = Mat::zeros(width, rows.min(columns));
    let scratch = qr_in_place_scratch::<f64>(rows, columns, width, par, Default::default());
    with_stack(scratch, |stack| qr_in_place(matrix, factor.as_mut(), par, stack, Default::default()));
    factor
}

/// Applies the reflections of a panel to the columns on its right, in tiles over all threads.
fn update(panel: MatRef<'_, f64>, factor: MatRef<'_, f64>, rest: MatMut<'_, f64>) {
    let tiles: Vec<_> = tiles(rest);
    tiles.into_par_iter().for_each(|tile| {
        let scratch = apply_scratch::<f64>(panel.nrows(), factor.nrows(), tile.ncols());
        with_stack(scratch, |stack| apply_transpose(panel, factor, Conj::No, tile, Par::Seq, stack));
    });
}

/// Cuts a matrix into [`TILE`] columns each.
fn tiles(mut rest: MatMut<'_, f64>) -> Vec<MatMut<'_, f64>> {
    let mut tiles = Vec::with_capacity(rest.ncols().div_ceil(TILE));
    while rest.ncols() > TILE {
        let (tile, others) = rest.split_at_col_mut(TILE);
        tiles.push(tile);
        rest = others;
    }
    tiles.push(rest);
    tiles
}

fn with_stack<R>(scratch: StackReq, work: impl FnOnce(&mut MemStack) -> R) -> R {
    work(MemStack::new(&mut MemBuffer::new(scratch)))
}

fn zero_below_diagonal(mut matrix: MatMut<'_, f64>) {
    for column in 0..matrix.ncols() {
        let rows = matrix.nrows();
        if column + 1 < rows {
            matrix.rb_mut().col_mut(column).subrows_mut(column + 1, rows - column - 1).fill(0.0);
        }
    }
}
