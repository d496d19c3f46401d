//! Products with a matrix of few columns, by one thread: what a decoder of few dimensions asks for.
//!
//! General kernels are slow there. They pack both factors, pad ten columns to sixteen, and each product passes over all of the
//! logits, which by then are no longer in a core's own cache. Here the caller gives few rows at a time; the matrix is kept
//! column by column in tiles that stay in the first-level cache, and what two products need of a tile is read once.

use core::ops::Range;

use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use super::vectors::of_height;
use super::{Buffer, Factor, Matrix, Real};

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
        let (all, tile) = (made.rows, made.tile);
        let tiles = made.values.par_chunks_mut(made.columns.max(1) * tile);
        tiles.enumerate().for_each(|(number, values)| {
            let rows = number * tile..all.min((number + 1) * tile);
            for (j, column) in values.chunks_exact_mut(tile).enumerate() {
                match matrix {
                    Factor::Wide(matrix) => fill(column, matrix, rows.clone(), j, |x| x),
                    Factor::Short(matrix) => fill(column, matrix, rows.clone(), j, |x| T::of(x.to_f64())),
                }
            }
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
        out.par_chunks_mut((columns * tile).max(1)).enumerate().for_each(|(number, out)| {
            for column in 0..columns {
                let first = (number * columns + column) * tile;
                for (v, out) in out.iter_mut().skip(column).step_by(columns).enumerate() {
                    *out = parts.iter().fold(T::ZERO, |sum, part| sum + part.values[first + v]);
                }
            }
        });
    }
}

/// Some of a column, as `number` makes its numbers.
fn fill<T: Real, U: Copy>(
    out: &mut [T],
    matrix: Matrix<'_, U>,
    rows: Range<usize>,
    column: usize,
    number: impl Fn(U) -> T,
) {
    match matrix.is_transposed() {
        true => out.iter_mut().zip(&matrix.line(column)[rows]).for_each(|(out, x)| *out = number(*x)),
        false => out.iter_mut().zip(rows).for_each(|(out, row)| *out = number(matrix.line(row)[column])),
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
        for (number, values) in right.values.chunks_exact(columns.max(1) * tile).enumerate() {
            let (right, _) = T::vectors::<S>(values);
            let first = number * tile;
            let places = first..length.min(first + tile);
            for top in (0..rows).step_by(HEIGHT) {
                let (left, out) = (&left[top * columns..], &mut out[top * length..]);
                of_height!(rows - top, multiply(simd, left, right, columns, out, length, places.clone()));
            }
        }
    }
}

/// Some places of `H` rows of a product.
#[inline(always)]
fn multiply<T: Real, S: Simd, const H: usize>(
    simd: S,
    left: &[T],
    right: &[T::Vector<S>],
    columns: usize,
    out: &mut [T],
    length: usize,
    places: Range<usize>,
) {
    let mut lefts = [&[] as &[T]; H];
    for i in 0..H {
        lefts[i] = &left[i * columns..][..columns];
    }
    let (stride, lanes) = (right.len() / columns, T::lanes::<S>());
    let (steps, rest) = (places.len() / lanes, places.len() % lanes);
    let mut step = 0;
    while step + WIDTH <= steps {
        let sums = products::<T, S, H, WIDTH>(simd, &lefts, &right[step..], stride);
        write::<T, S, H, WIDTH>(out, places.start + step * lanes, length, &sums);
        step += WIDTH;
    }
    while step < steps {
        let sums = products::<T, S, H, 1>(simd, &lefts, &right[step..], stride);
        write::<T, S, H, 1>(out, places.start + step * lanes, length, &sums);
        step += 1;
    }
    if rest > 0 {
        let sums = products::<T, S, H, 1>(simd, &lefts, &right[steps..], stride);
        for i in 0..H {
            let place = i * length + places.end - rest;
            T::store(simd, &mut out[place..place + rest], sums[i][0]);
        }
    }
}

/// `H` rows times `W` vectors of columns that are `stride` vectors apart.
#[inline(always)]
fn products<T: Real, S: Simd, const H: usize, const W: usize>(
    simd: S,
    lefts: &[&[T]; H],
    right: &[T::Vector<S>],
    stride: usize,
) -> [[T::Vector<S>; W]; H] {
    let mut sums = [[T::splat(simd, T::ZERO); W]; H];
    for j in 0..lefts[0].len() {
        let vectors = &right[j * stride..][..W];
        for i in 0..H {
            let factor = T::splat(simd, lefts[i][j]);
            for w in 0..W {
                sums[i][w] = T::add_products(simd, factor, vectors[w], sums[i][w]);
            }
        }
    }
    sums
}

