//! PLIF on slices: see [`crate::logit_map::Plif`] for the formula.
//!
//! In each block of logits pieces are found and lines evaluated in vectors, only the look-ups between them go one by one.

use std::mem;
use std::sync::Arc;

use highrank_kernels::cpu::{Buffer, Real, in_pool, sigmoid, softplus};
use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use super::plif_tables;

/// Logits whose pieces are found, then looked up, then evaluated.
const BLOCK: usize = 64;

/// Pieces that a thread takes at a time: some ten microseconds' work.
const RUN: usize = 1 << 12;

/// A PLIF with its table.
pub(super) struct Plif<'a, T> {
    /// `v_0 .. v_{P−1}, b₀`
    params: &'a [T],
    /// Slope of each piece and value at its left end, side by side: a look-up touches one cache line.
    table: Arc<Buffer<T>>,
    /// The last piece's number.
    last: T,
    bound: T,
    delta: T,
    /// `1 / delta`. At a knot, where rounding decides between two pieces, both give the same value.
    inverse: T,
}

/// `x ← softplus(x)`.
struct Softplus<'a, T>(&'a mut [T]);

impl<T: Real> WithSimd for Softplus<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) {
        self.0.iter_mut().for_each(|x| *x = softplus(*x));
    }
}

/// `y ← y σ(x)`.
struct TimesSigmoid<'a, T> {
    values: &'a mut [T],
    of: &'a [T],
}

impl<T: Real> WithSimd for TimesSigmoid<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) {
        self.values.iter_mut().zip(self.of).for_each(|(y, x)| *y *= sigmoid(*x));
    }
}

/// Values a logit that [`Plif::apply`] keeps: the slope. The piece is found again from the logit.
pub(super) const PARTS: usize = 1;

/// A block of logits with the piece of each, and the distance from its left end.
struct Located<T> {
    pieces: [u32; BLOCK],
    distances: [T; BLOCK],
}

impl<'a, T: Real> Plif<'a, T> {
    /// Makes the table, or takes the one that was made of the same parameters.
    pub(super) fn new(params: &'a [T], bound: f64) -> Self {
        let count = params.len() - 1;
        let delta = 2.0 * bound / count as f64;
        let table = plif_tables::table(params, bound, || Self::table(params, bound, delta));
        let [last, bound, delta, inverse] = [(count - 1) as f64, bound, delta, 1.0 / delta].map(T::of);
        Self { params, table, last, bound, delta, inverse }
    }

    /// The running sum is kept in f64; it goes on from run to run, each of which a thread makes.
    fn table(params: &[T], bound: f64, delta: f64) -> Buffer<T> {
        let (raw_slopes, offset) = params.split_at(params.len() - 1);
        let (mut slopes, mut table) = (Buffer::of(raw_slopes), Buffer::new(2 * raw_slopes.len()));
        let mut make = || {
            let arch = Arch::new();
            let mut starts: Vec<f64> = slopes
                .par_chunks_mut(RUN)
                .map(|slopes| {
                    arch.dispatch(Softplus(slopes));
                    slopes.iter().map(|slope| delta * slope.wide()).sum()
                })
                .collect();
            let mut value = offset[0].wide() - slopes[0].wide() * bound;
            for start in &mut starts {
                value += mem::replace(start, value);
            }
            let runs = table.par_chunks_mut(2 * RUN).zip(slopes.par_chunks(RUN)).zip(starts);
            runs.for_each(|((table, slopes), mut value)| {
                for (entry, slope) in table.as_chunks_mut::<2>().0.iter_mut().zip(slopes) {
                    *entry = [*slope, T::of(value)];
                    value += delta * slope.wide();
                }
            });
        };
        match raw_slopes.len() > RUN {
            true => in_pool(make),
            false => make(),
        }
        table
    }

    pub(super) fn pieces(&self) -> usize {
        self.params.len() - 1
    }

