//! The loops over blocks and tiles of a product of bfloat16, and the processor's instructions that they run on.

#[cfg(test)]
mod tests;

use core::ops::Range;

use faer::MatMut;
use faer::prelude::ReborrowMut;

#[cfg(target_arch = "x86_64")]
use super::{Amx, Avx512};
use super::{Instructions, LANES, Left, LeftLayout, Right, SHALLOW, Tiles, WIDTH, pairs, right_len};
use crate::cpu::matrix::{Factor, by_columns};
use crate::cpu::{Buffer, share};

/// Bytes of a packed block that shall stay in the second level of cache, of 1 MB or more.
const NEAR: usize = 512 << 10;

/// Most columns of the right factor that are packed at a time where blocks of the left are packed again for each such
/// block: it lies in the last level of cache, several threads' together.
const COLUMNS: usize = 2016;

/// Rows up to which columns that are contiguous in memory are not packed: a packed number is read too few times.
const FEW: usize = 16;

/// The instructions that this processor makes products of pairs with.
#[cfg(target_arch = "x86_64")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cpu) enum Unit {
    Vectors(Avx512),
    Tiles(Amx),
}

#[cfg(target_arch = "x86_64")]
impl Unit {
    /// The fastest, if it has any.
    pub(in crate::cpu) fn new() -> Option<Self> {
        Amx::new().map(Self::Tiles).or_else(|| Avx512::new().map(Self::Vectors))
    }
}

/// A right factor that is packed once and multiplied many times.
#[derive(Debug)]
pub(in crate::cpu) struct Packed<I> {
    unit: I,
    words: Buffer<u32>,
    depth: usize,
}

impl<I: Instructions> Packed<I> {
    /// Packs all of a right factor; on all threads of the current pool.
    pub(in crate::cpu) fn new(unit: I, b: Factor<'_, f32>) -> Self {
        let (depth, columns) = (b.rows(), b.columns());
        let mut words = Buffer::new(right_len::<I>(depth, columns));
        let panel = (pairs::<I>(depth) * WIDTH).max(1);
        share(words.chunks_mut(panel).enumerate(), |(index, words)| {
            let first = index * WIDTH;
            unit.pack_right(words, b.block(0..depth, first..columns.min(first + WIDTH)));
        });
        Self { unit, words, depth }
    }

    /// Adds `a · b` to `out`; on all threads of the current pool.
    pub(in crate::cpu) fn multiply_add(&self, out: MatMut<'_, f32>, a: Factor<'_, f32>) {
        if out.nrows() == 0 || out.ncols() == 0 || self.depth == 0 {
            return;
        }
        let mut words = Buffer::new(LeftLayout::of::<I>(a).len);
        let left = Left::pack(self.unit, a, &mut words);
        let threads = rayon::current_num_threads();
        by_columns(out, 0, WIDTH, threads, &|out, first| self.part(out, left, first));
    }

    /// The columns of the result from `first` on, of which `out` has some.
    fn part(&self, mut out: MatMut<'_, f32>, left: Left<'_>, first: usize) {
        let (pairs, columns) = (pairs::<I>(self.depth), out.ncols());
        let words = &self.words[first * pairs..][..pairs * columns.next_multiple_of(LANES)];
        let right = Right { words, pairs, columns };
        for part in depths::<I>(self.depth) {
            let place = part.start / 2;
            self.unit.make(Tiles::new(out.rb_mut(), (left, place), (right, place), part.len(), true));
        }
    }
}

/// The length of as few parts of `size` as there can be of at most `most`: as even as multiples of `unit` allow.
fn even(size: usize, most: usize, unit: usize) -> usize {
    size.div_ceil(size.div_ceil(most).max(1)).next_multiple_of(unit).max(unit)
}

/// `size` in parts of a length, of which the last may be shorter.
fn parts(size: usize, length: usize) -> impl Iterator<Item = Range<usize>> + Clone {
    (0..size).step_by(length).map(move |first| first..size.min(first + length))
}

