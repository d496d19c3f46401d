//! Products of bfloat16 numbers summed in f32, by instructions that multiply pairs of them.
//!
//! Such an instruction takes two neighbours along the inner product from either factor. Both factors are packed so that a
//! pair is one 32-bit word, rounding f32 on the way:
//!
//! | factor | layout |
//! |---|---|
//! | left, inner product contiguous | lines: `[row][pair]` |
//! | left, rows contiguous | panels of `PANEL` rows: `[panel][pair][row]`; lines, if the unit takes several pairs at a time |
//! | right | panels of `WIDTH` columns: `[panel][pair][column]` |
//!
//! A tile of the result, some rows of `WIDTH` sums, stays in registers for a part of the inner product, while a panel of the
//! right factor stays in the first level of cache and a block of the left in the second. The processor enters through
//! [`Instructions`], of which x86 has two: vectors of sums ([`Avx512`]) and tiles of them ([`Amx`]). The loops are the same for
//! portable twins that tests compare with.

#[cfg(target_arch = "x86_64")]
mod amx;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(test)]
mod portable;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod unit;

use core::marker::PhantomData;
use core::ops::Range;

use faer::MatMut;
use faer::prelude::ReborrowMut;
use rayon::prelude::*;

use super::Buffer;
use super::matrix::Factor;

#[cfg(target_arch = "x86_64")]
pub(super) use amx::Amx;
#[cfg(target_arch = "x86_64")]
pub(super) use avx512::Avx512;
#[cfg(target_arch = "x86_64")]
pub(super) use unit::Unit;

/// Rows of a panel of a left factor.
const PANEL: usize = 8;

/// Columns of a vector of sums; words of a line of cache.
const LANES: usize = 16;

/// Columns of a tile.
pub(super) const WIDTH: usize = 3 * LANES;

/// Bytes of a packed block that shall stay in the second level of cache, of 1 MB or more.
const NEAR: usize = 512 << 10;

/// Most columns of the right factor that are packed at a time where blocks of the left are packed again for each such
/// block: it lies in the last level of cache, several threads' together.
const COLUMNS: usize = 2016;

/// Rows up to which columns that are contiguous in memory are not packed: a packed number is read too few times.
const FEW: usize = 16;

/// Inner products up to which a result costs more to write than to make: it is written a few rows after the other, each from
/// front to back.
const SHALLOW: usize = 32;

/// A tile of the result and what it is made of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tile {
    /// At most [`Instructions::HEIGHT`].
    rows: usize,
    /// At most [`WIDTH`]; the vectors of the right panel are whole.
    columns: usize,
    /// A multiple of [`Instructions::STEP`].
    pairs: usize,
    /// The first pair of the first row, and the words to the next row and pair.
    left: *const u32,
    left_row: usize,
    left_pair: usize,
    /// The first pair of the first column. Columns lie side by side, the next pair's follow.
    right: *const u32,
    /// The first sum, and the numbers to the next row.
    out: *mut f32,
    out_row: usize,
    /// The numbers to the next column: 1, but for a [turned](turns) product, whose rows are contiguous instead.
    out_column: usize,
    /// Adds to what is there.
    accumulate: bool,
}

/// What a processor brings for products of pairs.
pub(super) trait Instructions: Copy + Send + Sync {
    /// Rows of a tile: a multiple of [`PANEL`] and of [`STEP`](Self::STEP).
    const HEIGHT: usize;

    /// Pairs of an inner product, and rows of a left factor, that are taken at a time. Packed factors have multiples of it.
    /// More than one are taken from lines, so that a left factor of contiguous rows is dear: its products may be [turned](turns).
    const STEP: usize;

    /// Most numbers of an inner product that a tile is summed over at a time, a multiple of those that are taken at a time.
    const DEPTH: usize;

