//! AVX-512 BF16: `vdpbf16ps` multiplies sixteen pairs and adds them to sixteen sums.

mod few_rows;
mod load;

use core::arch::x86_64::*;
use core::mem::transmute;

use faer::MatMut;

use super::{Instructions, LANES, Left, LeftLayout, PANEL, Tile, Tiles, WIDTH, pairs, right_len};
use crate::cpu::matrix::{Factor, Matrix, fetch_ahead};
use load::Load;
pub(super) use load::first;

/// Proof that the processor has the instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cpu) struct Avx512(());

impl Avx512 {
    /// The instructions, if this processor has them.
    pub(in crate::cpu) fn new() -> Option<Self> {
        let found = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512bf16");
        found.then_some(Self(()))
    }

    /// As [`Instructions::pack_left`], in the layout of `I`.
    pub(super) fn pack_left_for<I: Instructions>(self, words: &mut [u32], a: Factor<'_, f32>) {
        let layout = LeftLayout::of::<I>(a);
        assert_eq!(words.len(), layout.len);
        // SAFETY: the processor has the instructions, and the layout the words.
        unsafe {
            match a {
                Factor::Wide(a) => pack_left(words, layout, a),
                Factor::Short(a) => pack_left(words, layout, a),
            }
        }
    }

    /// As [`Instructions::pack_right`], in as many pairs as `I` takes.
    pub(super) fn pack_right_for<I: Instructions>(self, words: &mut [u32], b: Factor<'_, f32>) {
        assert_eq!(words.len(), right_len::<I>(b.rows(), b.columns()));
        let pairs = pairs::<I>(b.rows());
        // SAFETY: the processor has the instructions, and there are words for all pairs.
        unsafe {
            match b {
                Factor::Wide(b) => pack_right(words, pairs, b),
                Factor::Short(b) => pack_right(words, pairs, b),
            }
        }
    }
}

impl Instructions for Avx512 {
    const HEIGHT: usize = 8;
    const STEP: usize = 1;
    // A panel of the right factor and two of the left fit the first level of cache, 48 KB.
    const DEPTH: usize = 320;

    fn pack_left(self, words: &mut [u32], a: Factor<'_, f32>) {
        self.pack_left_for::<Self>(words, a);
    }

    fn pack_right(self, words: &mut [u32], b: Factor<'_, f32>) {
        self.pack_right_for::<Self>(words, b);
    }

    fn few_rows(self, out: MatMut<'_, f32>, left: Left<'_>, b: Factor<'_, f32>, accumulate: bool) {
        let LeftLayout { row, pair, .. } = left.layout;
        assert!(out.nrows() * row <= left.words.len() && pair == 1);
        assert!(row.is_multiple_of(LANES), "products of pairs: the last vector of a line of {row} pairs");
        assert!(out.ncols() == b.columns() && b.rows().div_ceil(2) <= row && b.is_transposed());
        // SAFETY: the processor has the instructions, the sizes fit, and lines are whole vectors.
        unsafe {
            match b {
                Factor::Wide(b) => few_rows::multiply(out, left, b, accumulate),
                Factor::Short(b) => few_rows::multiply(out, left, b, accumulate),
            }
        }
    }

    fn make(self, tiles: Tiles<'_, Self>) {
        // SAFETY: the processor has the instructions; the words and sums are those of `tiles`.
        tiles.each(|tile| unsafe { tile_of(tile) });
    }
}

