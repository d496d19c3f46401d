//! PLIF on slices: see [`crate::logit_map::Plif`] for the formula.
//!
//! In each block of logits pieces are found and lines evaluated in vectors, only the look-ups between them go one by one.

use highrank_kernels::cpu::{Buffer, Real, sigmoid, softplus};
use pulp::{Arch, Simd, WithSimd};

/// Logits that a map works on at a time where it keeps something of each between two loops.
pub(super) const BLOCK: usize = 64;

/// A PLIF with its table.
pub(super) struct Plif<'a, T> {
    /// `v_0 .. v_{P−1}, b₀`
    params: &'a [T],
    /// Slope of each piece and value at its left end, side by side: a look-up touches one cache line.
    table: Buffer<T>,
    /// The last piece's number.
    last: T,
    bound: T,
    delta: T,
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

/// Values a logit that [`Plif::apply`] keeps: its piece's number, its distance from the piece's left end and the slope.
pub(super) const KEPT: usize = 3;

/// A block of logits with the piece of each, by number, and the distance from its left end.
struct Located<T> {
    pieces: [T; BLOCK],
    distances: [T; BLOCK],
}

impl<'a, T: Real> Plif<'a, T> {
    /// Makes the table; the running sum is kept in f64.
    pub(super) fn new(params: &'a [T], bound: f64) -> Self {
        let (raw_slopes, offset) = params.split_at(params.len() - 1);
        let count = raw_slopes.len();
        let delta = 2.0 * bound / count as f64;
        let mut slopes = Buffer::of(raw_slopes);
        Arch::new().dispatch(Softplus(&mut slopes));
        let mut table = Buffer::new(2 * count);
        let mut value = offset[0].wide() - slopes[0].wide() * bound;
        for (entry, slope) in table.as_chunks_mut::<2>().0.iter_mut().zip(&*slopes) {
            *entry = [*slope, T::of(value)];
            value += delta * slope.wide();
        }
        Self { params, table, last: T::of((count - 1) as f64), bound: T::of(bound), delta: T::of(delta) }
    }

    pub(super) fn pieces(&self) -> usize {
        self.params.len() - 1
    }

    /// The gradient of the parameters, by the sums of [`backward`](Self::backward); running sums in f64.
    pub(super) fn finish(&self, sums: &[T], d_params: &mut [T]) {
        let (raw_slopes, _) = self.params.split_at(self.pieces());
        let (d_raw, d_offset) = d_params.split_at_mut(self.pieces());
        let delta = self.delta.wide();
        let mut above = 0.0;
        for (d_slope, [moment, g]) in d_raw.iter_mut().zip(sums.as_chunks::<2>().0).rev() {
            *d_slope = T::of(moment.wide() + delta * above);
            above += g.wide();
        }
        d_offset[0] = T::of(above);
        d_raw[0] = T::of(d_raw[0].wide() - self.bound.wide() * above);
        Arch::new().dispatch(TimesSigmoid { values: d_raw, of: raw_slopes });
    }

    /// Pieces and distances of at most [`BLOCK`] logits.
    #[inline(always)]
    fn locate(&self, z: &[T]) -> Located<T> {
        let mut located = Located { pieces: [T::ZERO; BLOCK], distances: [T::ZERO; BLOCK] };
        let places = located.pieces.iter_mut().zip(&mut located.distances);
        for ((number, distance), z) in places.zip(z) {
            let piece = ((*z + self.bound) / self.delta).floor();
            let piece = if piece > self.last { self.last } else { piece };
            // Written so that NaN becomes piece 0; the distance keeps it NaN.
            let piece = if piece > T::ZERO { piece } else { T::ZERO };
            *number = piece;
            *distance = *z - (piece * self.delta - self.bound);
        }
        located
    }

    /// `f(z)` of a row, in place. Of each block it keeps [`KEPT`] values a logit, if there is room for them, so that the
    /// backward pass need not look the logits up again.
    #[inline(always)]
    pub(super) fn apply(&self, row: &mut [T], kept: &mut [T]) {
        let table = self.table.as_chunks::<2>().0;
        let mut kept = kept.chunks_mut(KEPT * BLOCK);
        for block in row.chunks_mut(BLOCK) {
            let len = block.len();
            let Located { pieces, distances } = self.locate(block);
            let indices = pieces.map(T::index);
            let (mut slopes, mut values) = ([T::ZERO; BLOCK], [T::ZERO; BLOCK]);
            for ((slope, value), index) in slopes.iter_mut().zip(&mut values).zip(&indices[..len]) {
                [*slope, *value] = table[*index as usize];
            }
            if let Some(kept) = kept.next() {
                for (part, values) in kept.chunks_exact_mut(len).zip([&pieces, &distances, &slopes]) {
                    part.copy_from_slice(&values[..len]);
                }
            }
            for (i, z) in block.iter_mut().enumerate() {
                *z = values[i] + slopes[i] * distances[i];
            }
        }
    }

    /// Turns `g / scale`, the gradient of mapped logits, into the gradient of the logits. `sums` holds two sums a piece,
    /// side by side: those of slope and value.
    #[inline(always)]
    pub(super) fn backward(&self, kept: &[T], g: &mut [T], scale: T, sums: &mut [T]) {
        let (sums, _) = sums.as_chunks_mut::<2>();
        for (kept, g) in kept.chunks(KEPT * BLOCK).zip(g.chunks_mut(BLOCK)) {
            let (pieces, rest) = kept.split_at(g.len());
            let (distances, slopes) = rest.split_at(g.len());
            let (mut indices, mut moments) = ([0; BLOCK], [T::ZERO; BLOCK]);
            indices.iter_mut().zip(pieces).for_each(|(index, piece)| *index = piece.index());
            for ((moment, distance), g) in moments.iter_mut().zip(distances).zip(&mut *g) {
                *g *= scale;
                *moment = *distance * *g;
            }
            for ((index, moment), g) in indices.iter().zip(&moments).zip(&*g) {
                let sums = &mut sums[*index as usize];
                *sums = [sums[0] + *moment, sums[1] + *g];
            }
            g.iter_mut().zip(slopes).for_each(|(g, slope)| *g *= *slope);
        }
    }
}
