//! Logit maps on slices: value of a row, and gradient of a row with the sums of its parameters.

use highrank_kernels::cpu::{Real, sigmoid, softplus};

use super::plif::{self, BLOCK, Plif};
use crate::ops::MapFunction;

/// A logit map with its parameters in place, or the tables made of them.
pub(super) enum Map<'a, T> {
    Identity,
    Sigsoftmax,
    Gss { center: T, excess: T },
    SoftCap { cap: T },
    Plif(Plif<'a, T>),
    MonotonicNet { params: &'a [T], units: usize },
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

    /// Values a logit that [`apply`](Self::apply) keeps for [`backward`](Self::backward).
    pub(super) fn kept(&self) -> usize {
        match self {
            Self::Identity => 0,
            Self::Plif(_) => plif::KEPT,
            _ => 1,
        }
    }

    /// `f(z)` of a row, in place. `kept` is empty, or takes [`kept`](Self::kept) values a logit.
    #[inline(always)]
    pub(super) fn apply(&self, row: &mut [T], kept: &mut [T]) {
        if matches!(self, Self::Gss { .. } | Self::MonotonicNet { .. }) {
            kept.iter_mut().zip(&*row).for_each(|(kept, z)| *kept = *z);
        }
        match self {
            Self::Identity => {}
            Self::Sigsoftmax if kept.is_empty() => row.iter_mut().for_each(|z| *z = *z - softplus(-*z)),
            // Keeps its slope, which shares an exponential with the value.
            Self::Sigsoftmax => row.iter_mut().zip(kept).for_each(|(z, slope)| {
                *slope = T::ONE + sigmoid(-*z);
                *z = *z - softplus(-*z);
            }),
            &Self::Gss { center, excess } => {
                row.iter_mut().for_each(|z| *z = *z - excess * softplus(center - *z));
            }
            &Self::SoftCap { cap } => {
                row.iter_mut().for_each(|z| *z = (*z / cap).tanh());
                kept.iter_mut().zip(&*row).for_each(|(kept, t)| *kept = *t);
                row.iter_mut().for_each(|t| *t *= cap);
            }
            Self::Plif(map) => map.apply(row, kept),
            &Self::MonotonicNet { params, units } => {
                for block in row.chunks_mut(BLOCK) {
                    let mut sums = [params[3 * units]; BLOCK];
                    for i in 0..units {
                        let [height, steepness, bias] = [params[i], params[units + i], params[2 * units + i]];
                        for (sum, z) in sums.iter_mut().zip(&*block) {
                            *sum += height * sigmoid(steepness * *z + bias);
                        }
                    }
                    block.copy_from_slice(&sums[..block.len()]);
                }
            }
        }
    }

    /// Turns `g / scale`, the gradient of mapped logits, into that of the logits, and adds to the sums of the parameters'
    /// gradient, of which there are [`num_sums`](Self::num_sums).
    #[inline(always)]
    pub(super) fn backward(&self, kept: &[T], g: &mut [T], scale: T, sums: &mut [T]) {
        if let Self::Plif(map) = self {
            return map.backward(kept, g, scale, sums);
        }
        g.iter_mut().for_each(|g| *g *= scale);
        let pairs = || kept.iter().copied();
        match self {
            Self::Identity | Self::Plif(_) => {}
            Self::Sigsoftmax => g.iter_mut().zip(pairs()).for_each(|(g, slope)| *g *= slope),
            &Self::Gss { center, excess } => {
                let mut lanes = [[T::ZERO; BLOCK]; 2];
                let [d_center, d_slope] = &mut lanes;
                let mut visit = |lane: usize, g: &mut T, z: T| {
                    let bend = excess * sigmoid(center - z);
                    d_center[lane] += *g * bend;
                    d_slope[lane] += *g * softplus(center - z);
                    *g *= T::ONE + bend;
                };
                let ((g, g_rest), (z, z_rest)) = (g.as_chunks_mut::<BLOCK>(), kept.as_chunks::<BLOCK>());
                for (g, z) in g.iter_mut().zip(z) {
                    for lane in 0..BLOCK {
                        visit(lane, &mut g[lane], z[lane]);
                    }
                }
                for (lane, (g, z)) in g_rest.iter_mut().zip(z_rest).enumerate() {
                    visit(lane, g, *z);
                }
                for (sum, lanes) in sums.iter_mut().zip(&lanes) {
                    *sum += -T::of(lanes.iter().map(|lane| lane.wide()).sum());
                }
            }
            Self::SoftCap { .. } => g.iter_mut().zip(pairs()).for_each(|(g, t)| *g *= T::ONE - t * t),
            &Self::MonotonicNet { params, units } => {
                // The sums of a unit are kept in lanes over the row, which vectorise.
                let mut lanes = vec![[[T::ZERO; BLOCK]; 3]; units];
                let mut total = T::ZERO;
                for (g, z) in g.chunks_mut(BLOCK).zip(kept.chunks(BLOCK)) {
                    let mut slopes = [T::ZERO; BLOCK];
                    for (i, [d_height, d_steepness, d_bias]) in lanes.iter_mut().enumerate() {
                        let [height, steepness, bias] = [params[i], params[units + i], params[2 * units + i]];
                        for (lane, (g, z)) in g.iter().zip(z).enumerate() {
                            let t = sigmoid(steepness * *z + bias);
                            let bend = height * t * (T::ONE - t);
                            d_height[lane] += *g * t;
                            d_steepness[lane] += *g * bend * *z;
                            d_bias[lane] += *g * bend;
                            slopes[lane] += bend * steepness;
                        }
                    }
                    total += g.iter().fold(T::ZERO, |sum, g| sum + *g);
                    g.iter_mut().zip(&slopes).for_each(|(g, slope)| *g *= *slope);
                }
                for (i, unit) in lanes.iter().enumerate() {
                    for (which, lanes) in unit.iter().enumerate() {
                        sums[which * units + i] += T::of(lanes.iter().map(|lane| lane.wide()).sum());
                    }
                }
                sums[3 * units] += total;
            }
        }
    }

    /// Length of the packed parameters.
    pub(super) fn num_params(&self) -> usize {
        match self {
            Self::Identity | Self::Sigsoftmax | Self::SoftCap { .. } => 0,
            Self::Gss { .. } => 2,
            Self::Plif(map) => map.pieces() + 1,
            Self::MonotonicNet { params, .. } => params.len(),
        }
    }

    /// Length of the sums of [`backward`](Self::backward).
    pub(super) fn num_sums(&self) -> usize {
        match self {
            Self::Plif(map) => 2 * map.pieces(),
            _ => self.num_params(),
        }
    }

    /// Makes the gradient of the packed parameters of the sums of [`backward`](Self::backward).
    pub(super) fn finish(&self, sums: &[T], d_params: &mut [T]) {
        match self {
            Self::Plif(map) => map.finish(sums, d_params),
            _ => d_params.copy_from_slice(sums),
        }
    }
}
