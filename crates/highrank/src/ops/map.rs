//! A logit map as a plain value.

/// A logit map `f` without its parameters, which come packed in one vector.
///
/// A logit is looked up in the function's *table*, made of the parameters once a call by [`table`](Self::table). Only a
/// PLIF has one of its own; the others' tables are their parameters.
///
/// | function | packed parameters | table |
/// |---|---|---|
/// | `Identity`, `Sigsoftmax`, `SoftCap` | none | none |
/// | `Gss` | `c, k` | the same |
/// | `Plif` | `v_0 .. v_{P−1}, b₀` | `s_0 .. s_{P−1}, f(l_0) .. f(l_{P−1})`: slope and value at the left end of each piece |
/// | `MonotonicNet` | `height_i`, `steepness_i`, `bias_i` of each unit, then the offset | the same |
///
/// The formulas are in [`logit_map`](crate::logit_map), one file a map.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum MapFunction {
    /// `f(z) = z`.
    Identity,
    /// `f(z) = z + log σ(z)`.
    Sigsoftmax,
    /// `f(z) = z + (k − 1) log σ(z − c)`.
    Gss,
    /// `f(z) = cap · tanh(z / cap)`.
    SoftCap {
        /// Largest magnitude of a mapped logit.
        cap: f64,
    },
    /// `f(z) = f(l_i) + slope_i (z − l_i)` on piece `i`.
    Plif {
        /// Number of linear pieces on `[-bound, bound]`.
        pieces: usize,
        /// `T`.
        bound: f64,
    },
    /// `f(z) = Σ_i height_i σ(steepness_i z + bias_i) + offset`.
    MonotonicNet {
        /// Number of sigmoid units.
        units: usize,
    },
}

impl MapFunction {
    /// Length of the packed parameter vector; 0 for a map without parameters.
    pub fn num_params(&self) -> usize {
        match *self {
            Self::Identity | Self::Sigsoftmax | Self::SoftCap { .. } => 0,
            Self::Gss => 2,
            Self::Plif { pieces, .. } => pieces + 1,
            Self::MonotonicNet { units } => 3 * units + 1,
        }
    }
}
