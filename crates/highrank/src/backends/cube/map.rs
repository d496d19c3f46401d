//! Logit maps on the device: see [`crate::logit_map`] for the formulas.

use cubecl::prelude::*;

use crate::ops::{self, MapFunction};

/// A logit map that the kernels can compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Map {
    Identity,
    Sigsoftmax,
    SoftCap,
    Plif,
}

/// What kernels of mapped logits are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Form {
    pub(super) map: Map,
    /// Whether there is a bias, and with it there may be masked words.
    pub(super) bias: bool,
    /// Whether mapped logits are divided by a temperature other than 1.
    pub(super) temperature: bool,
}

/// Numbers that no kernel is compiled for.
#[derive(Clone, Copy, Debug, CubeType, CubeLaunch)]
pub(super) struct Numbers {
    /// The cap, or a PLIF's T.
    pub(super) bound: f32,
    /// Width of a PLIF's piece.
    pub(super) delta: f32,
    /// Pieces of a PLIF.
    pub(super) pieces: u32,
    /// τ.
    pub(super) temperature: f32,
    /// Not a number: what a word outside of the vocabulary makes of its token. GPU languages cannot write it down.
    pub(super) nan: f32,
}

/// The mapped logit of a masked word.
const MASKED: f32 = ops::MASKED as f32;

/// See [`ops::MASKING_BIAS`].
const MASKING_BIAS: f32 = ops::MASKING_BIAS as f32;

impl Map {
    /// The map and its bound, width of a piece and number of pieces; none of those maps whose parameters every logit moves,
    /// which the portable path computes.
    pub(super) fn of(function: MapFunction) -> Option<(Self, [f32; 2], u32)> {
        match function {
            MapFunction::Identity => Some((Self::Identity, [0.0; 2], 0)),
            MapFunction::Sigsoftmax => Some((Self::Sigsoftmax, [0.0; 2], 0)),
            MapFunction::SoftCap { cap } => Some((Self::SoftCap, [cap as f32, 0.0], 0)),
            MapFunction::Plif { knots: pieces, bound } => {
                Some((Self::Plif, [bound as f32, (2.0 * bound / pieces as f64) as f32], pieces as u32))
            }
            MapFunction::Gss | MapFunction::MonotonicNet { .. } => None,
        }
    }
}

/// Whether a word is masked.
#[cube]
pub(super) fn is_masked(bias: &[f32], word: usize, #[comptime] form: Form) -> bool {
    if comptime!(form.bias) { bias[word] <= MASKING_BIAS } else { false.runtime() }
}

/// `z` of a word that is not masked: the product, and the bias where there is one.
#[cube]
pub(super) fn logit(product: f32, bias: &[f32], word: usize, #[comptime] form: Form) -> f32 {
    if comptime!(form.bias) { product + bias[word] } else { product }
}

/// `f(z)/τ`.
#[cube]
pub(super) fn mapped(z: f32, table: &[f32], numbers: &Numbers, #[comptime] form: Form) -> f32 {
    let y = apply(z, table, numbers, form.map);
    if comptime!(form.temperature) { y / numbers.temperature } else { y }
}

/// `f(z)/τ` of a word, [`MASKED`] if it is masked.
#[cube]
pub(super) fn mapped_word(
    product: f32,
    bias: &[f32],
    word: usize,
    table: &[f32],
    numbers: &Numbers,
    #[comptime] form: Form,
) -> f32 {
    if comptime!(form.bias) {
        let mut y = MASKED.runtime();
        if !is_masked(bias, word, form) {
            y = mapped(product + bias[word], table, numbers, form);
        }
        y
    } else {
        mapped(product, table, numbers, form)
    }
}

/// `∂(f(z)/τ)/∂z`.
#[cube]
pub(super) fn mapped_slope(z: f32, table: &[f32], numbers: &Numbers, #[comptime] form: Form) -> f32 {
    let y = slope(z, table, numbers, form.map);
    if comptime!(form.temperature) { y / numbers.temperature } else { y }
}

/// The number of the PLIF's piece that `z` lies on, as a float: the outer pieces go on beyond `[−T, T]`.
#[cube]
pub(super) fn piece_of(z: f32, numbers: &Numbers) -> f32 {
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

/// Distance of `z` from the left end of its piece.
#[cube]
pub(super) fn distance_of(z: f32, piece: f32, numbers: &Numbers) -> f32 {
    z - (piece * numbers.delta - numbers.bound)
}

/// `f(z)`; a PLIF's table holds the slopes and then the values at the left ends of the pieces.
#[cube]
fn apply(z: f32, table: &[f32], numbers: &Numbers, #[comptime] map: Map) -> f32 {
    if comptime!(map == Map::Sigsoftmax) {
        let mut negative = 0.0f32;
        if z < 0.0 {
            negative = z;
        }
        z + negative - (-z.abs()).exp().log1p()
    } else if comptime!(map == Map::SoftCap) {
        (z / numbers.bound).tanh() * numbers.bound
    } else if comptime!(map == Map::Plif) {
        let piece = piece_of(z, numbers);
        let index = u32::cast_from(piece);
        let slope = table[index as usize];
        let value = table[(index + numbers.pieces) as usize];
        value + slope * distance_of(z, piece, numbers)
    } else {
        z
    }
}

/// `f'(z)`.
#[cube]
fn slope(z: f32, table: &[f32], numbers: &Numbers, #[comptime] map: Map) -> f32 {
    if comptime!(map == Map::Sigsoftmax) {
        1.0 + 1.0 / (1.0 + z.exp())
    } else if comptime!(map == Map::SoftCap) {
        let y = (z / numbers.bound).tanh();
        1.0 - y * y
    } else if comptime!(map == Map::Plif) {
        table[u32::cast_from(piece_of(z, numbers)) as usize]
    } else {
        1.0f32.runtime()
    }
}
