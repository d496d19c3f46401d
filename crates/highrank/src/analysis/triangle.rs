//! Reduction of a tall matrix to a triangle of the same singular values, block of rows by block of rows.

use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::householder::{
    apply_block_householder_sequence_transpose_on_the_left_in_place_scratch as apply_scratch,
    apply_block_householder_sequence_transpose_on_the_left_in_place_with_conj as apply_transpose,
    make_householder_in_place, upgrade_householder_factor,
};
use faer::linalg::matmul::matmul;
use faer::prelude::{Reborrow, ReborrowMut};
use faer::{Accum, Conj, Mat, MatMut, MatRef, Par, Row};
use rayon::prelude::*;

/// Columns that are eliminated together: enough for the update of the rest to be a matrix product.
const PANEL: usize = 64;
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
    /// The triangle of no rows yet.
    pub(crate) fn new(columns: usize) -> Self {
        Self { r: Mat::zeros(columns, columns), work: Mat::zeros(PANEL + BLOCK, columns), pending: 0 }
    }

    /// Takes in rows.
    pub(crate) fn add(&mut self, mut rows: &[f64]) {
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
    pub(crate) fn finish(mut self) -> Mat<f64> {
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
            let factor = factorise(panel.rb_mut());
            update(panel.rb(), factor.as_ref(), rest);
            r.copy_from(work.rb().subrows(0, width));
            // The reflections lie below the diagonal.
            for column in 0..width {
                r.rb_mut().col_mut(column).split_at_row_mut(column + 1).1.fill(0.0);
            }
        }
    }
}

/// QR of a panel in place: `R` on top, the reflections below the diagonal. Returns the factor of the block reflection.
///
/// Every column is reflected, however small what is left of it. (faer's own QR skips columns of rounding noise, at a level
/// above the threshold of the rank.)
fn factorise(mut panel: MatMut<'_, f64>) -> Mat<f64> {
    let width = panel.ncols();
    let mut factor = Mat::zeros(width, width);
    for k in 0..width {
        let (left, rest) = panel.rb_mut().split_at_col_mut(k + 1);
        let (head, mut tail) = left.col_mut(k).split_at_row_mut(k + 1);
        let scale = make_householder_in_place(head.get_mut(k), tail.rb_mut()).tau;
        factor[(k, k)] = scale;
        if rest.ncols() == 0 || scale.is_infinite() {
            continue;
        }
        let tail = tail.rb();
        let (top, mut bottom) = rest.split_at_row_mut(k + 1);
        let first = top.row_mut(k);
        // w = −vᵀ A / τ, with v = (1, tail); then A += v w.
        let mut w = Row::zeros(first.ncols());
        matmul(w.as_mut(), Accum::Replace, tail.transpose(), bottom.rb(), 1.0, Par::Seq);
        w.iter_mut().zip(first.iter_mut()).for_each(|(w, first)| {
            *w = -(*w + *first) / scale;
            *first += *w;
        });
        matmul(bottom.rb_mut(), Accum::Add, tail, w.as_ref(), 1.0, Par::Seq);
    }
    upgrade_householder_factor(factor.as_mut(), panel.rb(), width, 1, Par::Seq);
    factor
}

/// Applies the reflections of a panel to the columns on its right, in tiles over all threads.
fn update(panel: MatRef<'_, f64>, factor: MatRef<'_, f64>, rest: MatMut<'_, f64>) {
    rest.par_col_chunks_mut(TILE).for_each(|tile| {
        let scratch = apply_scratch::<f64>(panel.nrows(), factor.nrows(), tile.ncols());
        let mut memory = MemBuffer::new(scratch);
        apply_transpose(panel, factor, Conj::No, tile, Par::Seq, MemStack::new(&mut memory));
    });
}
