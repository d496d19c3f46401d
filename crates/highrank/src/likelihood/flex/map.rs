//! Logit maps on slices: value of a row, and gradient of a row with the sums of its parameters.

use crate::cpu::{Real, sigmoid, softplus};
use crate::logit_map::MapFunction;

/// A logit map with its parameters in place.
pub(super) enum Map<'a, T> {
    Identity,
    Sigsoftmax,
    Gss { center: T, excess: T },
    SoftCap { cap: T },
    Plif(Plif<T>),
    MonotonicNet { params: &'a [T], units: usize },
}

/// A PLIF's tables; see `logit_map::Plif` for the formula.
pub(super) struct Plif<T> {
    /// Slope of each piece and value at its left end, side by side: a look-up touches one cache line.
    pieces: Vec<[T; 2]>,
    /// The last piece's number.
    last: T,
    bound: T,
    delta: T,
}

/// Logits that a PLIF works on at a time: pieces are found and lines evaluated in vectors, only the look-ups between
/// them go one by one.
const BLOCK: usize = 64;

/// A block of logits with the piece of each and the distance from its left end.
struct Located<T> {
    pieces: [u32; BLOCK],
    distances: [T; BLOCK],
}

impl<T: Real> Plif<T> {
    fn new(params: &[T], bound: f64) -> Self {
        let count = params.len() / 2;
        let (slopes, values) = params.split_at(count);
        Self {
            pieces: slopes.iter().zip(values).map(|(slope, value)| [*slope, *value]).collect(),
            last: T::of((count - 1) as f64),
            bound: T::of(bound),
            delta: T::of(2.0 * bound / count as f64),
        }
    }

    /// Pieces and distances of at most [`BLOCK`] logits.
    #[inline(always)]
    fn locate(&self, z: &[T]) -> Located<T> {
        let mut located = Located { pieces: [0; BLOCK], distances: [T::ZERO; BLOCK] };
        let places = located.pieces.iter_mut().zip(&mut located.distances);
        for ((index, distance), z) in places.zip(z) {
            let piece = ((*z + self.bound) / self.delta).floor();
            let piece = if piece > self.last { self.last } else { piece };
            // Written so that NaN becomes piece 0; the distance keeps it NaN.
            let piece = if piece > T::ZERO { piece } else { T::ZERO };
            *index = piece.index();
            *distance = *z - (piece * self.delta - self.bound);
        }
        located
    }

    /// Keeps the slopes too, if there is room for them: a look-up the less in the backward pass.
    #[inline(always)]
    fn apply(&self, row: &mut [T], kept_slopes: &mut [T]) {
        let mut kept_slopes = kept_slopes.chunks_mut(BLOCK);
        for block in row.chunks_mut(BLOCK) {
            let Located { pieces, distances } = self.locate(block);
            let (mut slopes, mut values) = ([T::ZERO; BLOCK], [T::ZERO; BLOCK]);
            for ((slope, value), piece) in slopes.iter_mut().zip(&mut values).zip(&pieces[..block.len()]) {
                [*slope, *value] = self.pieces[*piece as usize];
            }
            for (i, z) in block.iter_mut().enumerate() {
                *z = values[i] + slopes[i] * distances[i];
            }
            if let Some(kept) = kept_slopes.next() {
                kept.copy_from_slice(&slopes[..kept.len()]);
            }
        }
    }

    /// `sums` holds two sums a piece, side by side: those of slope and value.
    #[inline(always)]
    fn backward(&self, z: &[T], slopes: &[T], g: &mut [T], sums: &mut [T]) {
        let (sums, _) = sums.as_chunks_mut::<2>();
        for ((z, slopes), g) in z.chunks(BLOCK).zip(slopes.chunks(BLOCK)).zip(g.chunks_mut(BLOCK)) {
            let Located { pieces, mut distances } = self.locate(z);
            for (distance, g) in distances.iter_mut().zip(&*g) {
                *distance *= *g;
            }
            for ((piece, moment), g) in pieces.iter().zip(&distances).zip(&*g) {
                let sums = &mut sums[*piece as usize];
                *sums = [sums[0] + *moment, sums[1] + *g];
            }
            g.iter_mut().zip(slopes).for_each(|(g, slope)| *g *= *slope);
        }
    }
}

