//! PLIF: Ganea et al., *Breaking the Softmax Bottleneck via Learnable Monotonic Pointwise Non-linearities*, ICML 2019.

#[cfg(feature = "flex")]
mod tables;

use burn::backend::Backend;
use burn::module::{Module, Param};
use burn::tensor::{Tensor, TensorCreationOptions};
use highrank_kernels::{Floats, Ints};

use super::contract::{MapModule, PortableMap, required, widened};
use crate::checks::{TensorChecks, scale_of_f32};
use crate::error::{HeadError, in_range};
use crate::math::{exclusive_cumsum, inverse_softplus, sigmoid, softplus};

/// Largest number of knots.
pub const MAX_KNOTS: usize = 1_000_000;

/// Largest bound `T`: in f32 `z + T` leaves a logit an error of up to `2⁻²⁴ T`, here half a thousandth.
const MAX_BOUND: f64 = 1e4;

/// A learnable *piecewise linear increasing function* on `[−T, T]`, linear outside.
///
/// With `P` pieces of width `Δ = 2T/P`, left ends `l_i = −T + iΔ` and slopes `s_i = softplus(v_i)`:
///
/// ```text
/// i    = clamp(floor((z + T) / Δ), 0, P − 1)
/// f(z) = b₀ − s₀ T + Δ Σ_{j<i} s_j + s_i (z − l_i)
/// ```
///
/// `f` is continuous and increasing; on a knot the piece to its right counts. It starts as the identity: all slopes 1.
/// Ganea et al., ICML 2019, section 4 (arXiv 1902.08077).
///
/// A logit costs a table look-up forward and two sums a knot backward: `O(N·V + P)`.
///
/// Packed parameters: `v_0 .. v_{P−1}, b₀`. Table, portable and on GPUs: slopes and then values at the left ends,
/// `s_0 .. s_{P−1}, f(l_0) .. f(l_{P−1})`. On Flex the two of a piece lie side by side.
#[derive(Module, Debug)]
pub struct Plif {
    /// `v`, shape `[P]`: the slope of a piece is `softplus(v_i)`.
    pub raw_slopes: Param<Tensor<1>>,
    /// `b₀`, shape `[1]`. A softmax does not see it; the function by itself does.
    pub offset: Param<Tensor<1>>,
    /// `T`, above 0 and at most 10,000: the knots lie in `[−T, T]`.
    pub bound: f64,
}

impl Plif {
    /// `P`: the number of linear pieces on `[−T, T]`, 1 to [`MAX_KNOTS`].
    pub fn knots(&self) -> usize {
        self.raw_slopes.shape().num_elements()
    }

    /// `s = softplus(v)`, shape `[P]`, in f32 at least.
    pub fn slopes(&self) -> Tensor<1> {
        let [raw_slopes] = widened([&self.raw_slopes]);
        softplus(raw_slopes).tensor()
    }
}

/// The map without its parameters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Function {
    /// `P`.
    pub(crate) knots: usize,
    /// `T`.
    pub(crate) bound: f64,
}

impl MapModule for Plif {
    type Function = Function;

    fn new(function: Function, on: TensorCreationOptions) -> Self {
        let Function { knots, bound } = function;
        Self {
            raw_slopes: Param::from_tensor(Tensor::full([knots], inverse_softplus(1.0), on.clone())),
            offset: Param::from_tensor(Tensor::zeros([1], on)),
            bound,
        }
    }

    fn function(&self) -> Function {
        Function { knots: self.knots(), bound: self.bound }
    }

    fn check(&self, checks: &TensorChecks) -> Result<(), HeadError> {
        checks.param("PLIF's raw_slopes", &self.raw_slopes, [self.knots()])?;
        checks.param("PLIF's offset", &self.offset, [1])?;
        self.function().in_limits()?;
        checks.scale("PLIF's bound T", self.bound)?;
        checks.scale("the width of PLIF's pieces", self.function().delta())
    }

    fn packed_params(&self) -> Option<Tensor<1>> {
        Some(Floats::cat(widened([&self.raw_slopes, &self.offset]).into(), 0).tensor())
    }
}