/// Numbers of an inner product that tiles are summed over at a time. It depends on nothing else, so that the order of sums
/// does not.
fn depth_of_tiles<I: Instructions>(depth: usize) -> usize {
    even(depth, I::DEPTH, 2 * I::STEP)
}

/// Parts of an inner product that tiles are summed over at a time.
fn depths<I: Instructions>(depth: usize) -> impl Iterator<Item = Range<usize>> + Clone {
    parts(depth, depth_of_tiles::<I>(depth))
}

/// Rows of left blocks of so many numbers each that stay near.
fn blocks<I: Instructions>(rows: usize, depth: usize) -> impl Iterator<Item = Range<usize>> + Clone {
    parts(rows, even(rows, (NEAR / (size_of::<u16>() * depth.max(1))).max(I::HEIGHT), I::HEIGHT))
}

/// The length of the longest part: that of the first.
fn longest(mut parts: impl Iterator<Item = Range<usize>>) -> usize {
    parts.next().map_or(0, |part| part.len())
}

/// Whether a product is made by [`multiply_few`].
pub(in crate::cpu) fn is_few(a: Factor<'_, f32>, b: Factor<'_, f32>) -> bool {
    a.rows() <= FEW && !a.is_transposed() && b.is_transposed()
}

/// As [`multiply`], for a product of [few](is_few) rows.
pub(in crate::cpu) fn multiply_few<I: Instructions>(
    unit: I,
    out: MatMut<'_, f32>,
    a: Factor<'_, f32>,
    b: Factor<'_, f32>,
    accumulate: bool,
) {
    if a.rows() == 0 || b.columns() == 0 {
        return;
    }
    let mut words = Buffer::new(LeftLayout::of::<I>(a).len);
    unit.few_rows(out, Left::pack(unit, a, &mut words), b, accumulate);
}

/// Whether the transpose of a product is to be made instead: the larger factor is then packed as it lies in memory.
pub(in crate::cpu) fn turns<I: Instructions>(a: Factor<'_, f32>, b: Factor<'_, f32>) -> bool {
    I::STEP > 1 && a.is_transposed() && (b.is_transposed() || b.columns() < a.rows())
}

/// Whether threads share out the columns of a product: then each packs all of `a`, and otherwise all of `b`.
pub(in crate::cpu) fn cut_columns<I: Instructions>(a: Factor<'_, f32>, b: Factor<'_, f32>) -> bool {
    if a.rows() < 2 * I::HEIGHT || b.columns() < 2 * WIDTH {
        return b.columns() >= a.rows();
    }
    let bytes = |factor: Factor<'_, f32>| {
        let number = if matches!(factor, Factor::Short(_)) { size_of::<u16>() } else { size_of::<f32>() };
        factor.rows() * factor.columns() * number
    };
    bytes(a) <= bytes(b)
}

/// `a · b` to `out`, row-major or turned, or added to it, of factors rounded to bfloat16; on this thread.
pub(in crate::cpu) fn multiply<I: Instructions>(
    unit: I,
    mut out: MatMut<'_, f32>,
    a: Factor<'_, f32>,
    b: Factor<'_, f32>,
    accumulate: bool,
) {
    let (rows, depth, columns) = (a.rows(), a.columns(), b.columns());
    if depth == 0 && !accumulate {
        out.fill(0.0);
    }
    if rows == 0 || depth == 0 || columns == 0 {
        return;
    }
    let bytes = |lines: usize, depth: usize| lines * depth * size_of::<u16>();
    let stays = |lines: usize| bytes(lines, depth) <= NEAR;
    let step = depth_of_tiles::<I>(depth);
    if stays(columns) && (columns <= rows || depth <= SHALLOW) {
        let mut words = Buffer::new(right_len::<I>(depth, columns));
        multiply_packed(unit, out, a, Right::pack(unit, b, &mut words), accumulate);
    } else if stays(rows) {
        left_stays(unit, out, a, b, accumulate, step);
    } else if bytes(rows, 2 * step) <= NEAR {
        // Some inner products after the other: the more of a line is read at a time, the better.
        for part in parts(depth, NEAR / bytes(rows, step) * step) {
            let (a, b) = (a.block(0..rows, part.clone()), b.block(part.clone(), 0..columns));
            left_stays(unit, out.rb_mut(), a, b, accumulate || part.start > 0, step);
        }
    } else {
        neither_stays(unit, out, a, b, accumulate);
    }
}

