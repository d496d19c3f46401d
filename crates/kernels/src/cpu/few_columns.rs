//! Products with a matrix of few columns, by one thread: what a decoder of few dimensions asks for.
//!
//! General kernels are slow there. They pack both factors, pad ten columns to sixteen, and each product passes over all of the
//! logits, which by then are no longer in a core's own cache. Here the caller gives few rows at a time; the matrix is kept
//! column by column in tiles that stay in the first-level cache, and what two products need of a tile is read once.

// Loops and no closures, which would not be compiled for the vectors.
#![allow(clippy::needless_range_loop, clippy::manual_memcpy)]

use core::ops::Range;

use faer::MatMut;
use pulp::{Arch, Simd, WithSimd};

use super::blocked::Room;
use super::vectors::of_height;
use super::{Buffer, Factor, Real, share};

/// Bytes of a tile: it stays in the first-level cache, with a run of the rows that meet it.
const TILE: usize = 32 << 10;

/// Numbers of a tile's column are a multiple of this: [`WIDTH`] of the longest vectors.
const UNIT: usize = 64;

/// Numbers of the longest vector.
const LANES: usize = 16;

/// Rows or columns, and vectors of each, whose sums are made at a time.
const HEIGHT: usize = 4;
const WIDTH: usize = 4;

/// A matrix of few columns and many rows, `[V, c]`.
#[derive(Debug)]
pub struct FewColumns<T> {
    /// Tile after tile of rows, in each column after column, the last one filled with zeros.
    values: Buffer<T>,
    rows: usize,
    columns: usize,
    /// Rows of a tile.
    tile: usize,
}

impl<T: Real> FewColumns<T> {
    /// All zeros.
    pub fn zeros(rows: usize, columns: usize) -> Self {
        let tile = (TILE / size_of::<T>() / columns.max(1) / UNIT * UNIT).max(UNIT);
        let values = Buffer::zeros(rows.div_ceil(tile) * tile * columns);
        Self { values, rows, columns, tile }
    }

    /// The numbers of `matrix`. Made by all threads of the current pool.
    pub fn new<'a>(matrix: impl Into<Factor<'a, T>>) -> Self {
        let matrix = matrix.into();
        let mut made = Self::zeros(matrix.rows(), matrix.columns());
        let (all, columns, tile) = (made.rows, made.columns, made.tile);
        let tiles = made.values.chunks_mut(columns.max(1) * tile);
        share(tiles.enumerate(), |(number, values)| {
            let block = matrix.block(number * tile..all.min((number + 1) * tile), 0..columns);
            let mut room = Room::new(block, None, block.rows() * columns);
            let values = MatMut::from_column_major_slice_mut(values, tile, columns);
            values.subrows_mut(0, block.rows()).copy_from(room.stage(block, None));
        });
        made
    }

    /// `V`
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// `c`
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Writes `left · selfᵀ`, `[m, V]`, for `left` of `[m, c]`.
    ///
    /// # Panics
    /// If the sizes do not fit.
    pub fn multiply(&self, left: &[T], out: &mut [T]) {
        assert_eq!(left.len() * self.rows, out.len() * self.columns, "few columns: numbers of the product");
        Arch::new().dispatch(Multiply { right: self, left, out });
    }

    /// Of `rows`, `[m, V]`: writes `rows · self`, `[m, c]`, to `out`, if given; and adds `rowsᵀ · left` to a matrix of this
    /// one's size, if given with a `left` of `[m, c]`.
    ///
    /// # Panics
    /// If the sizes do not fit.
    pub fn pull_back(&self, rows: &[T], out: Option<&mut [T]>, sums: Option<(&[T], &mut Self)>) {
        let numbers = rows.len() / self.rows.max(1) * self.columns;
        let out = out.unwrap_or_default();
        assert!(out.is_empty() || out.len() == numbers, "few columns: numbers of the product");
        let (left, sums) = match sums {
            Some((left, sums)) => {
                assert_eq!(
                    (sums.rows, sums.columns),
                    (self.rows, self.columns),
                    "few columns: sizes of two matrices"
                );
                assert_eq!(left.len(), numbers, "few columns: numbers of the left factor");
                (left, &mut sums.values[..])
            }
            None => (&[][..], &mut [][..]),
        };
        Arch::new().dispatch(PullBack { right: self, rows, out, left, sums });
    }

    /// Writes the sum of matrices of one size, added in their order, to `out`, row-major. By all threads of the current pool.
    ///
    /// # Panics
    /// If the sizes do not fit.
    pub fn sum(parts: &[&Self], out: &mut [T]) {
        let Some(Self { rows, columns, tile, .. }) = parts.first() else { return };
        let (rows, columns, tile) = (*rows, *columns, *tile);
        let fit = parts.iter().all(|part| (part.rows, part.columns) == (rows, columns));
        assert!(fit && out.len() == rows * columns, "few columns: numbers of the sum");
        share(out.chunks_mut((columns * tile).max(1)).enumerate(), |(number, out)| {
            for column in 0..columns {
                let first = (number * columns + column) * tile;
                for (v, out) in out.iter_mut().skip(column).step_by(columns).enumerate() {
                    *out = parts.iter().fold(T::ZERO, |sum, part| sum + part.values[first + v]);
                }
            }
        });
    }
}