impl Function {
    fn in_limits(self) -> Result<(), HeadError> {
        in_range("knots", self.knots as f64, "1 to 1,000,000", 1.0..=MAX_KNOTS as f64)?;
        let expected = "a positive number of at most 10,000";
        in_range("PLIF's bound T", self.bound, expected, f64::from_bits(1)..=MAX_BOUND)
    }

    /// `Δ`: the width of a piece.
    fn delta(self) -> f64 {
        2.0 * self.bound / self.knots as f64
    }

    /// For every logit its piece, as an index `[elements]`, and its distance from that piece's left end.
    fn locate<B: Backend>(self, z: Floats<B>) -> (Ints<B>, Floats<B>) {
        let Self { knots, bound } = self;
        let delta = self.delta();
        // The index is a constant of the gradient: f is continuous, and its slope is that of the piece.
        let piece =
            z.clone().detach().add_scalar(bound).div_scalar(delta).floor().clamp(0.0, (knots - 1) as f64);
        // NaN is no index: it lies on piece 0, and its distance keeps it NaN.
        let piece = piece.clone().keep_where(piece.at_least(0.0), piece.zeros_like());
        let left = piece.clone().mul_scalar(delta).sub_scalar(bound);
        let elements = z.num_elements();
        (piece.int().reshape([elements]), z - left)
    }
}

impl PortableMap for Function {
    fn validate(self) -> Result<(), HeadError> {
        self.in_limits()?;
        scale_of_f32("PLIF's bound T", self.bound)?;
        scale_of_f32("the width of PLIF's pieces", self.delta())
    }

    fn num_params(self) -> usize {
        self.knots + 1
    }

    fn table<B: Backend>(self, params: Floats<B>) -> Floats<B> {
        let Self { knots, bound } = self;
        let slopes = softplus(params.clone().rows(0..knots));
        let start = params.rows(knots..knots + 1) - slopes.clone().rows(0..1).mul_scalar(bound);
        let values = exclusive_cumsum(slopes.clone()).mul_scalar(self.delta()) + start;
        Floats::cat(vec![slopes, values], 0)
    }

    /// With `u_i` the gradients of the values and `δ` Kronecker's: `∂s_j = d_j + Δ Σ_{i>j} u_i − δ_{j0} T Σ_i u_i`,
    /// `∂v_j = σ(v_j) ∂s_j` and `∂b₀ = Σ_i u_i`.
    fn table_vjp<B: Backend>(self, params: &Floats<B>, d_table: Floats<B>) -> Floats<B> {
        let Self { knots, bound } = self;
        let d_values = d_table.clone().rows(knots..2 * knots);
        let total = d_values.clone().sum();
        let above = exclusive_cumsum(d_values.flip(0)).flip(0).mul_scalar(self.delta());
        let d_slopes = d_table.rows(0..knots) + above;
        let first = d_slopes.clone().rows(0..1) - total.clone().mul_scalar(bound);
        let d_slopes = d_slopes.assign_rows(0..1, first);
        let d_raw = d_slopes * sigmoid(params.clone().rows(0..knots));
        Floats::cat(vec![d_raw, total], 0)
    }

    fn apply<B: Backend>(self, z: Floats<B>, table: Option<&Floats<B>>) -> Floats<B> {
        let (table, shape) = (required(table), z.shape());
        let (piece, distance) = self.locate(z);
        let slope = table.clone().select(0, piece.clone()).reshape(shape.clone());
        let value = table.clone().select(0, piece.add_scalar(self.knots as i64)).reshape(shape);
        value + slope * distance
    }

    /// `∂f/∂z = s_i`, `∂f/∂s_i = z − l_i`, `∂f/∂f(l_i) = 1`: two sums a knot.
    fn vjp<B: Backend>(
        self,
        z: Floats<B>,
        table: Option<&Floats<B>>,
        g: Floats<B>,
    ) -> (Floats<B>, Option<Floats<B>>) {
        let (table, shape) = (required(table), z.shape());
        let elements = shape.num_elements();
        let (piece, distance) = self.locate(z);
        let slope = table.clone().select(0, piece.clone()).reshape(shape);
        let d_table = table
            .zeros_like()
            .select_add(0, piece.clone(), (g.clone() * distance).reshape([elements]))
            .select_add(0, piece.add_scalar(self.knots as i64), g.clone().reshape([elements]));
        (g * slope, Some(d_table))
    }
}

