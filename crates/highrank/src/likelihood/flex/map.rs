//! Logit maps on slices: value of a row, and gradient of a row with the sums of its parameters.

use crate::cpu::{Real, sigmoid, softplus};
use crate::logit_map::MapFunction;

/// A logit map with its parameters in place.
#[derive(Clone, Copy)]
pub(super) enum Map<'a, T> {
    Identity,
    Sigsoftmax,
    Gss { center: T, excess: T },
    SoftCap { cap: T },
    Plif(Plif<'a, T>),
    MonotonicNet { params: &'a [T], units: usize },
}

/// A PLIF's tables; see `logit_map::Plif` for the formula.
#[derive(Clone, Copy)]
pub(super) struct Plif<'a, T> {
    slopes: &'a [T],
    values: &'a [T],
    bound: T,
    delta: T,
}

impl<T: Real> Plif<'_, T> {
    /// Piece of a logit and its distance from the piece's left end.
    #[inline(always)]
    fn locate(&self, z: T) -> (usize, T) {
        let last = T::of((self.slopes.len() - 1) as f64);
        let piece = ((z + self.bound) / self.delta).floor();
        let piece = if piece > last { last } else { piece };
        // Written so that NaN becomes piece 0; the distance keeps it NaN.
        let piece = if piece > T::ZERO { piece } else { T::ZERO };
        (piece.index(), z - (piece * self.delta - self.bound))
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
            MapFunction::Plif { pieces, bound } => Self::Plif(Plif {
                slopes: &params[..pieces],
                values: &params[pieces..],
                bound: T::of(bound),
                delta: T::of(2.0 * bound / pieces as f64),
            }),
            MapFunction::MonotonicNet { units } => Self::MonotonicNet { params, units },
        }
    }

    pub(super) fn is_identity(&self) -> bool {
        matches!(self, Self::Identity)
    }

    /// `f(z)` of a row, in place.
    #[inline(always)]
    pub(super) fn apply(&self, row: &mut [T]) {
        match *self {
            Self::Identity => {}
            Self::Sigsoftmax => row.iter_mut().for_each(|z| *z = *z - softplus(-*z)),
            Self::Gss { center, excess } => {
                row.iter_mut().for_each(|z| *z = *z - excess * softplus(center - *z));
            }
            Self::SoftCap { cap } => row.iter_mut().for_each(|z| *z = cap * (*z / cap).tanh()),
            Self::Plif(map) => row.iter_mut().for_each(|z| {
                let (piece, distance) = map.locate(*z);
                *z = map.values[piece] + map.slopes[piece] * distance;
            }),
            Self::MonotonicNet { params, units } => {
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

    /// Turns the gradient `g` of mapped logits into that of the logits `z`, and adds to that of the parameters.
    ///
    /// `sums` has the packed parameters' length.
    #[inline(always)]
    pub(super) fn backward(&self, z: &[T], g: &mut [T], sums: &mut [T]) {
        let pairs = || z.iter().copied();
        match *self {
            Self::Identity => {}
            Self::Sigsoftmax => {
                g.iter_mut().zip(pairs()).for_each(|(g, z)| *g *= T::ONE + sigmoid(-z));
            }
            Self::Gss { center, excess } => {
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
            Self::SoftCap { cap } => g.iter_mut().zip(pairs()).for_each(|(g, z)| {
                let t = (z / cap).tanh();
                *g *= T::ONE - t * t;
            }),
            Self::Plif(map) => {
                let (slopes, values) = sums.split_at_mut(map.slopes.len());
                for (g, z) in g.iter_mut().zip(pairs()) {
                    let (piece, distance) = map.locate(z);
                    slopes[piece] += *g * distance;
                    values[piece] += *g;
                    *g *= map.slopes[piece];
                }
            }
            Self::MonotonicNet { params, units } => {
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
}
