//! Products with a matrix of few columns, by one thread: what a decoder of few dimensions asks for.
//!
//! General kernels are slow there. They pack both factors, pad ten columns to sixteen, and each product passes over all of the
//! logits, which by then are no longer in a core's own cache. Here the caller gives few rows at a time; the matrix is kept
//! column by column in tiles that stay in the first-level cache, and what two products need of a tile is read once.

use core::ops::Range;

use burn::tensor::DType;
use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

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
        match T::dtype() {
            DType::F32 => Arch::new().dispatch(Multiply::<f32> {
                right: self.view(),
                left: bytemuck::cast_slice(left),
                out: bytemuck::cast_slice_mut(out),
            }),
            _ => Arch::new().dispatch(Multiply::<f64> {
                right: self.view(),
                left: bytemuck::cast_slice(left),
                out: bytemuck::cast_slice_mut(out),
            }),
        }
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
        match T::dtype() {
            DType::F32 => Arch::new().dispatch(PullBack::<f32> {
                right: self.view(),
                rows: bytemuck::cast_slice(rows),
                out: bytemuck::cast_slice_mut(out),
                left: bytemuck::cast_slice(left),
                sums: bytemuck::cast_slice_mut(sums),
            }),
            _ => Arch::new().dispatch(PullBack::<f64> {
                right: self.view(),
                rows: bytemuck::cast_slice(rows),
                out: bytemuck::cast_slice_mut(out),
                left: bytemuck::cast_slice(left),
                sums: bytemuck::cast_slice_mut(sums),
            }),
        }
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

    fn view<U: Real>(&self) -> View<'_, U> {
        View {
            values: bytemuck::cast_slice(&self.values),
            rows: self.rows,
            columns: self.columns,
            tile: self.tile,
        }
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

/// A [`FewColumns`] under the name of its type.
#[derive(Clone, Copy)]
struct View<'a, T> {
    values: &'a [T],
    rows: usize,
    columns: usize,
    tile: usize,
}

struct Multiply<'a, T> {
    right: View<'a, T>,
    left: &'a [T],
    out: &'a mut [T],
}

struct PullBack<'a, T> {
    right: View<'a, T>,
    rows: &'a [T],
    /// May be empty.
    out: &'a mut [T],
    left: &'a [T],
    /// As the right matrix's values, or empty.
    sums: &'a mut [T],
}