/// The transpose of sixteen lines of sixteen words.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn transposed(lines: [__m512i; LANES]) -> [__m512i; LANES] {
    let (mut twos, mut fours, mut out) = (lines, lines, lines);
    for i in 0..8 {
        twos[2 * i] = _mm512_unpacklo_epi32(lines[2 * i], lines[2 * i + 1]);
        twos[2 * i + 1] = _mm512_unpackhi_epi32(lines[2 * i], lines[2 * i + 1]);
    }
    // Lane l of the c-th vector of four holds column 4l + c of four lines.
    for i in 0..4 {
        fours[4 * i] = _mm512_unpacklo_epi64(twos[4 * i], twos[4 * i + 2]);
        fours[4 * i + 1] = _mm512_unpackhi_epi64(twos[4 * i], twos[4 * i + 2]);
        fours[4 * i + 2] = _mm512_unpacklo_epi64(twos[4 * i + 1], twos[4 * i + 3]);
        fours[4 * i + 3] = _mm512_unpackhi_epi64(twos[4 * i + 1], twos[4 * i + 3]);
    }
    for c in 0..4 {
        let even = _mm512_shuffle_i32x4::<0x88>(fours[c], fours[4 + c]);
        let odd = _mm512_shuffle_i32x4::<0xdd>(fours[c], fours[4 + c]);
        let even_below = _mm512_shuffle_i32x4::<0x88>(fours[8 + c], fours[12 + c]);
        let odd_below = _mm512_shuffle_i32x4::<0xdd>(fours[8 + c], fours[12 + c]);
        out[c] = _mm512_shuffle_i32x4::<0x88>(even, even_below);
        out[4 + c] = _mm512_shuffle_i32x4::<0x88>(odd, odd_below);
        out[8 + c] = _mm512_shuffle_i32x4::<0xdd>(even, even_below);
        out[12 + c] = _mm512_shuffle_i32x4::<0xdd>(odd, odd_below);
    }
    out
}

/// Lines of a left factor by which the next are fetched ahead.
const AHEAD: usize = 4;

/// As [`Instructions::pack_left`].
///
/// # Safety
/// The processor must have the instructions, and `words` be as many as the layout's, which must be one of such a factor.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
unsafe fn pack_left<T: Load>(words: &mut [u32], layout: LeftLayout, a: Matrix<'_, T>) {
    if a.is_transposed() && layout.pair == 1 {
        // SAFETY: the caller's.
        return unsafe { pack_left_turned(words, layout, a) };
    }
    if !a.is_transposed() {
        for row in 0..a.rows() {
            let line = a.line(row);
            let words = &mut words[row * layout.row..][..layout.row];
            for (place, words) in (0..line.len()).step_by(2 * LANES).zip(words.chunks_exact_mut(LANES)) {
                // SAFETY: so many numbers are left of the line, and there are sixteen words.
                unsafe {
                    fetch_ahead(line.as_ptr().wrapping_add(place + AHEAD * a.stride()), 2 * LANES);
                    let pairs = T::pairs(line.as_ptr().add(place), line.len() - place);
                    _mm512_storeu_si512(words.as_mut_ptr().cast(), pairs);
                }
            }
        }
        return;
    }
    // Two panels a vector. A few lines at a time are read from front to back, not a few columns from top to bottom, which
    // would be a page each.
    let (depth, rows) = (a.columns(), a.rows());
    for start in (0..depth).step_by(2 * TOGETHER) {
        for top in (0..rows).step_by(2 * PANEL) {
            let count = rows - top;
            for pair in start / 2..depth.min(start + 2 * TOGETHER).div_ceil(2) {
                // SAFETY: the lines have so many numbers from there on; the store of the second panel is left out where
                // there is none.
                unsafe {
                    let both = line_pair(a, pair, top, count);
                    let place = top / PANEL * layout.panel + pair * PANEL;
                    let low = words[place..][..PANEL].as_mut_ptr();
                    _mm256_storeu_si256(low.cast(), _mm512_castsi512_si256(both));
                    if count > PANEL {
                        let high = words[place + layout.panel..][..PANEL].as_mut_ptr();
                        _mm256_storeu_si256(high.cast(), _mm512_extracti64x4_epi64::<1>(both));
                    }
                }
            }
        }
    }
}