    /// Packs a left factor in the layout [`LeftLayout::of`] it, rounded. What the layout leaves between lines or behind the
    /// last row may be anything; what a last step of pairs has too many is 0.
    ///
    /// # Panics
    /// If `words` are not as many as the layout's.
    fn pack_left(self, words: &mut [u32], a: Factor<'_, f32>);

    /// Packs a right factor in panels, rounded. Columns that the last vector and numbers that the last step of pairs has too
    /// many are 0.
    ///
    /// # Panics
    /// If `words` are not as many as [`right_len`].
    fn pack_right(self, words: &mut [u32], b: Factor<'_, f32>);

    /// Products of few rows, packed as lines, with columns that are contiguous in memory: read once, not packed.
    ///
    /// # Panics
    /// If the sizes do not fit, or `b` is not transposed.
    fn dots(self, out: MatMut<'_, f32>, left: Left<'_>, b: Factor<'_, f32>, accumulate: bool);

    /// Makes all tiles of a result. Nothing else happens meanwhile, so a processor may be set up for them before, and reset after.
    fn make(self, tiles: Tiles<'_, Self>);
}

/// Pairs that an inner product is packed in.
fn pairs<I: Instructions>(depth: usize) -> usize {
    depth.div_ceil(2).next_multiple_of(I::STEP)
}

/// Words of a packed right factor.
fn right_len<I: Instructions>(depth: usize, columns: usize) -> usize {
    pairs::<I>(depth) * columns.next_multiple_of(LANES)
}

/// Where the pairs of a left factor are: words from one row, pair or panel of [`PANEL`] rows to the next, and all words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LeftLayout {
    row: usize,
    pair: usize,
    panel: usize,
    len: usize,
}

impl LeftLayout {
    fn new<I: Instructions>(rows: usize, depth: usize, transposed: bool) -> Self {
        let pairs = pairs::<I>(depth);
        if transposed && I::STEP == 1 {
            let panel = PANEL * pairs;
            Self { row: 1, pair: PANEL, panel, len: rows.div_ceil(PANEL) * panel }
        } else {
            // An odd number of lines of cache: those of a tile's rows then fall to different places in the cache.
            let row = (pairs.div_ceil(LANES) | 1) * LANES;
            Self { row, pair: 1, panel: PANEL * row, len: rows.next_multiple_of(I::STEP) * row }
        }
    }

    fn of<I: Instructions>(a: Factor<'_, f32>) -> Self {
        Self::new::<I>(a.rows(), a.columns(), a.is_transposed())
    }
}

/// A packed left factor.
#[derive(Debug, Clone, Copy)]
pub(super) struct Left<'a> {
    words: &'a [u32],
    layout: LeftLayout,
}

/// A packed right factor.
#[derive(Debug, Clone, Copy)]
pub(super) struct Right<'a> {
    words: &'a [u32],
    pairs: usize,
    columns: usize,
}

/// Memory for packed factors, which is kept.
#[derive(Debug)]
pub(super) struct Words(Buffer<f32>);

impl Words {
    fn new(len: usize) -> Self {
        Self(Buffer::new(len))
    }