    /// The gradient of the parameters, by the sums of [`pull_back`](Self::pull_back); running sums in f64, as for the table.
    pub(super) fn finish(&self, sums: &[T], d_params: &mut [T]) {
        let (raw_slopes, _) = self.params.split_at(self.pieces());
        let (d_raw, d_offset) = d_params.split_at_mut(self.pieces());
        let (delta, arch) = (self.delta.wide(), Arch::new());
        let sums = sums.as_chunks::<2>().0;
        let of_run = |sums: &[[T; 2]]| sums.iter().map(|[_, g]| g.wide()).sum();
        // Of each run the sum over those behind it.
        let mut above: Vec<f64> = sums.par_chunks(RUN).map(of_run).collect();
        let mut total = 0.0;
        for run in above.iter_mut().rev() {
            total += mem::replace(run, total);
        }
        d_offset[0] = T::of(total);
        let runs = d_raw.par_chunks_mut(RUN).zip(sums.par_chunks(RUN)).zip(raw_slopes.par_chunks(RUN));
        runs.zip(above).enumerate().for_each(|(run, (((d_raw, sums), raw_slopes), mut above))| {
            for (d_slope, [moment, g]) in d_raw.iter_mut().zip(sums).rev() {
                *d_slope = T::of(moment.wide() + delta * above);
                above += g.wide();
            }
            if run == 0 {
                d_raw[0] = T::of(d_raw[0].wide() - self.bound.wide() * total);
            }
            arch.dispatch(TimesSigmoid { values: d_raw, of: raw_slopes });
        });
    }

    /// Pieces and distances of at most [`BLOCK`] logits.
    #[inline(always)]
    fn locate(&self, z: &[T]) -> Located<T> {
        let mut located = Located { pieces: [0; BLOCK], distances: [T::ZERO; BLOCK] };
        let places = located.pieces.iter_mut().zip(&mut located.distances);
        for ((number, distance), z) in places.zip(z) {
            let piece = ((*z + self.bound) * self.inverse).floor();
            let piece = if piece > self.last { self.last } else { piece };
            // Written so that NaN becomes piece 0; the distance keeps it NaN.
            let piece = if piece > T::ZERO { piece } else { T::ZERO };
            *number = piece.index();
            *distance = *z - (piece * self.delta - self.bound);
        }
        located
    }

    /// `f(z)` of a block, in place. Keeps the slopes, if there is room for them, so that the backward pass need not look
    /// them up again.
    #[inline(always)]
    pub(super) fn apply(&self, block: &mut [T], slopes: &mut [T]) {
        let table = self.table.as_chunks::<2>().0;
        let mut slopes = slopes.chunks_mut(BLOCK);
        for block in block.chunks_mut(BLOCK) {
            let Located { pieces, distances } = self.locate(block);
            let mut lines = [[T::ZERO; 2]; BLOCK];
            for (line, piece) in lines.iter_mut().zip(&pieces[..block.len()]) {
                *line = table[*piece as usize];
            }
            for ((z, [slope, value]), distance) in block.iter_mut().zip(&lines).zip(&distances) {
                *z = slope.mul_add(*distance, *value);
            }
            if let Some(slopes) = slopes.next() {
                slopes.iter_mut().zip(&lines).for_each(|(to, [slope, _])| *to = *slope);
            }
        }
    }

    /// Turns `g / scale`, the gradient of the mapped logits of a row, into the gradient of the logits `z`. `sums` holds two
    /// sums a piece, side by side: those of slope and value.
    #[inline(always)]
    pub(super) fn pull_back(&self, z: &[T], slopes: &[T], g: &mut [T], scale: T, sums: &mut [T]) {
        let (sums, _) = sums.as_chunks_mut::<2>();
        for ((z, slopes), g) in z.chunks(BLOCK).zip(slopes.chunks(BLOCK)).zip(g.chunks_mut(BLOCK)) {
            let Located { pieces, distances } = self.locate(z);
            let mut terms = [[T::ZERO; 2]; BLOCK];
            for ((terms, distance), g) in terms.iter_mut().zip(&distances).zip(&*g) {
                *terms = [*distance * *g * scale, *g * scale];
            }
            for (piece, [moment, g]) in pieces.iter().zip(&terms[..g.len()]) {
                let sums = &mut sums[*piece as usize];
                *sums = [sums[0] + *moment, sums[1] + *g];
            }
            g.iter_mut().zip(slopes).for_each(|(g, slope)| *g *= *slope);
        }
    }
}