/// Writes `W` vectors from a place on in each of `H` rows that are `length` numbers apart.
#[inline(always)]
fn write<T: Real, S: Simd, const H: usize, const W: usize>(
    out: &mut [T],
    place: usize,
    length: usize,
    vectors: &[[T::Vector<S>; W]; H],
) {
    for i in 0..H {
        let (to, _) = T::vectors_mut::<S>(&mut out[i * length + place..][..W * T::lanes::<S>()]);
        to.copy_from_slice(&vectors[i]);
    }
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
                let sums = &mut sums[first * columns..(first + tile) * columns];
                for column in (0..columns).step_by(HEIGHT) {
                    let (sums, left) = (&mut sums[column * tile..], &left[column..]);
                    of_height!(
                        columns - column,
                        add(simd, rows, length, places.clone(), left, columns, sums, tile)
                    );
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
    let mut heads = [(&[] as &[T::Vector<S>], &[] as &[T]); H];
    for i in 0..H {
        heads[i] = T::vectors::<S>(&rows[i * length + places.start..i * length + places.end]);
    }
    let stride = right.len() / columns;
    for column in (0..columns).step_by(WIDTH) {
        let (right, partial) = (&right[column * stride..], &mut partial[column..]);
        match columns - column {
            1 => dots_of::<T, S, H, 1>(simd, &heads, right, stride, partial, columns),
            2 => dots_of::<T, S, H, 2>(simd, &heads, right, stride, partial, columns),
            3 => dots_of::<T, S, H, 3>(simd, &heads, right, stride, partial, columns),
            _ => dots_of::<T, S, H, WIDTH>(simd, &heads, right, stride, partial, columns),
        }
    }
}

/// Those of `W` columns.
#[inline(always)]
fn dots_of<T: Real, S: Simd, const H: usize, const W: usize>(
    simd: S,
    rows: &[(&[T::Vector<S>], &[T]); H],
    right: &[T::Vector<S>],
    stride: usize,
    partial: &mut [T::Vector<S>],
    columns: usize,
) {
    let steps = rows[0].0.len();
    let mut lines = [&[] as &[T::Vector<S>]; W];
    for w in 0..W {
        lines[w] = &right[w * stride..][..steps];
    }
    let mut heads = [&[] as &[T::Vector<S>]; H];
    let mut sums = [[T::splat(simd, T::ZERO); W]; H];
    for i in 0..H {
        heads[i] = &rows[i].0[..steps];
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
    if !rows[0].1.is_empty() {
        for i in 0..H {
            let x = T::load(simd, rows[i].1);
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

/// Adds all rows, times their numbers of `H` columns of `left`, to some places of as many columns.
#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "the parts of three matrices")]
fn add<T: Real, S: Simd, const H: usize>(
    simd: S,
    rows: &[T],
    length: usize,
    places: Range<usize>,
    left: &[T],
    columns: usize,
    sums: &mut [T],
    tile: usize,
) {
    let lanes = T::lanes::<S>();
    let mut place = places.start;
    while place < places.end {
        let (rows, to) = (&rows[place..], &mut sums[place - places.start..]);
        if place + WIDTH * lanes <= places.end {
            let count = WIDTH * lanes;
            add_vectors::<T, S, H, WIDTH>(simd, rows, length, count, left, columns, to, tile);
            place += count;
        } else {
            let count = lanes.min(places.end - place);
            add_vectors::<T, S, H, 1>(simd, rows, length, count, left, columns, to, tile);
            place += lanes;
        }
    }
}

/// `W` vectors of it, of which only `count` numbers are there.
#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "the parts of three matrices")]
fn add_vectors<T: Real, S: Simd, const H: usize, const W: usize>(
    simd: S,
    rows: &[T],
    length: usize,
    count: usize,
    left: &[T],
    columns: usize,
    sums: &mut [T],
    tile: usize,
) {
    let lanes = T::lanes::<S>();
    let mut made = [[T::splat(simd, T::ZERO); W]; H];
    for i in 0..H {
        let (from, _) = T::vectors::<S>(&sums[i * tile..][..W * lanes]);
        made[i].copy_from_slice(from);
    }
    for (row, left) in rows.chunks(length).zip(left.chunks(columns)) {
        let (row, left) = (&row[..count], &left[..H]);
        let mut vectors = [T::splat(simd, T::ZERO); W];
        if count == W * lanes {
            let (from, _) = T::vectors::<S>(row);
            for w in 0..W {
                vectors[w] = from[w];
            }
        } else {
            vectors[0] = T::load(simd, row);
        }
        for i in 0..H {
            let factor = T::splat(simd, left[i]);
            for w in 0..W {
                made[i][w] = T::add_products(simd, factor, vectors[w], made[i][w]);
            }
        }
    }
    write::<T, S, H, W>(sums, 0, tile, &made);
}

#[cfg(test)]
#[path = "few_columns_tests.rs"]
mod tests;