    fn left<I: Instructions>(&mut self, unit: I, a: Factor<'_, f32>) -> Left<'_> {
        let layout = LeftLayout::of::<I>(a);
        let words: &mut [u32] = &mut bytemuck::cast_slice_mut(&mut self.0)[..layout.len];
        unit.pack_left(words, a);
        Left { words, layout }
    }

    fn right<I: Instructions>(&mut self, unit: I, b: Factor<'_, f32>) -> Right<'_> {
        let len = right_len::<I>(b.rows(), b.columns());
        let words: &mut [u32] = &mut bytemuck::cast_slice_mut(&mut self.0)[..len];
        unit.pack_right(words, b);
        Right { words, pairs: pairs::<I>(b.rows()), columns: b.columns() }
    }
}

/// A right factor that is packed once and multiplied many times.
#[derive(Debug)]
pub(super) struct Packed<I> {
    unit: I,
    words: Words,
    depth: usize,
    columns: usize,
}

impl<I: Instructions> Packed<I> {
    /// Packs all of a right factor; on all threads of the current pool.
    pub(super) fn new(unit: I, b: Factor<'_, f32>) -> Self {
        let (depth, columns) = (b.rows(), b.columns());
        let mut words = Words::new(right_len::<I>(depth, columns));
        let panel = (pairs::<I>(depth) * WIDTH).max(1);
        let panels: Vec<_> =
            bytemuck::cast_slice_mut::<f32, u32>(&mut words.0).chunks_mut(panel).enumerate().collect();
        panels.into_par_iter().for_each(|(index, words)| {
            let first = index * WIDTH;
            unit.pack_right(words, b.block(0..depth, first..columns.min(first + WIDTH)));
        });
        Self { unit, words, depth, columns }
    }

    /// Adds `a · b` to `out`; on all threads of the current pool.
    pub(super) fn multiply_add(&self, out: MatMut<'_, f32>, a: Factor<'_, f32>) {
        if out.nrows() == 0 || out.ncols() == 0 || self.depth == 0 {
            return;
        }
        let mut words = Words::new(LeftLayout::of::<I>(a).len);
        let left = words.left(self.unit, a);
        let threads = rayon::current_num_threads().min(self.columns.div_ceil(WIDTH));
        self.part(out, left, 0, threads);
    }

    /// The columns of the result from `first` on, of which `out` has some.
    fn part(&self, out: MatMut<'_, f32>, left: Left<'_>, first: usize, threads: usize) {
        if threads > 1 {
            let middle = out.ncols().div_ceil(WIDTH) * (threads / 2) / threads * WIDTH;
            let (out_left, out_right) = out.split_at_col_mut(middle);
            rayon::join(
                || self.part(out_left, left, first, threads / 2),
                || self.part(out_right, left, first + middle, threads - threads / 2),
            );
            return;
        }
        let (pairs, columns) = (pairs::<I>(self.depth), out.ncols());
        let words: &[u32] = bytemuck::cast_slice(&self.words.0);
        let words = &words[first * pairs..][..pairs * columns.next_multiple_of(LANES)];
        let right = Right { words, pairs, columns };
        let mut out = out;
        for part in depths::<I>(self.depth) {
            let place = part.start / 2;
            tiles(self.unit, out.rb_mut(), (left, place), (right, place), part.len(), true);
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
pub(super) fn is_few(a: Factor<'_, f32>, b: Factor<'_, f32>) -> bool {
    a.rows() <= FEW && !a.is_transposed() && b.is_transposed()
}

/// As [`multiply`], for a product of [few](is_few) rows.
pub(super) fn multiply_few<I: Instructions>(
    unit: I,
    out: MatMut<'_, f32>,
    a: Factor<'_, f32>,
    b: Factor<'_, f32>,
    accumulate: bool,
) {
    if a.rows() == 0 || b.columns() == 0 {
        return;
    }
    let mut words = Words::new(LeftLayout::of::<I>(a).len);
    unit.dots(out, words.left(unit, a), b, accumulate);
}

/// Whether the transpose of a product is to be made instead: the larger factor is then packed as it lies in memory.
pub(super) fn turns<I: Instructions>(a: Factor<'_, f32>, b: Factor<'_, f32>) -> bool {
    I::STEP > 1 && a.is_transposed() && (b.is_transposed() || b.columns() < a.rows())
}

/// Whether threads share out the columns of a product: then each packs all of `a`, and otherwise all of `b`.
pub(super) fn cut_columns<I: Instructions>(a: Factor<'_, f32>, b: Factor<'_, f32>) -> bool {
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
pub(super) fn multiply<I: Instructions>(
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
        let mut words = Words::new(right_len::<I>(depth, columns));
        multiply_packed(unit, out, a, words.right(unit, b), accumulate);
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
pub(super) fn multiply_packed<I: Instructions>(
    unit: I,
    mut out: MatMut<'_, f32>,
    a: Factor<'_, f32>,
    right: Right<'_>,
    accumulate: bool,
) {
    let (rows, depth) = (a.rows(), a.columns());
    let (depths, blocks) = (depths::<I>(depth), blocks::<I>(rows, 2 * depth.min(I::DEPTH)));
    let largest = LeftLayout::new::<I>(longest(blocks.clone()), longest(depths.clone()), a.is_transposed());
    let mut words = Words::new(largest.len);
    for block in blocks {
        for part in depths.clone() {
            let left = words.left(unit, a.block(block.clone(), part.clone()));
            let out = out.rb_mut().subrows_mut(block.start, block.len());
            tiles(unit, out, (left, 0), (right, part.start / 2), part.len(), accumulate || part.start > 0);
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
    let mut words = Words::new(LeftLayout::of::<I>(a).len);
    let left = words.left(unit, a);
    // Rows of the right factor are read some vectors at a time; where its columns are contiguous, one panel does.
    let most = if b.is_transposed() { WIDTH } else { 8 * WIDTH };
    let (depths, panels) = (parts(depth, step), parts(columns, even(columns, most, WIDTH)));
    let mut words = Words::new(right_len::<I>(longest(depths.clone()), longest(panels.clone())));
    for panel in panels {
        for part in depths.clone() {
            let right = words.right(unit, b.block(part.clone(), panel.clone()));
            let out = out.rb_mut().subcols_mut(panel.start, panel.len());
            tiles(unit, out, (left, part.start / 2), (right, 0), part.len(), accumulate || part.start > 0);
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
    let mut left_words = Words::new(largest.len);
    let mut right_words = Words::new(right_len::<I>(longest(depths.clone()), longest(sides.clone())));
    for side in sides {
        for part in depths.clone() {
            let right = right_words.right(unit, b.block(part.clone(), side.clone()));
            for block in blocks.clone() {
                let left = left_words.left(unit, a.block(block.clone(), part.clone()));
                let out = out.rb_mut().submatrix_mut(block.start, side.start, block.len(), side.len());
                tiles(unit, out, (left, 0), (right, 0), part.len(), accumulate || part.start > 0);
            }
        }
    }
}

/// All tiles of `out`, over `depth` numbers of the inner product from given pairs of either factor on.
fn tiles<I: Instructions>(
    unit: I,
    out: MatMut<'_, f32>,
    left: (Left<'_>, usize),
    right: (Right<'_>, usize),
    depth: usize,
    accumulate: bool,
) {
    unit.make(Tiles::new(out, left, right, depth, accumulate));
}

/// All tiles of a result. Both factors have the words that the tiles read, and the result has the sums.
pub(super) struct Tiles<'a, I> {
    out: MatMut<'a, f32>,
    left: Left<'a>,
    left_pair: usize,
    right: Right<'a>,
    right_pair: usize,
    pairs: usize,
    accumulate: bool,
    /// From front to back of some rows before the next: the product is [shallow](SHALLOW).
    by_rows: bool,
    unit: PhantomData<I>,
}

impl<'a, I: Instructions> Tiles<'a, I> {
    /// # Panics
    /// If a factor has too few words, or the result is empty, not contiguous or of another size.
    fn new(
        out: MatMut<'a, f32>,
        (left, left_pair): (Left<'a>, usize),
        (right, right_pair): (Right<'a>, usize),
        depth: usize,
        accumulate: bool,
    ) -> Self {
        let (rows, columns, pairs) = (out.nrows(), out.ncols(), pairs::<I>(depth));
        assert!(columns == right.columns && right_pair + pairs <= right.pairs);
        assert_eq!(right.words.len(), right.pairs * columns.next_multiple_of(LANES));
        assert!(rows > 0 && pairs > 0 && columns > 0);
        let layout = left.layout;
        let (last_row, last_pair) = (rows.next_multiple_of(I::STEP) - 1, left_pair + pairs - 1);
        let last = last_row / PANEL * layout.panel + last_row % PANEL * layout.row + last_pair * layout.pair;
        assert!(last < left.words.len(), "products of pairs: the left factor has too few rows or pairs");
        let (row, column) = (out.row_stride(), out.col_stride());
        assert!(row > 0 && column > 0, "products of pairs: the result runs backwards");
        assert!(column == 1 || I::STEP > 1 && row == 1, "products of pairs: the result is not contiguous");
        let by_rows = depth <= SHALLOW;
        Self { out, left, left_pair, right, right_pair, pairs, accumulate, by_rows, unit: PhantomData }
    }

    /// Calls `make` with each tile in turn. A tile's words are readable, and its sums are readable and writable.
    fn each(self, mut make: impl FnMut(&Tile)) {
        let Self { out, left, left_pair, right, right_pair, pairs, accumulate, by_rows, .. } = self;
        let (rows, columns, layout) = (out.nrows(), out.ncols(), left.layout);
        let (out_row, out_column) = (out.row_stride() as usize, out.col_stride() as usize);
        let out = out.as_ptr_mut();
        let mut tile = |top: usize, first: usize| {
            let width = WIDTH.min(columns - first);
            make(&Tile {
                rows: I::HEIGHT.min(rows - top),
                columns: width,
                pairs,
                left: left.words[top / PANEL * layout.panel + left_pair * layout.pair..].as_ptr(),
                left_row: layout.row,
                left_pair: layout.pair,
                right: right.words[first * right.pairs + right_pair * width.next_multiple_of(LANES)..]
                    .as_ptr(),
                // SAFETY: a sum of `out`, whose strides are positive.
                out: unsafe { out.add(top * out_row + first * out_column) },
                out_row,
                out_column,
                accumulate,
            });
        };
        let (tops, firsts) = ((0..rows).step_by(I::HEIGHT), (0..columns).step_by(WIDTH));
        if by_rows {
            tops.for_each(|top| firsts.clone().for_each(|first| tile(top, first)));
        } else {
            firsts.for_each(|first| tops.clone().for_each(|top| tile(top, first)));
        }
    }
}
