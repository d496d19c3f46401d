//! Products of bfloat16 numbers, summed in f32, by processor instructions that multiply pairs of them.
//!
//! Such an instruction takes two neighbours along the inner product from either factor. Both factors are packed first: a pair
//! becomes one 32-bit word, and f32 is rounded on the way.
//!
//! | factor | layout |
//! |---|---|
//! | left, inner product contiguous | lines: `[row][pair]` |
//! | left, rows contiguous | panels of `PANEL` rows: `[panel][pair][row]`; lines, if the unit takes several pairs at a time |
//! | right | panels of `WIDTH` columns: `[panel][pair][column]` |
//!
//! A tile of the result is some rows of `WIDTH` sums. It stays in registers for a part of the inner product, a panel of the
//! right factor stays in the first-level cache, and a block of the left factor in the second.

#[cfg(target_arch = "x86_64")]
mod amx;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(test)]
mod portable;
pub(super) mod product;

use core::marker::PhantomData;

use faer::MatMut;

use super::matrix::Factor;

#[cfg(target_arch = "x86_64")]
pub(super) use amx::Amx;
#[cfg(target_arch = "x86_64")]
pub(super) use avx512::Avx512;

/// Rows of a panel of a left factor.
const PANEL: usize = 8;

/// Columns of a vector of sums; words of a line of cache.
const LANES: usize = 16;

/// Columns of a tile.
pub(super) const WIDTH: usize = 3 * LANES;

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
    /// The numbers to the next column: 1, but for a [turned](product::turns) product, whose rows are contiguous instead.
    out_column: usize,
    /// Adds to what is there.
    accumulate: bool,
}

/// A processor's instructions for products of pairs.
pub(super) trait Instructions: Copy + Send + Sync {
    /// Rows of a tile: a multiple of [`PANEL`] and of [`STEP`](Self::STEP).
    const HEIGHT: usize;

    /// Pairs of an inner product, and rows of a left factor, that are taken at a time. Packed factors have multiples of it.
    /// More than one are read from lines. Packing a left factor of contiguous rows is then expensive, so its products may be
    /// [turned](product::turns).
    const STEP: usize;

    /// Most numbers of an inner product that a tile is summed over at a time, a multiple of those that are taken at a time.
    const DEPTH: usize;

    /// Packs a left factor in the layout [`LeftLayout::of`] it, rounded. Words between lines and behind the last row are
    /// unspecified; pairs that fill up the last step are 0.
    ///
    /// # Panics
    /// If `words` are not as many as the layout's.
    fn pack_left(self, words: &mut [u32], a: Factor<'_, f32>);

    /// Packs a right factor in panels, rounded. Columns that fill up the last vector, and pairs that fill up the last step,
    /// are 0.
    ///
    /// # Panics
    /// If `words` are not as many as [`right_len`].
    fn pack_right(self, words: &mut [u32], b: Factor<'_, f32>);

    /// Products of few rows, packed as lines, with columns that are contiguous in memory: read once, not packed.
    ///
    /// # Panics
    /// If the sizes do not fit, or `b` is not transposed.
    fn few_rows(self, out: MatMut<'_, f32>, left: Left<'_>, b: Factor<'_, f32>, accumulate: bool);

    /// Makes all tiles of a result. Nothing else runs in between, so the processor may be configured for tiles meanwhile.
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

impl<'a> Left<'a> {
    /// Packs a factor into the first of some words.
    fn pack<I: Instructions>(unit: I, a: Factor<'_, f32>, words: &'a mut [u32]) -> Self {
        let layout = LeftLayout::of::<I>(a);
        let words = &mut words[..layout.len];
        unit.pack_left(words, a);
        Self { words, layout }
    }
}

/// A packed right factor.
#[derive(Debug, Clone, Copy)]
pub(super) struct Right<'a> {
    words: &'a [u32],
    pairs: usize,
    columns: usize,
}

impl<'a> Right<'a> {
    /// Packs a factor into the first of some words.
    fn pack<I: Instructions>(unit: I, b: Factor<'_, f32>, words: &'a mut [u32]) -> Self {
        let words = &mut words[..right_len::<I>(b.rows(), b.columns())];
        unit.pack_right(words, b);
        Self { words, pairs: pairs::<I>(b.rows()), columns: b.columns() }
    }
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