/// In each block of logits pieces are found and lines evaluated in vectors, only the look-ups between them go one by one.
#[cfg(feature = "flex")]
mod cpu {
    use std::mem;
    use std::sync::Arc;

    use highrank_kernels::cpu::{Buffer, Real, in_pool, share, sigmoid, softplus};
    use highrank_kernels::vectorised;
    use pulp::Arch;

    use super::super::cpu::{CpuBody, Layout, OnCpu};
    use super::{Function, tables};

    /// Logits whose pieces are found, then looked up, then evaluated.
    const BLOCK: usize = 128;

    /// Pieces that a thread takes at a time: some ten microseconds' work.
    const RUN: usize = 1 << 12;

    /// A PLIF with its table.
    pub(crate) struct Body<T> {
        /// Slope of each piece and value at its left end, side by side: a look-up touches one cache line.
        table: Arc<Buffer<T>>,
        /// The last piece's number.
        last: T,
        bound: T,
        delta: T,
        /// `1 / delta`. At a knot, where rounding decides between two pieces, both give the same value.
        inverse: T,
    }

    /// The pieces of a block of logits, and the distance of each from its piece's left end.
    struct Located<T> {
        pieces: [u32; BLOCK],
        distances: [T; BLOCK],
    }

    impl<T: Real> Located<T> {
        /// Nothing yet.
        const NONE: Self = Self { pieces: [0; BLOCK], distances: [T::ZERO; BLOCK] };
    }

    impl OnCpu for Function {
        type Body<T> = Body<T>;

        /// Makes the table, or takes the one that was made of the same parameters.
        fn on_cpu<T: Real>(self, params: &[T]) -> Body<T> {
            let (bound, delta) = (self.bound, self.delta());
            let table = tables::table(params, bound, || make_table(params, bound, delta));
            let [last, bound, delta, inverse] =
                [(self.knots - 1) as f64, bound, delta, 1.0 / delta].map(T::of);
            Body { table, last, bound, delta, inverse }
        }
    }

