//! Products of few rows with columns that are contiguous in memory: sums along the inner product, sixteen pairs at a time,
//! whose lanes are added up at the end.

use core::arch::x86_64::*;
use core::mem::transmute;

use faer::MatMut;

use super::load::Load;
use crate::cpu::bf16::{LANES, Left};
use crate::cpu::matrix::{Matrix, fetch_ahead};

/// Sums that are made at a time, each in a vector of its own: as many as such a vector has lanes.
const SUMS: usize = LANES;

/// Columns by which the next are fetched ahead.
const AHEAD: usize = 16;

/// As [`Instructions::few_rows`](crate::cpu::bf16::Instructions::few_rows).
///
/// # Safety
/// The processor must have the instructions; the left factor as many rows as `out`, in lines of whole vectors that have at
/// least as many pairs as the columns of `b`, which must be transposed; and `out` as many columns as `b`.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
pub(super) unsafe fn multiply<T: Load>(
    out: MatMut<'_, f32>,
    left: Left<'_>,
    b: Matrix<'_, T>,
    accumulate: bool,
) {
    // SAFETY: the caller's.
    unsafe {
        match out.nrows() {
            1 => blocks::<T, 16>(out, left, b, accumulate),
            2 => blocks::<T, 8>(out, left, b, accumulate),
            _ => blocks::<T, 4>(out, left, b, accumulate),
        }
    }
}

/// Some columns after the other, each with all rows.
///
/// # Safety
/// As [`multiply`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
unsafe fn blocks<T: Load, const COLUMNS: usize>(
    mut out: MatMut<'_, f32>,
    left: Left<'_>,
    b: Matrix<'_, T>,
    accumulate: bool,
) {
    let (rows, columns) = (out.nrows(), out.ncols());
    // As equal parts as can be, of at most so many rows that there is a lane for every sum.
    let step = rows.div_ceil(rows.div_ceil(SUMS / COLUMNS));
    for first in (0..columns).step_by(COLUMNS) {
        let width = COLUMNS.min(columns - first);
        let mut lines = [b.line(first).as_ptr(); COLUMNS];
        for (index, line) in lines.iter_mut().enumerate().take(width) {
            let numbers = b.line(first + index);
            fetch_ahead(numbers.as_ptr().wrapping_add(AHEAD * b.stride()), numbers.len());
            *line = numbers.as_ptr();
        }
        for top in (0..rows).step_by(step) {
            let words = left.words[top * left.layout.row..].as_ptr();
            let height = step.min(rows - top);
            // SAFETY: the lines have `b.rows()` numbers each, and the words so many rows of as many pairs.
            let sums = unsafe {
                match height {
                    1 => sums::<T, 1, COLUMNS>(words, left.layout.row, lines, b.rows()),
                    2 => sums::<T, 2, COLUMNS>(words, left.layout.row, lines, b.rows()),
                    3 => sums::<T, 3, COLUMNS>(words, left.layout.row, lines, b.rows()),
                    _ => sums::<T, 4, COLUMNS>(words, left.layout.row, lines, b.rows()),
                }
            };
            for row in 0..height {
                for (index, sum) in sums[row * COLUMNS..][..width].iter().enumerate() {
                    let out = &mut out[(top + row, first + index)];
                    *out = if accumulate { *out + sum } else { *sum };
                }
            }
        }
    }
}

/// The products of some rows with some columns, row by row; 0 for rows beyond [`SUMS`] sums.
///
/// # Safety
/// The processor must have the instructions. `columns` must point to `depth` numbers each, and the words be as many rows,
/// `row` words apart, of as many pairs in whole vectors.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
unsafe fn sums<T: Load, const ROWS: usize, const COLUMNS: usize>(
    words: *const u32,
    row: usize,
    columns: [*const T; COLUMNS],
    depth: usize,
) -> [f32; SUMS] {
    let mut sums = [_mm512_setzero_ps(); SUMS];
    let whole = depth / (2 * LANES);
    for step in 0..whole {
        // SAFETY: the caller's.
        unsafe { add::<T, ROWS, COLUMNS>(&mut sums, words.add(step * LANES), row, columns, step, 2 * LANES) };
    }
    if depth > whole * 2 * LANES {
        let rest = depth - whole * 2 * LANES;
        // SAFETY: the caller's.
        unsafe { add::<T, ROWS, COLUMNS>(&mut sums, words.add(whole * LANES), row, columns, whole, rest) };
    }
    let mut out = [0.0; SUMS];
    // SAFETY: there is room for sixteen sums.
    unsafe { _mm512_storeu_ps(out.as_mut_ptr(), lanes_added(sums)) };
    out
}

/// Adds the products of `count` numbers, at most 32, of every line.
///
/// # Safety
/// As [`sums`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
unsafe fn add<T: Load, const ROWS: usize, const COLUMNS: usize>(
    sums: &mut [__m512; SUMS],
    words: *const u32,
    row: usize,
    columns: [*const T; COLUMNS],
    step: usize,
    count: usize,
) {
    let mut rows = [_mm512_setzero_si512(); ROWS];
    for (index, pairs) in rows.iter_mut().enumerate() {
        // SAFETY: the caller's.
        *pairs = unsafe { _mm512_loadu_si512(words.add(index * row).cast()) };
    }
    for (index, column) in columns.into_iter().enumerate() {
        // SAFETY: the caller's.
        let pairs = unsafe { T::pairs(column.add(step * 2 * LANES), count) };
        for (row, left) in rows.into_iter().enumerate() {
            let place = row * COLUMNS + index;
            if place < SUMS {
                // SAFETY: pairs of bfloat16 either way.
                let (left, right) =
                    unsafe { (transmute::<__m512i, __m512bh>(left), transmute::<__m512i, __m512bh>(pairs)) };
                sums[place] = _mm512_dpbf16_ps(sums[place], left, right);
            }
        }
    }
}

/// The sum of the lanes of every vector, in that vector's lane.
#[inline]
#[target_feature(enable = "avx512f")]
fn lanes_added(sums: [__m512; SUMS]) -> __m512 {
    let mut twos = [_mm512_setzero_ps(); 8];
    for (i, two) in twos.iter_mut().enumerate() {
        let (a, b) = (sums[2 * i], sums[2 * i + 1]);
        *two = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
    }
    let mut fours = [_mm512_setzero_ps(); 4];
    for (i, four) in fours.iter_mut().enumerate() {
        let (a, b) = (_mm512_castps_pd(twos[2 * i]), _mm512_castps_pd(twos[2 * i + 1]));
        let (low, high) = (_mm512_unpacklo_pd(a, b), _mm512_unpackhi_pd(a, b));
        *four = _mm512_add_ps(_mm512_castpd_ps(low), _mm512_castpd_ps(high));
    }
    // Each quarter of a vector now holds four sums' parts.
    let halves = |a: __m512, b: __m512| {
        _mm512_add_ps(_mm512_shuffle_f32x4::<0x88>(a, b), _mm512_shuffle_f32x4::<0xdd>(a, b))
    };
    halves(halves(fours[0], fours[1]), halves(fours[2], fours[3]))
}