/// `a · b` to `out`, or added to it, for a right factor that is packed already: some rows after the other.
fn multiply_packed<I: Instructions>(
    unit: I,
    mut out: MatMut<'_, f32>,
    a: Factor<'_, f32>,
    right: Right<'_>,
    accumulate: bool,
) {
    let (rows, depth) = (a.rows(), a.columns());
    let (depths, blocks) = (depths::<I>(depth), blocks::<I>(rows, 2 * depth.min(I::DEPTH)));
    let largest = LeftLayout::new::<I>(longest(blocks.clone()), longest(depths.clone()), a.is_transposed());
    let mut words = Buffer::new(largest.len);
    for block in blocks {
        for part in depths.clone() {
            let left = Left::pack(unit, a.block(block.clone(), part.clone()), &mut words);
            let out = out.rb_mut().subrows_mut(block.start, block.len());
            let accumulate = accumulate || part.start > 0;
            unit.make(Tiles::new(out, (left, 0), (right, part.start / 2), part.len(), accumulate));
        }
    }
}

/// The left factor is packed once, and multiplied with some columns after the other, over `step` numbers of the inner product
/// at a time.
fn left_stays<I: Instructions>(
    unit: I,
    mut out: MatMut<'_, f32>,
    a: Factor<'_, f32>,
    b: Factor<'_, f32>,
    accumulate: bool,
    step: usize,
) {
    let (depth, columns) = (a.columns(), b.columns());
    let mut words = Buffer::new(LeftLayout::of::<I>(a).len);
    let left = Left::pack(unit, a, &mut words);
    // Rows of the right factor are read some vectors at a time; where its columns are contiguous, one panel does.
    let most = if b.is_transposed() { WIDTH } else { 8 * WIDTH };
    let (depths, panels) = (parts(depth, step), parts(columns, even(columns, most, WIDTH)));
    let mut words = Buffer::new(right_len::<I>(longest(depths.clone()), longest(panels.clone())));
    for panel in panels {
        for part in depths.clone() {
            let right = Right::pack(unit, b.block(part.clone(), panel.clone()), &mut words);
            let out = out.rb_mut().subcols_mut(panel.start, panel.len());
            let accumulate = accumulate || part.start > 0;
            unit.make(Tiles::new(out, (left, part.start / 2), (right, 0), part.len(), accumulate));
        }
    }
}

/// Both factors are packed a block at a time, those of the left again for every block of columns.
fn neither_stays<I: Instructions>(
    unit: I,
    mut out: MatMut<'_, f32>,
    a: Factor<'_, f32>,
    b: Factor<'_, f32>,
    accumulate: bool,
) {
    let (rows, depth, columns) = (a.rows(), a.columns(), b.columns());
    let (depths, sides) = (depths::<I>(depth), parts(columns, even(columns, COLUMNS, WIDTH)));
    let blocks = blocks::<I>(rows, depth.min(I::DEPTH));
    let largest = LeftLayout::new::<I>(longest(blocks.clone()), longest(depths.clone()), a.is_transposed());
    let mut left_words = Buffer::new(largest.len);
    let mut right_words = Buffer::new(right_len::<I>(longest(depths.clone()), longest(sides.clone())));
    for side in sides {
        for part in depths.clone() {
            let right = Right::pack(unit, b.block(part.clone(), side.clone()), &mut right_words);
            for block in blocks.clone() {
                let left = Left::pack(unit, a.block(block.clone(), part.clone()), &mut left_words);
                let out = out.rb_mut().submatrix_mut(block.start, side.start, block.len(), side.len());
                unit.make(Tiles::new(out, (left, 0), (right, 0), part.len(), accumulate || part.start > 0));
            }
        }
    }
}