    /// The running sum is kept in f64; it goes on from run to run, each of which a thread makes.
    fn make_table<T: Real>(params: &[T], bound: f64, delta: f64) -> Buffer<T> {
        let (raw_slopes, offset) = params.split_at(params.len() - 1);
        let (mut slopes, mut table) = (Buffer::of(raw_slopes), Buffer::new(2 * raw_slopes.len()));
        let mut make = || {
            let arch = Arch::new();
            let mut starts = vec![0.0; slopes.len().div_ceil(RUN)];
            share(slopes.chunks_mut(RUN).zip(&mut starts), |(slopes, start)| {
                vectorised!(arch, |slopes: &'a mut [T]| slopes.iter_mut().for_each(|x| *x = softplus(*x)));
                *start = slopes.iter().map(|slope| delta * slope.wide()).sum();
            });
            let mut value = offset[0].wide() - slopes[0].wide() * bound;
            for start in &mut starts {
                value += mem::replace(start, value);
            }
            let runs = table.chunks_mut(2 * RUN).zip(slopes.chunks(RUN)).zip(starts);
            share(runs, |((table, slopes), mut value)| {
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

    impl<T: Real> Body<T> {
        /// Finds the pieces of at most [`BLOCK`] logits. In place: a result by value is copied, block by block.
        #[inline(always)]
        fn locate(&self, z: &[T], into: &mut Located<T>) {
            let places = into.pieces.iter_mut().zip(&mut into.distances);
            for ((number, distance), z) in places.zip(z) {
                let piece = ((*z + self.bound) * self.inverse).floor();
                let piece = if piece > self.last { self.last } else { piece };
                // Written so that NaN becomes piece 0; the distance keeps it NaN.
                let piece = if piece > T::ZERO { piece } else { T::ZERO };
                *number = piece.index();
                *distance = *z - (piece * self.delta - self.bound);
            }
        }
    }

    impl<T: Real> CpuBody<T> for Body<T> {
        /// Keeps the slope: the piece is found again from the logit. A piece has two sums.
        fn layout(&self) -> Layout {
            Layout { is_table: true, parts: 1, num_sums: self.table.len(), ..Layout::NOTHING }
        }

        /// Keeps the slopes, if there is room for them, so that the backward pass need not look them up again.
        #[inline(always)]
        fn apply(&self, block: &mut [T], slopes: &mut [T]) {
            let (table, mut slopes) = (self.table.as_chunks::<2>().0, slopes.chunks_mut(BLOCK));
            let (mut located, mut lines) = (Located::NONE, [[T::ZERO; 2]; BLOCK]);
            for block in block.chunks_mut(BLOCK) {
                self.locate(block, &mut located);
                for (line, piece) in lines.iter_mut().zip(&located.pieces[..block.len()]) {
                    *line = table[*piece as usize];
                }
                for ((z, [slope, value]), distance) in block.iter_mut().zip(&lines).zip(&located.distances) {
                    *z = slope.mul_add(*distance, *value);
                }
                if let Some(slopes) = slopes.next() {
                    slopes.iter_mut().zip(&lines).for_each(|(to, [slope, _])| *to = *slope);
                }
            }
        }

        /// `sums` holds two sums a piece, side by side: those of slope and value.
        #[inline(always)]
        fn pull_back_row(&self, z: &[T], slopes: &[T], g: &mut [T], scale: T, sums: &mut [T]) {
            let (sums, _) = sums.as_chunks_mut::<2>();
            let (mut located, mut terms) = (Located::NONE, [[T::ZERO; 2]; BLOCK]);
            for ((z, slopes), g) in z.chunks(BLOCK).zip(slopes.chunks(BLOCK)).zip(g.chunks_mut(BLOCK)) {
                self.locate(z, &mut located);
                let of_terms = terms.iter_mut().zip(&located.distances);
                for ((terms, distance), (g, slope)) in of_terms.zip(g.iter_mut().zip(slopes)) {
                    *terms = [*distance * *g * scale, *g * scale];
                    *g *= *slope;
                }
                for (piece, [moment, g]) in located.pieces.iter().zip(&terms[..g.len()]) {
                    let sums = &mut sums[*piece as usize];
                    *sums = [sums[0] + *moment, sums[1] + *g];
                }
            }
        }

        /// Running sums in f64, as for the table.
        fn finish(&self, params: &[T], sums: &[T], d_params: &mut [T]) {
            let (raw_slopes, _) = params.split_at(params.len() - 1);
            let (d_raw, d_offset) = d_params.split_at_mut(raw_slopes.len());
            let (delta, arch) = (self.delta.wide(), Arch::new());
            let sums = sums.as_chunks::<2>().0;
            // Of each run the sum over those behind it.
            let mut above = vec![0.0; sums.len().div_ceil(RUN)];
            share(sums.chunks(RUN).zip(&mut above), |(sums, above)| {
                *above = sums.iter().map(|[_, g]| g.wide()).sum();
            });
            let mut total = 0.0;
            for run in above.iter_mut().rev() {
                total += mem::replace(run, total);
            }
            d_offset[0] = T::of(total);
            let runs = d_raw.chunks_mut(RUN).zip(sums.chunks(RUN)).zip(raw_slopes.chunks(RUN));
            share(runs.zip(above).enumerate(), |(run, (((d_raw, sums), raw_slopes), mut above))| {
                for (d_slope, [moment, g]) in d_raw.iter_mut().zip(sums).rev() {
                    *d_slope = T::of(moment.wide() + delta * above);
                    above += g.wide();
                }
                if run == 0 {
                    d_raw[0] = T::of(d_raw[0].wide() - self.bound.wide() * total);
                }
                vectorised!(arch, |d_raw: &'a mut [T], raw_slopes: &'a [T]| {
                    d_raw.iter_mut().zip(raw_slopes).for_each(|(y, x)| *y *= sigmoid(*x));
                });
            });
        }
    }
}

/// The table holds the slopes and then the values at the left ends of the pieces. Its gradient is made in
/// `backends/cube/pieces.rs`, by the functions here that find a logit's piece.
#[cfg(feature = "gpu")]
pub(crate) mod gpu {
    use cubecl::prelude::*;

    use super::super::gpu::MapNumbers;
    use super::Function;

    pub(crate) fn numbers(function: Function) -> MapNumbers {
        let Function { knots, bound } = function;
        MapNumbers { bound: bound as f32, delta: function.delta() as f32, pieces: knots as u32 }
    }

    #[cube]
    pub(crate) fn apply(z: f32, table: &[f32], numbers: &MapNumbers) -> f32 {
        let piece = piece_of(z, numbers);
        let index = index_of(piece, numbers);
        let slope = table[index as usize];
        let value = table[(index + numbers.pieces) as usize];
        value + slope * distance_of(z, piece, numbers)
    }

    #[cube]
    pub(crate) fn slope(z: f32, table: &[f32], numbers: &MapNumbers) -> f32 {
        table[index_of(piece_of(z, numbers), numbers) as usize]
    }

    /// The number of the piece that `z` lies on, as a float: the outer pieces go on beyond `[−T, T]`.
    #[cube]
    pub(crate) fn piece_of(z: f32, numbers: &MapNumbers) -> f32 {
        let piece = ((z + numbers.bound) / numbers.delta).floor();
        let last = f32::cast_from(numbers.pieces - 1);
        // Written so that NaN becomes piece 0; the distance keeps it NaN.
        let mut within = 0.0f32;
        if piece > 0.0 {
            within = piece;
            if piece > last {
                within = last;
            }
        }
        within
    }

    /// The number of a piece as an index. A compiler that takes every float for a number may leave out the comparisons that keep
    /// NaN from [`piece_of`]; it must not leave out one of integers.
    #[cube]
    pub(crate) fn index_of(piece: f32, numbers: &MapNumbers) -> u32 {
        u32::min(u32::cast_from(piece), numbers.pieces - 1)
    }

    /// Distance of `z` from the left end of its piece.
    #[cube]
    pub(crate) fn distance_of(z: f32, piece: f32, numbers: &MapNumbers) -> f32 {
        z - (piece * numbers.delta - numbers.bound)
    }
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use super::*;
    use burn::tensor::Device;

    /// Every CPU backend that the tests are built with.
    fn devices() -> impl Iterator<Item = Device> {
        [
            Device::flex(),
            #[cfg(feature = "ndarray")]
            #[allow(deprecated)]
            Device::ndarray(),
        ]
        .into_iter()
    }

    fn values(x: Floats) -> Vec<f32> {
        x.into_data().iter::<f32>().collect()
    }

    #[test]
    fn nan_and_infinite_logits_stay_what_they_are() {
        let function = Function { knots: 4, bound: 2.0 };
        for device in devices() {
            let params =
                Plif::new(function, (&device).into()).packed_params().expect("a PLIF has parameters");
            let table = function.table(Floats::from(params));
            let z = [[f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.5]];
            let z = Tensor::<2>::from_floats(z, &device);

            let y = values(function.apply(z.clone().into(), Some(&table)));
            assert!(y[0].is_nan(), "{y:?}");
            assert_eq!(y[1..3], [f32::INFINITY, f32::NEG_INFINITY]);
            assert!((y[3] - 0.5).abs() < 1e-6, "{y:?}");

            let (dz, d_table) = function.vjp(z.clone().into(), Some(&table), z.ones_like().into());
            let (dz, d_table) = (values(dz), values(d_table.expect("a PLIF has a table")));
            assert!(dz.iter().all(|slope| (slope - 1.0).abs() < 1e-6), "{dz:?}");
            let (d_slopes, d_values) = d_table.split_at(function.knots);
            assert!(d_slopes[0].is_nan(), "{d_table:?}");
            assert_eq!(d_slopes[1..], [0.0, 0.5, f32::INFINITY]);
            assert_eq!(d_values, [2.0, 0.0, 1.0, 1.0]);
        }
    }
}
