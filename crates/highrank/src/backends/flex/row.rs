//! One row of logits: maximum, exponentials and their sum.

use highrank_kernels::cpu::Real;

/// Width of the accumulators: a reduction over a row keeps this many partial results, so that it can be vectorised and
/// gives the same bits on every machine.
const LANES: usize = 32;

/// Values after which lanes are summed and begun anew, so that long rows do not lose digits.
const RUN: usize = 2048;

/// `Σ_v e^{a_v − max}` of a row. If `graded`, the row becomes these exponentials; otherwise it stays as it is.
#[inline(always)]
pub(super) fn exponentials<T: Real>(row: &mut [T], max: T, graded: bool) -> T {
    let mut lanes = [T::ZERO; LANES];
    let visit = |a: &mut T, lane: &mut T| {
        let e = (*a - max).exp();
        *lane += e;
        if graded {
            *a = e;
        }
    };
    let (blocks, rest) = row.as_chunks_mut::<LANES>();
    for block in blocks {
        for i in 0..LANES {
            visit(&mut block[i], &mut lanes[i]);
        }
    }
    for (a, lane) in rest.iter_mut().zip(&mut lanes) {
        visit(a, lane);
    }
    T::of(lanes.iter().map(|lane| lane.wide()).sum())
}

/// The largest value. NaN is passed over here and shows in the sum of exponentials.
#[inline(always)]
pub(super) fn max<T: Real>(xs: &[T]) -> T {
    max_of(xs, xs, |x, _| x)
}

/// The largest `of(x, y)` of two slices of one length, as [`max`].
#[inline(always)]
pub(super) fn max_of<T: Real>(xs: &[T], ys: &[T], of: impl Fn(T, T) -> T) -> T {
    let mut lanes = [T::LOWEST; LANES];
    let (x_blocks, x_rest) = xs.as_chunks::<LANES>();
    let (y_blocks, y_rest) = ys.as_chunks::<LANES>();
    for (x, y) in x_blocks.iter().zip(y_blocks) {
        for i in 0..LANES {
            lanes[i] = larger(lanes[i], of(x[i], y[i]));
        }
    }
    for ((x, y), lane) in x_rest.iter().zip(y_rest).zip(&mut lanes) {
        *lane = larger(*lane, of(*x, *y));
    }
    let mut width = LANES / 2;
    while width > 0 {
        for i in 0..width {
            lanes[i] = larger(lanes[i], lanes[width + i]);
        }
        width /= 2;
    }
    lanes[0]
}

/// The larger of two numbers; of a number and NaN the number, if it comes first.
#[inline(always)]
pub(super) fn larger<T: Real>(a: T, b: T) -> T {
    if b > a { b } else { a }
}

/// Visits a row, whose values `of` may change, and sums each of the `N` numbers that it makes of one.
#[inline(always)]
pub(super) fn sums<T: Real, const N: usize>(row: &mut [T], of: impl Fn(&mut T) -> [T; N]) -> [f64; N] {
    let mut sums = [0.0; N];
    for run in row.chunks_mut(RUN) {
        let mut lanes = [[T::ZERO; LANES]; N];
        let (blocks, rest) = run.as_chunks_mut::<LANES>();
        for block in blocks {
            for i in 0..LANES {
                let made = of(&mut block[i]);
                lanes.iter_mut().zip(made).for_each(|(lanes, made)| lanes[i] += made);
            }
        }
        for (i, x) in rest.iter_mut().enumerate() {
            let made = of(x);
            lanes.iter_mut().zip(made).for_each(|(lanes, made)| lanes[i] += made);
        }
        for (sum, lanes) in sums.iter_mut().zip(lanes) {
            *sum += total(lanes).wide();
        }
    }
    sums
}

/// `Σ_v of(x_v, y_v)` of two short slices of one length.
#[inline(always)]
pub(super) fn sum_of<T: Real>(xs: &[T], ys: &[T], of: impl Fn(T, T) -> T) -> f64 {
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
    total(lanes).wide()
}

/// The sum of the lanes, halves first.
#[inline(always)]
fn total<T: Real>(mut lanes: [T; LANES]) -> T {
    let mut width = LANES / 2;
    while width > 0 {
        for i in 0..width {
            lanes[i] += lanes[width + i];
        }
        width /= 2;
    }
    lanes[0]
}

/// The first place of a value in a row.
#[inline(always)]
pub(super) fn find<T: Real>(row: &[T], value: T) -> Option<usize> {
    let is_in = |run: &[T]| run.iter().fold(false, |found, x| found | (*x == value));
    let (number, run) = row.chunks(RUN / 4).enumerate().find(|(_, run)| is_in(run))?;
    Some(number * (RUN / 4) + run.iter().position(|x| *x == value)?)
}