/// As [`Instructions::pack_left`], lines of pairs from lines of rows: sixteen rows of sixteen pairs at a time.
///
/// # Safety
/// The processor must have the instructions, and the layout room for multiples of sixteen rows and pairs.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
unsafe fn pack_left_turned<T: Load>(words: &mut [u32], layout: LeftLayout, a: Matrix<'_, T>) {
    let (depth, rows) = (a.columns(), a.rows());
    for start in (0..depth.div_ceil(2)).step_by(LANES) {
        for top in (0..rows).step_by(LANES) {
            let mut pairs = [_mm512_setzero_si512(); LANES];
            for (pair, both) in (start..depth.div_ceil(2)).zip(&mut pairs) {
                // SAFETY: the lines have so many numbers from there on.
                *both = unsafe { line_pair(a, pair, top, rows - top) };
            }
            for (row, pairs) in transposed(pairs).into_iter().enumerate() {
                let words = &mut words[(top + row) * layout.row + start..][..LANES];
                // SAFETY: there are sixteen words.
                unsafe { _mm512_storeu_si512(words.as_mut_ptr().cast(), pairs) };
            }
        }
    }
}

/// Pairs of lines that are read side by side.
const TOGETHER: usize = 4;

/// The numbers of two neighbouring lines as pairs, `count` from `first` on or sixteen; a line behind the last is 0.
///
/// # Safety
/// The processor must have the instructions, and the lines `count` numbers from there on.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
unsafe fn line_pair<T: Load>(matrix: Matrix<'_, T>, pair: usize, first: usize, count: usize) -> __m512i {
    let (lines, _) = matrix.lines();
    let even = matrix.line(2 * pair)[first..].as_ptr();
    fetch_ahead(even.wrapping_add(2 * TOGETHER * matrix.stride()), LANES);
    fetch_ahead(even.wrapping_add((2 * TOGETHER + 1) * matrix.stride()), LANES);
    if 2 * pair + 1 < lines {
        let odd = matrix.line(2 * pair + 1)[first..].as_ptr();
        // SAFETY: the caller's.
        unsafe { T::from_lines(even, odd, count) }
    } else {
        // SAFETY: the caller's. The second halves are cleared.
        unsafe { _mm512_and_si512(T::from_lines(even, even, count), _mm512_set1_epi32(0xffff)) }
    }
}

/// As [`Instructions::pack_right`].
///
/// # Safety
/// The processor must have the instructions, and `words` be as many `pairs` of all columns in whole vectors; those that the
/// inner product does not fill are 0.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
unsafe fn pack_right<T: Load>(words: &mut [u32], pairs: usize, b: Matrix<'_, T>) {
    let (depth, columns) = (b.rows(), b.columns());
    if b.is_transposed() {
        for left in (0..columns).step_by(WIDTH) {
            let width = WIDTH.min(columns - left).next_multiple_of(LANES);
            let panel = &mut words[left * pairs..][..pairs * width];
            for column in (0..width).step_by(LANES) {
                // SAFETY: the panel's.
                unsafe { pack_transposed(panel, width, column, b, left + column) };
            }
        }
        return;
    }
    for left in (0..columns).step_by(WIDTH) {
        let width = WIDTH.min(columns - left).next_multiple_of(LANES);
        let filled = left * pairs + depth.div_ceil(2) * width;
        words[filled..left * pairs + pairs * width].fill(0);
    }
    for start in (0..depth).step_by(2 * TOGETHER) {
        for left in (0..columns).step_by(WIDTH) {
            let width = WIDTH.min(columns - left).next_multiple_of(LANES);
            for pair in start / 2..depth.min(start + 2 * TOGETHER).div_ceil(2) {
                let words = &mut words[left * pairs + pair * width..][..width];
                for (vector, words) in words.chunks_exact_mut(LANES).enumerate() {
                    let column = left + vector * LANES;
                    // SAFETY: the lines have so many numbers from there on, and there are sixteen words.
                    unsafe {
                        let both = line_pair(b, pair, column, columns - column);
                        _mm512_storeu_si512(words.as_mut_ptr().cast(), both);
                    }
                }
            }
        }
    }
}