struct Multiply<'a, T> {
    right: &'a FewColumns<T>,
    left: &'a [T],
    out: &'a mut [T],
}

impl<T: Real> WithSimd for Multiply<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { right, left, out } = self;
        let FewColumns { rows: length, columns, tile, .. } = *right;
        let rows = out.len() / length.max(1);
        // Column after column: the same numbers of the right matrix are multiplied with all rows.
        let mut turned = vec![T::ZERO; left.len()];
        for (row, left) in left.chunks(columns.max(1)).enumerate() {
            for (column, x) in left.iter().enumerate() {
                turned[column * rows + row] = *x;
            }
        }
        for (number, values) in right.values.chunks_exact(columns.max(1) * tile).enumerate() {
            let (first, right) = (number * tile, Lines { values, stride: tile });
            let count = tile.min(length - first);
            for top in (0..rows).step_by(HEIGHT) {
                let left = Lines { values: &turned[top..], stride: rows };
                let out = &mut out[top * length + first..];
                of_height!(rows - top, add(simd, left, right, out, length, count, false));
            }
        }
    }
}

/// Lines of numbers, each `stride` behind the last.
#[derive(Clone, Copy)]
struct Lines<'a, T> {
    values: &'a [T],
    stride: usize,
}

/// Writes `leftᵀ · right` for the first `H` numbers of the left lines and the first `count` of the right ones to as many lines of
/// `out`, or adds it.
#[inline(always)]
fn add<T: Real, S: Simd, const H: usize>(
    simd: S,
    left: Lines<'_, T>,
    right: Lines<'_, T>,
    out: &mut [T],
    stride: usize,
    count: usize,
    is_added: bool,
) {
    let lanes = T::lanes::<S>();
    let mut place = 0;
    while place < count {
        let (right, out) = (Lines { values: &right.values[place..], ..right }, &mut out[place..]);
        if place + WIDTH * lanes <= count {
            add_vectors::<T, S, H, WIDTH>(simd, left, right, out, stride, WIDTH * lanes, is_added);
            place += WIDTH * lanes;
        } else {
            let count = lanes.min(count - place);
            add_vectors::<T, S, H, 1>(simd, left, right, out, stride, count, is_added);
            place += lanes;
        }
    }
}

/// `W` vectors of it, of which only `count` numbers are there.
#[inline(always)]
fn add_vectors<T: Real, S: Simd, const H: usize, const W: usize>(
    simd: S,
    left: Lines<'_, T>,
    right: Lines<'_, T>,
    out: &mut [T],
    stride: usize,
    count: usize,
    is_added: bool,
) {
    let is_whole = count == W * T::lanes::<S>();
    let mut sums = [[T::splat(simd, T::ZERO); W]; H];
    if is_added {
        for i in 0..H {
            sums[i] = load(simd, &out[i * stride..][..count], is_whole);
        }
    }
    for (left, right) in left.values.chunks(left.stride).zip(right.values.chunks(right.stride)) {
        let (left, vectors) = (&left[..H], load::<T, S, W>(simd, &right[..count], is_whole));
        for i in 0..H {
            let factor = T::splat(simd, left[i]);
            for w in 0..W {
                sums[i][w] = T::add_products(simd, factor, vectors[w], sums[i][w]);
            }
        }
    }
    for i in 0..H {
        let out = &mut out[i * stride..][..count];
        if is_whole {
            T::vectors_mut::<S>(out).0.copy_from_slice(&sums[i]);
        } else {
            T::store(simd, out, sums[i][0]);
        }
    }
}

/// Whole vectors, or one that is not.
#[inline(always)]
fn load<T: Real, S: Simd, const W: usize>(simd: S, numbers: &[T], is_whole: bool) -> [T::Vector<S>; W] {
    let mut vectors = [T::splat(simd, T::ZERO); W];
    if is_whole {
        let (from, _) = T::vectors::<S>(numbers);
        for w in 0..W {
            vectors[w] = from[w];
        }
    } else {
        vectors[0] = T::load(simd, numbers);
    }
    vectors
}