// Loops and no closures, which would not be compiled for the vectors.
macro_rules! few_columns {
    ($float:ident, $vectors:ident, $of:ident, $of_mut:ident, $load:ident, $store:ident, $splat:ident, $mul_add:ident,
     $reduce:ident) => {
        impl WithSimd for Multiply<'_, $float> {
            type Output = ();

            #[inline(always)]
            fn with_simd<S: Simd>(self, simd: S) {
                let Self { right: View { values, rows: length, columns, tile }, left, out } = self;
                let rows = out.len() / length.max(1);
                for (number, values) in values.chunks_exact(columns.max(1) * tile).enumerate() {
                    let (right, _) = S::$of(values);
                    let first = number * tile;
                    let places = first..length.min(first + tile);
                    for top in (0..rows).step_by(HEIGHT) {
                        let left = &left[top * columns..];
                        let out = &mut out[top * length..];
                        match rows - top {
                            1 => part::<S, 1>(simd, left, right, columns, out, length, places.clone()),
                            2 => part::<S, 2>(simd, left, right, columns, out, length, places.clone()),
                            3 => part::<S, 3>(simd, left, right, columns, out, length, places.clone()),
                            _ => part::<S, 4>(simd, left, right, columns, out, length, places.clone()),
                        }
                    }
                }

                /// Some places of `H` rows.
                #[inline(always)]
                fn part<S: Simd, const H: usize>(
                    simd: S,
                    left: &[$float],
                    right: &[S::$vectors],
                    columns: usize,
                    out: &mut [$float],
                    length: usize,
                    places: Range<usize>,
                ) {
                    let mut lefts = [&[] as &[$float]; H];
                    for i in 0..H {
                        lefts[i] = &left[i * columns..][..columns];
                    }
                    let stride = right.len() / columns;
                    let (head, tail) = S::$of(&out[places.clone()]);
                    let (steps, rest) = (head.len(), tail.len());
                    let lanes = size_of::<S::$vectors>() / size_of::<$float>();
                    for step in (0..steps / WIDTH * WIDTH).step_by(WIDTH) {
                        let sums = block::<S, H, WIDTH>(simd, &lefts, &right[step..], stride);
                        for i in 0..H {
                            let place = i * length + places.start + step * lanes;
                            let (to, _) = S::$of_mut(&mut out[place..place + WIDTH * lanes]);
                            to.copy_from_slice(&sums[i]);
                        }
                    }
                    for step in steps / WIDTH * WIDTH..steps {
                        let sums = block::<S, H, 1>(simd, &lefts, &right[step..], stride);
                        for i in 0..H {
                            let place = i * length + places.start + step * lanes;
                            let (to, _) = S::$of_mut(&mut out[place..place + lanes]);
                            to.copy_from_slice(&sums[i]);
                        }
                    }
                    if rest > 0 {
                        let sums = block::<S, H, 1>(simd, &lefts, &right[steps..], stride);
                        for i in 0..H {
                            let place = i * length + places.end - rest;
                            simd.$store(&mut out[place..place + rest], sums[i][0]);
                        }
                    }
                }

                /// `H` rows times `W` vectors of columns that are `stride` vectors apart.
                #[inline(always)]
                fn block<S: Simd, const H: usize, const W: usize>(
                    simd: S,
                    lefts: &[&[$float]; H],
                    right: &[S::$vectors],
                    stride: usize,
                ) -> [[S::$vectors; W]; H] {
                    let mut sums = [[simd.$splat(0.0); W]; H];
                    for j in 0..lefts[0].len() {
                        let vectors = &right[j * stride..][..W];
                        for i in 0..H {
                            let factor = simd.$splat(lefts[i][j]);
                            for w in 0..W {
                                sums[i][w] = simd.$mul_add(factor, vectors[w], sums[i][w]);
                            }
                        }
                    }
                    sums
                }
            }
        }

        impl WithSimd for PullBack<'_, $float> {
            type Output = ();

            #[inline(always)]
            fn with_simd<S: Simd>(self, simd: S) {
                let Self { right: View { values, rows: length, columns, tile }, rows, out, left, sums } =
                    self;
                let count = rows.len() / length.max(1);
                let lanes = size_of::<S::$vectors>() / size_of::<$float>();
                // Sums of `out`, a vector each.
                let mut partial = vec![0.0; if out.is_empty() { 0 } else { count * columns * LANES }];
                let (partial, _) = S::$of_mut(&mut partial[..out.len() * lanes]);
                for (number, values) in values.chunks_exact(columns.max(1) * tile).enumerate() {
                    let first = number * tile;
                    let places = first..length.min(first + tile);
                    if !partial.is_empty() {
                        let (right, _) = S::$of(values);
                        for top in (0..count).step_by(HEIGHT) {
                            let rows = &rows[top * length..];
                            let partial = &mut partial[top * columns..];
                            match count - top {
                                1 => {
                                    dots::<S, 1>(simd, rows, length, places.clone(), right, columns, partial)
                                }
                                2 => {
                                    dots::<S, 2>(simd, rows, length, places.clone(), right, columns, partial)
                                }
                                3 => {
                                    dots::<S, 3>(simd, rows, length, places.clone(), right, columns, partial)
                                }
                                _ => {
                                    dots::<S, 4>(simd, rows, length, places.clone(), right, columns, partial)
                                }
                            }
                        }
                    }
                    if !sums.is_empty() {
                        let sums = &mut sums[first * columns..(first + tile) * columns];
                        for column in (0..columns).step_by(HEIGHT) {
                            let sums = &mut sums[column * tile..];
                            let left = &left[column..];
                            match columns - column {
                                1 => {
                                    add::<S, 1>(simd, rows, length, places.clone(), left, columns, sums, tile)
                                }
                                2 => {
                                    add::<S, 2>(simd, rows, length, places.clone(), left, columns, sums, tile)
                                }
                                3 => {
                                    add::<S, 3>(simd, rows, length, places.clone(), left, columns, sums, tile)
                                }
                                _ => {
                                    add::<S, 4>(simd, rows, length, places.clone(), left, columns, sums, tile)
                                }
                            }
                        }
                    }
                }
                for (out, sum) in out.iter_mut().zip(partial) {
                    *out = simd.$reduce(*sum);
                }

                /// Adds the products of some places of `H` rows with all columns to `partial`.
                #[inline(always)]
                fn dots<S: Simd, const H: usize>(
                    simd: S,
                    rows: &[$float],
                    length: usize,
                    places: Range<usize>,
                    right: &[S::$vectors],
                    columns: usize,
                    partial: &mut [S::$vectors],
                ) {
                    let mut heads = [(&[] as &[S::$vectors], &[] as &[$float]); H];
                    for i in 0..H {
                        heads[i] = S::$of(&rows[i * length + places.start..i * length + places.end]);
                    }
                    let stride = right.len() / columns;
                    let mut column = 0;
                    while column + WIDTH <= columns {
                        tile_dots::<S, H, WIDTH>(
                            simd,
                            &heads,
                            &right[column * stride..],
                            stride,
                            &mut partial[column..],
                            columns,
                        );
                        column += WIDTH;
                    }
                    let (right, partial) = (&right[column * stride..], &mut partial[column..]);
                    match columns - column {
                        0 => {}
                        1 => tile_dots::<S, H, 1>(simd, &heads, right, stride, partial, columns),
                        2 => tile_dots::<S, H, 2>(simd, &heads, right, stride, partial, columns),
                        _ => tile_dots::<S, H, 3>(simd, &heads, right, stride, partial, columns),
                    }
                }

                #[inline(always)]
                fn tile_dots<S: Simd, const H: usize, const W: usize>(
                    simd: S,
                    rows: &[(&[S::$vectors], &[$float]); H],
                    right: &[S::$vectors],
                    stride: usize,
                    partial: &mut [S::$vectors],
                    columns: usize,
                ) {
                    let steps = rows[0].0.len();
                    let mut lines = [&[] as &[S::$vectors]; W];
                    for w in 0..W {
                        lines[w] = &right[w * stride..][..steps];
                    }
                    let mut heads = [&[] as &[S::$vectors]; H];
                    let mut sums = [[simd.$splat(0.0); W]; H];
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
                                sums[i][w] = simd.$mul_add(x, lines[w][step], sums[i][w]);
                            }
                        }
                    }
                    if !rows[0].1.is_empty() {
                        for i in 0..H {
                            let x = simd.$load(rows[i].1);
                            for w in 0..W {
                                // The column goes on with zeros.
                                sums[i][w] = simd.$mul_add(x, right[w * stride + steps], sums[i][w]);
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
                fn add<S: Simd, const H: usize>(
                    simd: S,
                    rows: &[$float],
                    length: usize,
                    places: Range<usize>,
                    left: &[$float],
                    columns: usize,
                    sums: &mut [$float],
                    tile: usize,
                ) {
                    let lanes = size_of::<S::$vectors>() / size_of::<$float>();
                    let mut place = places.start;
                    while place + WIDTH * lanes <= places.end {
                        let to = &mut sums[place - places.start..];
                        add_block::<S, H, WIDTH>(
                            simd,
                            &rows[place..],
                            length,
                            WIDTH * lanes,
                            left,
                            columns,
                            to,
                            tile,
                        );
                        place += WIDTH * lanes;
                    }
                    while place < places.end {
                        let to = &mut sums[place - places.start..];
                        let count = lanes.min(places.end - place);
                        add_block::<S, H, 1>(simd, &rows[place..], length, count, left, columns, to, tile);
                        place += lanes;
                    }
                }

                /// `W` vectors of it, of which only `count` numbers are there.
                #[inline(always)]
                #[expect(clippy::too_many_arguments, reason = "the parts of three matrices")]
                fn add_block<S: Simd, const H: usize, const W: usize>(
                    simd: S,
                    rows: &[$float],
                    length: usize,
                    count: usize,
                    left: &[$float],
                    columns: usize,
                    sums: &mut [$float],
                    tile: usize,
                ) {
                    let lanes = size_of::<S::$vectors>() / size_of::<$float>();
                    let mut made = [[simd.$splat(0.0); W]; H];
                    for i in 0..H {
                        let (from, _) = S::$of(&sums[i * tile..][..W * lanes]);
                        for w in 0..W {
                            made[i][w] = from[w];
                        }
                    }
                    for (row, left) in rows.chunks(length).zip(left.chunks(columns)) {
                        let row = &row[..count];
                        let left = &left[..H];
                        let mut vectors = [simd.$splat(0.0); W];
                        if count == W * lanes {
                            let (from, _) = S::$of(row);
                            for w in 0..W {
                                vectors[w] = from[w];
                            }
                        } else {
                            vectors[0] = simd.$load(row);
                        }
                        for i in 0..H {
                            let factor = simd.$splat(left[i]);
                            for w in 0..W {
                                made[i][w] = simd.$mul_add(factor, vectors[w], made[i][w]);
                            }
                        }
                    }
                    for i in 0..H {
                        let (to, _) = S::$of_mut(&mut sums[i * tile..][..W * lanes]);
                        to.copy_from_slice(&made[i]);
                    }
                }
            }
        }
    };
}
few_columns!(
    f32,
    f32s,
    as_simd_f32s,
    as_mut_simd_f32s,
    partial_load_f32s,
    partial_store_f32s,
    splat_f32s,
    mul_add_e_f32s,
    reduce_sum_f32s
);
few_columns!(
    f64,
    f64s,
    as_simd_f64s,
    as_mut_simd_f64s,
    partial_load_f64s,
    partial_store_f64s,
    splat_f64s,
    mul_add_e_f64s,
    reduce_sum_f64s
);

#[cfg(test)]
#[path = "few_columns_tests.rs"]
mod tests;