/// Sixteen columns of a panel, or as many as there are, from lines along the inner product.
///
/// # Safety
/// The processor must have the instructions.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
unsafe fn pack_transposed<T: Load>(
    panel: &mut [u32],
    width: usize,
    column: usize,
    b: Matrix<'_, T>,
    first: usize,
) {
    let depth = b.rows();
    let count = LANES.min(b.columns() - first);
    for start in (0..depth).step_by(2 * LANES) {
        let mut lines = [_mm512_setzero_si512(); LANES];
        let here = depth - start;
        for (index, line) in lines.iter_mut().enumerate() {
            if index < count {
                let numbers = b.line(first + index)[start..].as_ptr();
                fetch_ahead(numbers.wrapping_add(LANES * b.stride()), 2 * LANES);
                // SAFETY: so many numbers are left of the line.
                *line = unsafe { T::pairs(numbers, here) };
            }
        }
        for (pair, words) in (start / 2..panel.len() / width).zip(transposed(lines)) {
            let place = &mut panel[pair * width + column..][..LANES];
            // SAFETY: there are sixteen words.
            unsafe { _mm512_storeu_si512(place.as_mut_ptr().cast(), words) };
        }
    }
}

/// Makes a tile, by the kernel of its size.
///
/// # Safety
/// The processor must have the instructions. The words that the tile describes must be readable, and its sums readable and
/// writable.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
unsafe fn tile_of(tile: &Tile) {
    // SAFETY: the caller's.
    unsafe {
        match tile.columns.div_ceil(LANES) {
            1 => tile_of_width::<1>(tile),
            2 => tile_of_width::<2>(tile),
            _ => tile_of_width::<3>(tile),
        }
    }
}

/// # Safety
/// As [`tile_of`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
unsafe fn tile_of_width<const VECTORS: usize>(tile: &Tile) {
    // SAFETY: the caller's.
    unsafe {
        match tile.rows {
            1 => sums::<1, VECTORS>(tile),
            2 => sums::<2, VECTORS>(tile),
            3 => sums::<3, VECTORS>(tile),
            4 => sums::<4, VECTORS>(tile),
            5 => sums::<5, VECTORS>(tile),
            6 => sums::<6, VECTORS>(tile),
            7 => sums::<7, VECTORS>(tile),
            _ => sums::<8, VECTORS>(tile),
        }
    }
}

/// A tile of as many rows and vectors of columns.
///
/// # Safety
/// As [`tile_of`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
unsafe fn sums<const ROWS: usize, const VECTORS: usize>(tile: &Tile) {
    let mut sums = [[_mm512_setzero_ps(); VECTORS]; ROWS];
    let mut masks = [0; VECTORS];
    for (v, mask) in masks.iter_mut().enumerate() {
        *mask = first(tile.columns - v * LANES);
    }
    // SAFETY: the caller vouches for the words and sums of the tile; lanes outside of it are switched off.
    unsafe {
        for row in 0..ROWS {
            let out = tile.out.add(row * tile.out_row);
            for v in 0..VECTORS {
                _mm_prefetch::<_MM_HINT_T0>(out.wrapping_add(v * LANES).cast());
            }
            _mm_prefetch::<_MM_HINT_T0>(out.wrapping_add(VECTORS * LANES - 1).cast());
        }
        let (mut left, mut right) = (tile.left, tile.right);
        for _ in 0..tile.pairs {
            let mut columns = [_mm512_setzero_si512(); VECTORS];
            for (v, column) in columns.iter_mut().enumerate() {
                *column = _mm512_loadu_si512(right.add(v * LANES).cast());
            }
            for (row, sums) in sums.iter_mut().enumerate() {
                let pair = _mm512_set1_epi32(left.add(row * tile.left_row).cast::<i32>().read());
                for (sum, column) in sums.iter_mut().zip(columns) {
                    *sum = _mm512_dpbf16_ps(
                        *sum,
                        transmute::<__m512i, __m512bh>(pair),
                        transmute::<__m512i, __m512bh>(column),
                    );
                }
            }
            right = right.add(VECTORS * LANES);
            left = left.wrapping_add(tile.left_pair);
        }
        for (row, sums) in sums.into_iter().enumerate() {
            for (v, (sum, mask)) in sums.into_iter().zip(masks).enumerate() {
                let out = tile.out.add(row * tile.out_row + v * LANES);
                let before =
                    if tile.accumulate { _mm512_maskz_loadu_ps(mask, out) } else { _mm512_setzero_ps() };
                _mm512_mask_storeu_ps(out, mask, _mm512_add_ps(before, sum));
            }
        }
    }
}