struct PullBack<'a, T> {
    right: &'a FewColumns<T>,
    rows: &'a [T],
    /// May be empty.
    out: &'a mut [T],
    left: &'a [T],
    /// As the right matrix's values, or empty.
    sums: &'a mut [T],
}

impl<T: Real> WithSimd for PullBack<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { right, rows, out, left, sums } = self;
        let FewColumns { rows: length, columns, tile, .. } = *right;
        let count = rows.len() / length.max(1);
        // Sums of `out`, a vector each.
        let mut partial = vec![T::ZERO; if out.is_empty() { 0 } else { count * columns * LANES }];
        let (partial, _) = T::vectors_mut::<S>(&mut partial[..out.len() * T::lanes::<S>()]);
        for (number, values) in right.values.chunks_exact(columns.max(1) * tile).enumerate() {
            let first = number * tile;
            let places = first..length.min(first + tile);
            if !partial.is_empty() {
                let (right, _) = T::vectors::<S>(values);
                for top in (0..count).step_by(HEIGHT) {
                    let (rows, partial) = (&rows[top * length..], &mut partial[top * columns..]);
                    of_height!(
                        count - top,
                        dots(simd, rows, length, places.clone(), right, columns, partial)
                    );
                }
            }
            if !sums.is_empty() {
                let right = Lines { values: &rows[first..], stride: length };
                let sums = &mut sums[first * columns..(first + tile) * columns];
                for column in (0..columns).step_by(HEIGHT) {
                    let left = Lines { values: &left[column..], stride: columns };
                    let sums = &mut sums[column * tile..];
                    of_height!(columns - column, add(simd, left, right, sums, tile, places.len(), true));
                }
            }
        }
        for (out, sum) in out.iter_mut().zip(partial) {
            *out = T::sum(simd, *sum);
        }
    }
}

/// Adds the products of some places of `H` rows with all columns to `partial`.
#[inline(always)]
fn dots<T: Real, S: Simd, const H: usize>(
    simd: S,
    rows: &[T],
    length: usize,
    places: Range<usize>,
    right: &[T::Vector<S>],
    columns: usize,
    partial: &mut [T::Vector<S>],
) {
    let (mut heads, mut ends) = ([&[] as &[T::Vector<S>]; H], [&[] as &[T]; H]);
    for i in 0..H {
        (heads[i], ends[i]) = T::vectors::<S>(&rows[i * length + places.start..i * length + places.end]);
    }
    let stride = right.len() / columns;
    for column in (0..columns).step_by(WIDTH) {
        let (right, partial) = (&right[column * stride..], &mut partial[column..]);
        match columns - column {
            1 => dots_of::<T, S, H, 1>(simd, heads, ends, right, stride, partial, columns),
            2 => dots_of::<T, S, H, 2>(simd, heads, ends, right, stride, partial, columns),
            3 => dots_of::<T, S, H, 3>(simd, heads, ends, right, stride, partial, columns),
            _ => dots_of::<T, S, H, WIDTH>(simd, heads, ends, right, stride, partial, columns),
        }
    }
}

/// Those of `W` columns.
#[inline(always)]
fn dots_of<T: Real, S: Simd, const H: usize, const W: usize>(
    simd: S,
    mut heads: [&[T::Vector<S>]; H],
    ends: [&[T]; H],
    right: &[T::Vector<S>],
    stride: usize,
    partial: &mut [T::Vector<S>],
    columns: usize,
) {
    let steps = heads[0].len();
    let mut lines = [&[] as &[T::Vector<S>]; W];
    for w in 0..W {
        lines[w] = &right[w * stride..][..steps];
    }
    let mut sums = [[T::splat(simd, T::ZERO); W]; H];
    for i in 0..H {
        heads[i] = &heads[i][..steps];
        for w in 0..W {
            sums[i][w] = partial[i * columns + w];
        }
    }
    for step in 0..steps {
        for i in 0..H {
            let x = heads[i][step];
            for w in 0..W {
                sums[i][w] = T::add_products(simd, x, lines[w][step], sums[i][w]);
            }
        }
    }
    if !ends[0].is_empty() {
        for i in 0..H {
            let x = T::load(simd, ends[i]);
            for w in 0..W {
                // The column goes on with zeros.
                sums[i][w] = T::add_products(simd, x, right[w * stride + steps], sums[i][w]);
            }
        }
    }
    for i in 0..H {
        for w in 0..W {
            partial[i * columns + w] = sums[i][w];
        }
    }
}

#[cfg(test)]
#[path = "few_columns_tests.rs"]
mod tests;
