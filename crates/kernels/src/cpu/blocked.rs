//! Products of factors that must be rounded or widened first, where the processor has no instruction for it, or that are read
//! slowly as they lie.
//!
//! A block of each such factor is copied to kept memory, rounded, and the copies are multiplied.

use burn::tensor::bf16;
use faer::linalg::matmul::matmul;
use faer::prelude::ReborrowMut;
use faer::{Accum, MatMut, MatRef, Par};
use pulp::Arch;

use super::matrix::{Factor, Matrix};
use super::{Buffer, Real};
use crate::vectorised;

/// Rows, inner products and columns of a block: the blocks of both factors fit the last level of cache, several
/// threads' together, and are read often enough for the copy to cost little. Lines of a copy that were a power of two
/// apart would take each other's place in a cache.
const ROWS: usize = 1040;
const DEPTH: usize = 512;
const COLUMNS: usize = 1040;

/// Whether `faer` is slow to read the first factor: it reads a few values of each column at a time, and there are more columns,
/// each on a page of memory of its own, than the processor knows the pages of.
pub(super) fn is_far<T: Real>(a: Matrix<'_, T>) -> bool {
    const PAGE: usize = 4096;
    const PAGES: usize = 64;
    a.is_transposed() && a.stride() * size_of::<T>() >= PAGE && a.columns() > PAGES
}

/// `a · b` to `out`, or added to it, of factors rounded to `digits` significant binary digits; on this thread.
pub(super) fn multiply<T: Real>(
    out: MatMut<'_, T>,
    a: Factor<'_, T>,
    b: Factor<'_, T>,
    accumulate: bool,
    digits: Option<u32>,
) {
    let (rows, depth, columns) = (a.rows(), a.columns(), b.columns());
    let mut out = out;
    if depth == 0 && !accumulate {
        out.fill(T::ZERO);
        return;
    }
    let values = rows.min(ROWS) * depth.min(DEPTH);
    let mut a_room = match a {
        Factor::Wide(a) if is_far(a) => Room(Some(Buffer::new(values))),
        _ => Room::new(a, digits, values),
    };
    let mut b_room = Room::new(b, digits, depth.min(DEPTH) * columns.min(COLUMNS));
    for left in (0..columns).step_by(COLUMNS) {
        let right = columns.min(left + COLUMNS);
        for first in (0..depth).step_by(DEPTH) {
            let last = depth.min(first + DEPTH);
            let b = b_room.stage(b.block(first..last, left..right), digits);
            let accumulate = if accumulate || first > 0 { Accum::Add } else { Accum::Replace };
            for top in (0..rows).step_by(ROWS) {
                let bottom = rows.min(top + ROWS);
                let a = a_room.stage(a.block(top..bottom, first..last), digits);
                let piece = out.rb_mut().submatrix_mut(top, left, bottom - top, right - left);
                matmul(piece, accumulate, a, b, T::ONE, Par::Seq);
            }
        }
    }
}

/// Room for the copy of a block, if one is needed.
pub(super) struct Room<T>(Option<Buffer<T>>);

impl<T: Real> Room<T> {
    pub(super) fn new(factor: Factor<'_, T>, digits: Option<u32>, values: usize) -> Self {
        let needed = digits.is_some() || matches!(factor, Factor::Short(_));
        Self(needed.then(|| Buffer::new(values)))
    }

    /// The block as it enters the product.
    pub(super) fn stage<'a>(&'a mut self, block: Factor<'a, T>, digits: Option<u32>) -> MatRef<'a, T> {
        let (rows, columns) = (block.rows(), block.columns());
        let Some(room) = &mut self.0 else {
            return match block {
                Factor::Wide(matrix) => matrix.view(),
                Factor::Short(_) => unreachable!("there is room for what must be widened"),
            };
        };
        let room = &mut room[..rows * columns];
        match (block, digits) {
            (Factor::Short(matrix), _) => copy(room, matrix, widened::<T>),
            (Factor::Wide(matrix), Some(digits)) => copy(room, matrix, |x: T| x.nearest(digits)),
            (Factor::Wide(matrix), None) => copy(room, matrix, |x: T| x),
        }
        if block.is_transposed() {
            Matrix::new(&*room, columns, rows).t().view()
        } else {
            Matrix::new(&*room, rows, columns).view()
        }
    }
}

/// bfloat16 is the upper half of f32.
#[inline(always)]
fn widened<T: Real>(x: bf16) -> T {
    T::of(f64::from(f32::from_bits(u32::from(x.to_bits()) << 16)))
}

/// Copies the lines of a matrix, one after the other.
fn copy<T: Real, U: Copy>(out: &mut [T], matrix: Matrix<'_, U>, number: impl Fn(U) -> T) {
    let (lines, length) = matrix.lines();
    vectorised!(
        Arch::new(),
        [T: Real, U: Copy, F: Fn(U) -> T],
        |out: &'a mut [T], matrix: Matrix<'a, U>, lines: usize, length: usize, number: F| {
            for line in 0..lines {
                let out = &mut out[line * length..][..length];
                out.iter_mut().zip(matrix.line(line)).for_each(|(y, x)| *y = number(*x));
            }
        }
    );
}
