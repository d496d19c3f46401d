//! One row of logits, or a block of one: maximum, exponentials and their sum.

use highrank_kernels::cpu::{BLOCK, LANES, Real};

/// Partial results of a reduction.
pub(super) type Lanes<T> = [T; LANES];

/// Partial results of the sum over a row, one for each place in a block. Aligned, because they are loaded and stored as often
/// as the row is.
#[repr(C, align(64))]
pub(super) struct Partial<T>(pub(super) [T; BLOCK]);

/// Values after which lanes are summed and begun anew, so that long rows do not lose digits.
const RUN: usize = 2048;

/// Words that [`add_scaled`] visits at a time: their sums stay in the first-level cache.
const TILE: usize = 1024;

/// Adds `e^{a_v − top}` of a block to as many sums, for `a_v − top` up to 88. If `graded`, the values become these
/// exponentials.
#[inline(always)]
pub(super) fn add_exponentials<T: Real>(block: &mut [T], top: T, graded: bool, sums: &mut [T]) {
    for (a, sum) in block.iter_mut().zip(sums) {
        let e = (*a - top).exp_of_bounded();
        *sum += e;
        if graded {
            *a = e;
        }
    }
}

/// Adds a bias to a row. The largest sum, as [`max`].
#[inline(always)]
pub(super) fn add_bias<T: Real>(row: &mut [T], bias: &[T]) -> T {
    T::largest(row.iter_mut().zip(bias).map(|(z, bias)| {
        *z += *bias;
        *z
    }))
}

/// The largest value. A NaN that is passed over here shows in the sum of exponentials.
#[inline(always)]
pub(super) fn max<T: Real>(xs: &[T]) -> T {
    T::largest(xs.iter().copied())
}

/// The larger of two numbers; of a number and NaN the number, if it comes first.
#[inline(always)]
pub(super) fn larger<T: Real>(a: T, b: T) -> T {
    if b > a { b } else { a }
}

/// Visits a row of numbers or −∞, lanes by lanes, which `of` may change, and sums each of the `N` numbers that it makes of one.
/// What it makes of −∞ is 0.
///
/// `of` is given lanes and not numbers: loops over them within it are made with vectors, others would not be.
#[inline(always)]
pub(super) fn sums<T: Real, const N: usize>(
    row: &mut [T],
    of: impl Fn(&mut Lanes<T>) -> [Lanes<T>; N],
) -> [f64; N] {
    let mut sums = [0.0; N];
    for run in row.chunks_mut(RUN) {
        let mut lanes = [[T::ZERO; LANES]; N];
        let (blocks, rest) = run.as_chunks_mut::<LANES>();
        for block in blocks {
            add_lanes(&mut lanes, &of(block));
        }
        if !rest.is_empty() {
            let mut block = [T::LOWEST; LANES];
            block[..rest.len()].copy_from_slice(rest);
            add_lanes(&mut lanes, &of(&mut block));
            rest.copy_from_slice(&block[..rest.len()]);
        }
        for (sum, lanes) in sums.iter_mut().zip(lanes) {
            *sum += total(lanes).wide();
        }
    }
    sums
}

#[inline(always)]
fn add_lanes<T: Real, const N: usize>(sums: &mut [Lanes<T>; N], made: &[Lanes<T>; N]) {
    for (sums, made) in sums.iter_mut().zip(made) {
        sums.iter_mut().zip(made).for_each(|(sum, made)| *sum += *made);
    }
}

/// `Σ_v of(x_v, y_v)` of two slices of one length.
#[inline(always)]
pub(super) fn sum_of<T: Real>(xs: &[T], ys: &[T], of: impl Fn(T, T) -> T) -> f64 {
    let mut sum = 0.0;
    for (xs, ys) in xs.chunks(RUN).zip(ys.chunks(RUN)) {
        let mut lanes = [T::ZERO; LANES];
        let (x_blocks, x_rest) = xs.as_chunks::<LANES>();
        let (y_blocks, y_rest) = ys.as_chunks::<LANES>();
        for (x, y) in x_blocks.iter().zip(y_blocks) {
            for i in 0..LANES {
                lanes[i] += of(x[i], y[i]);
            }
        }
        for ((x, y), lane) in x_rest.iter().zip(y_rest).zip(&mut lanes) {
            *lane += of(*x, *y);
        }
        sum += total(lanes).wide();
    }
    sum
}

/// The sum of some times [`LANES`] values.
#[inline(always)]
pub(super) fn total_of<T: Real>(values: &[T]) -> T {
    let mut lanes = [T::ZERO; LANES];
    for values in values.chunks(LANES) {
        lanes.iter_mut().zip(values).for_each(|(sum, x)| *sum += *x);
    }
    total(lanes)
}

/// The sum of the lanes, halves first.
#[inline(always)]
pub(super) fn total<T: Real>(mut lanes: Lanes<T>) -> T {
    let mut width = LANES / 2;
    while width > 0 {
        for i in 0..width {
            lanes[i] += lanes[width + i];
        }
        width /= 2;
    }
    lanes[0]
}

/// `sums += Σ_k scale_k row_k` over rows of the sums' length, `[K, V]`; four rows at a time, because the sums are otherwise
/// loaded and stored as often as the rows are.
#[inline(always)]
pub(super) fn add_scaled<T: Real>(sums: &mut [T], rows: &[T], scales: &[T]) {
    let vocab = sums.len();
    for (tile, sums) in sums.chunks_mut(TILE).enumerate() {
        let len = sums.len();
        let part = |k: usize| &rows[k * vocab + tile * TILE..][..len];
        let (fours, rest) = scales.as_chunks::<4>();
        for (four, [s0, s1, s2, s3]) in fours.iter().enumerate() {
            let [r0, r1, r2, r3] = [0, 1, 2, 3].map(|k| part(4 * four + k));
            for ((((sum, g0), g1), g2), g3) in sums.iter_mut().zip(r0).zip(r1).zip(r2).zip(r3) {
                *sum = s3.mul_add(*g3, s2.mul_add(*g2, s1.mul_add(*g1, s0.mul_add(*g0, *sum))));
            }
        }
        for (k, scale) in rest.iter().enumerate() {
            let row = part(4 * fours.len() + k);
            sums.iter_mut().zip(row).for_each(|(sum, g)| *sum = scale.mul_add(*g, *sum));
        }
    }
}

/// The first place of a value in a row.
#[inline(always)]
pub(super) fn find<T: Real>(row: &[T], value: T) -> Option<usize> {
    let is_in = |run: &[T]| run.iter().fold(false, |found, x| found | (*x == value));
    let (number, run) = row.chunks(RUN / 4).enumerate().find(|(_, run)| is_in(run))?;
    Some(number * (RUN / 4) + run.iter().position(|x| *x == value)?)
}