impl<'a, T: Real> Map<'a, T> {
    /// # Panics
    /// If the number of parameters is not the function's.
    pub(super) fn new(function: MapFunction, params: &'a [T]) -> Self {
        assert_eq!(params.len(), function.num_params(), "likelihood: packed parameters of {function:?}");
        match function {
            MapFunction::Identity => Self::Identity,
            MapFunction::Sigsoftmax => Self::Sigsoftmax,
            MapFunction::Gss => Self::Gss { center: params[0], excess: params[1] - T::ONE },
            MapFunction::SoftCap { cap } => Self::SoftCap { cap: T::of(cap) },
            MapFunction::Plif { bound, .. } => Self::Plif(Plif::new(params, bound)),
            MapFunction::MonotonicNet { units } => Self::MonotonicNet { params, units },
        }
    }

    /// Values a logit that [`apply`](Self::apply) keeps for [`backward`](Self::backward); none for the maps whose rows
    /// are done without either.
    pub(super) fn kept(&self) -> usize {
        match self {
            Self::Identity | Self::Sigsoftmax => 0,
            Self::Plif(_) => 2,
            _ => 1,
        }
    }

    /// `f(z)` of a row, in place. `kept` is empty, or takes [`kept`](Self::kept) values a logit.
    #[inline(always)]
    pub(super) fn apply(&self, row: &mut [T], kept: &mut [T]) {
        let (logits, slopes) = kept.split_at_mut(row.len().min(kept.len()));
        logits.iter_mut().zip(&*row).for_each(|(kept, z)| *kept = *z);
        match self {
            Self::Identity => {}
            Self::Sigsoftmax => row.iter_mut().for_each(|z| *z = *z - softplus(-*z)),
            &Self::Gss { center, excess } => {
                row.iter_mut().for_each(|z| *z = *z - excess * softplus(center - *z));
            }
            &Self::SoftCap { cap } => row.iter_mut().for_each(|z| *z = cap * (*z / cap).tanh()),
            Self::Plif(map) => map.apply(row, slopes),
            &Self::MonotonicNet { params, units } => {
                row.iter_mut().for_each(|z| {
                    let mut sum = params[3 * units];
                    for i in 0..units {
                        let inner = params[units + i] * *z + params[2 * units + i];
                        sum += params[i] * sigmoid(inner);
                    }
                    *z = sum;
                });
            }
        }
    }

    /// Turns the gradient `g` of mapped logits into that of the logits, and adds to the sums of the parameters'
    /// gradient, which are as many as the parameters.
    #[inline(always)]
    pub(super) fn backward(&self, kept: &[T], g: &mut [T], sums: &mut [T]) {
        let (z, slopes) = kept.split_at(g.len());
        let pairs = || z.iter().copied();
        match self {
            Self::Identity => {}
            Self::Sigsoftmax => {
                g.iter_mut().zip(pairs()).for_each(|(g, z)| *g *= T::ONE + sigmoid(-z));
            }
            &Self::Gss { center, excess } => {
                let (mut center_sum, mut slope_sum) = (0.0, 0.0);
                for (g, z) in g.iter_mut().zip(pairs()) {
                    let bend = excess * sigmoid(center - z);
                    center_sum -= (*g * bend).wide();
                    slope_sum -= (*g * softplus(center - z)).wide();
                    *g *= T::ONE + bend;
                }
                sums[0] += T::of(center_sum);
                sums[1] += T::of(slope_sum);
            }
            &Self::SoftCap { cap } => g.iter_mut().zip(pairs()).for_each(|(g, z)| {
                let t = (z / cap).tanh();
                *g *= T::ONE - t * t;
            }),
            Self::Plif(map) => map.backward(z, slopes, g, sums),
            &Self::MonotonicNet { params, units } => {
                for (g, z) in g.iter_mut().zip(pairs()) {
                    let mut slope = T::ZERO;
                    for i in 0..units {
                        let (height, steepness) = (params[i], params[units + i]);
                        let t = sigmoid(steepness * z + params[2 * units + i]);
                        let bend = height * t * (T::ONE - t);
                        sums[i] += *g * t;
                        sums[units + i] += *g * bend * z;
                        sums[2 * units + i] += *g * bend;
                        slope += bend * steepness;
                    }
                    sums[3 * units] += *g;
                    *g *= slope;
                }
            }
        }
    }

    /// Brings the sums of [`backward`](Self::backward) into the order of the packed parameters.
    pub(super) fn unpack(&self, sums: &mut [T]) {
        if let Self::Plif(_) = self {
            let of = |which: usize| sums.iter().skip(which).step_by(2).copied();
            let packed: Vec<T> = of(0).chain(of(1)).collect();
            sums.copy_from_slice(&packed);
        }
    }
}
