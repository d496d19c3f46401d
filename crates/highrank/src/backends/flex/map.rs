//! Logit maps on slices: values of a block of logits, and gradient of a block with the sums of its parameters.

use highrank_kernels::cpu::{BLOCK, LANES, Real, softplus, softplus_and_sigmoid, tanh};

use super::monotonic::{self, MonotonicNet};
use super::plif::{self, Plif};
use super::row::add_products;
use crate::ops::MapFunction;

/// A logit map with its parameters in place, or the tables made of them.
pub(super) enum Map<'a, T> {
    Identity,
    Sigsoftmax,
    Gss { center: T, excess: T },
    SoftCap { cap: T, inverse: T },
    Plif(Plif<'a, T>),
    MonotonicNet(MonotonicNet<T>),
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
            MapFunction::SoftCap { cap } => Self::SoftCap { cap: T::of(cap), inverse: T::of(1.0 / cap) },
            MapFunction::Plif { bound, .. } => Self::Plif(Plif::new(params, bound)),
            MapFunction::MonotonicNet { .. } => Self::MonotonicNet(MonotonicNet::new(params)),
        }
    }

    /// Logits of a block: what [`apply`](Self::apply) makes of them stays in the first-level cache.
    pub(super) fn block(&self) -> usize {
        match self {
            Self::MonotonicNet(_) => monotonic::BLOCK,
            _ => BLOCK,
        }
    }

    /// Whether the sums of the parameters' gradient are as many as logits, so that rows are not summed by themselves.
    pub(super) fn is_table(&self) -> bool {
        matches!(self, Self::Plif(_))
    }

    /// Whether [`pull_back`](Self::pull_back) does anything.
    pub(super) fn has_parts(&self) -> bool {
        !matches!(self, Self::Identity | Self::Plif(_))
    }

    /// Arrays over the vocabulary that a row keeps: its logits where they are needed again, which all maps do where
    /// [all words](super::token::Sees) are looked at, and the parts of a map with a table.
    pub(super) fn arrays(&self, sees_all: bool) -> usize {
        match self {
            Self::Identity => 0,
            Self::Plif(_) => 1 + plif::PARTS,
            _ => usize::from(sees_all),
        }
    }

    /// Values a logit that [`apply`](Self::apply) leaves for [`pull_back`](Self::pull_back).
    pub(super) fn parts(&self) -> usize {
        match self {
            Self::Identity => 0,
            Self::Sigsoftmax | Self::SoftCap { .. } => 1,
            Self::Gss { .. } => 2,
            Self::Plif(_) => plif::PARTS,
            Self::MonotonicNet(net) => net.parts(),
        }
    }

    /// `f(z)` of a block, in place. `parts` is empty, or takes [`parts`](Self::parts) values a logit, of as many logits as
    /// are whole [`LANES`].
    #[inline(always)]
    pub(super) fn apply(&self, block: &mut [T], parts: &mut [T]) {
        match self {
            Self::Identity => {}
            Self::Sigsoftmax if parts.is_empty() => block.iter_mut().for_each(|z| *z = *z - softplus(-*z)),
            Self::Sigsoftmax => block.iter_mut().zip(parts).for_each(|(z, slope)| {
                let [softplus, sigmoid] = softplus_and_sigmoid(-*z);
                (*z, *slope) = (*z - softplus, T::ONE + sigmoid);
            }),
            &Self::Gss { center, excess } if parts.is_empty() => {
                block.iter_mut().for_each(|z| *z = *z - excess * softplus(center - *z));
            }
            &Self::Gss { center, excess } => {
                let (sigmoids, softplus) = parts.split_at_mut(parts.len() / 2);
                for ((z, sigmoid), softplus) in block.iter_mut().zip(sigmoids).zip(softplus) {
                    [*softplus, *sigmoid] = softplus_and_sigmoid(center - *z);
                    *z -= excess * *softplus;
                }
            }
            &Self::SoftCap { cap, inverse } if parts.is_empty() => {
                block.iter_mut().for_each(|z| *z = cap * tanh(*z * inverse));
            }
            &Self::SoftCap { cap, inverse } => block.iter_mut().zip(parts).for_each(|(z, t)| {
                *t = tanh(*z * inverse);
                *z = cap * *t;
            }),
            Self::Plif(map) => map.apply(block, parts),
            Self::MonotonicNet(net) => net.apply(block, parts),
        }
    }

    /// Turns the gradient of a block's mapped logits into that of the logits, by their [`parts`](Self::parts), and adds to
    /// the row's sums, [`num_sums`](Self::num_sums) times [`lanes`](Self::lanes) of them. Not for maps with a [table](Self::is_table).
    #[inline(always)]
    pub(super) fn pull_back(&self, parts: &[T], g: &mut [T], lanes: &mut [T]) {
        match self {
            Self::Identity | Self::Plif(_) => {}
            Self::Sigsoftmax => g.iter_mut().zip(parts).for_each(|(g, slope)| *g *= *slope),
            &Self::Gss { excess, .. } => {
                let (sigmoids, softplus) = parts.split_at(parts.len() / 2);
                let (of_sigmoids, of_softplus) = lanes.split_at_mut(lanes.len() / 2);
                add_products(of_sigmoids, g, sigmoids);
                add_products(of_softplus, g, softplus);
                g.iter_mut().zip(sigmoids).for_each(|(g, sigmoid)| *g *= excess.mul_add(*sigmoid, T::ONE));
            }
            Self::SoftCap { .. } => {
                g.iter_mut().zip(parts).for_each(|(g, t)| *g *= (-*t).mul_add(*t, T::ONE))
            }
            Self::MonotonicNet(net) => net.pull_back(parts, g, lanes),
        }
    }

    /// Length of the packed parameters.
    pub(super) fn num_params(&self) -> usize {
        match self {
            Self::Identity | Self::Sigsoftmax | Self::SoftCap { .. } => 0,
            Self::Gss { .. } => 2,
            Self::Plif(map) => map.pieces() + 1,
            Self::MonotonicNet(net) => net.num_params(),
        }
    }

    /// Length of the sums that make the gradient of the packed parameters.
    pub(super) fn num_sums(&self) -> usize {
        match self {
            Self::Plif(map) => 2 * map.pieces(),
            Self::MonotonicNet(net) => net.num_sums(),
            _ => self.num_params(),
        }
    }

    /// How many partial results make a sum of a row.
    pub(super) fn lanes(&self) -> usize {
        match self {
            Self::MonotonicNet(_) => LANES,
            _ => BLOCK,
        }
    }

    /// Makes the gradient of the packed parameters of the sums.
    pub(super) fn finish(&self, sums: &[T], d_params: &mut [T]) {
        match self {
            Self::Identity | Self::Sigsoftmax | Self::SoftCap { .. } => {}
            &Self::Gss { excess, .. } => d_params.copy_from_slice(&[-excess * sums[0], -sums[1]]),
            Self::Plif(map) => map.finish(sums, d_params),
            Self::MonotonicNet(net) => net.finish(sums, d_params),
        }
    }
}
