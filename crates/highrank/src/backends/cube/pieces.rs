//! The gradient of a PLIF's table on GPUs: [`PieceSums`], the sums of the mapped logits' gradients by piece.

use burn::tensor::DType;
use cubecl::prelude::*;
use highrank_kernels::gpu::{self, CubeBackend, CubeTensor, contiguous, empty, fixed, one_unit_each};
use highrank_kernels::{Floats, Ints, launch};

use super::map::{Numbers, NumbersLaunch};
use super::reduce::cube_sum;
use crate::likelihood::parts::{add_part, joined};
use crate::logit_map::plif::gpu::{distance_of, index_of, piece_of};

/// What a row adds to the sums of a PLIF's first and last piece, whose distances have no bound: moment and gradient of
/// either.
pub(super) const OUTER_VALUES: usize = 4;

/// Sums of a PLIF's gradients by piece, over the chunks so far.
pub(super) struct PieceSums {
    /// What the inner sums are counted in, `[1]`: no gradient of a mapped logit is larger, but for rounding.
    pub(super) unit: CubeTensor,
    /// Whole numbers, two of two words for each piece.
    pub(super) inner: CubeTensor,
    /// The sum so far, `[1, OUTER_VALUES]`; empty without any.
    outer: Vec<Floats<CubeBackend>>,
    pieces: usize,
}

impl PieceSums {
    /// Sums of so many pieces in units of `unit`, `[1]`. Without pieces it is memory that no kernel touches.
    pub(super) fn new(unit: Floats<CubeBackend>, pieces: usize) -> Self {
        let words = 2 * fixed::WORDS * pieces.max(1);
        let inner = Ints::zeros([words], &unit.device(), DType::I32);
        Self { unit: contiguous(unit), inner: gpu::contiguous_ints(inner), outer: vec![], pieces }
    }

    /// Whether there is anything to sum.
    pub(super) fn are_there(&self) -> bool {
        self.pieces > 0
    }

    /// Adds what a chunk's rows left for the outer pieces, `[rows, OUTER_VALUES]`.
    pub(super) fn add_outer(&mut self, rows: Floats<CubeBackend>) {
        add_part(&mut self.outer, rows.sum_dim(0));
    }

    /// The gradient of the table; none without pieces or chunks.
    pub(super) fn finish(self, numbers: NumbersLaunch) -> Option<Floats<CubeBackend>> {
        let outer = contiguous(joined(self.outer)?);
        let d_table = empty(&self.unit, [2 * self.pieces], DType::F32);
        // SAFETY: every array has its number of values for each piece.
        unsafe {
            launch!(
                d_table, one_unit_each(&d_table, self.pieces), table_gradient;
                self.inner, outer, self.unit, d_table;
                numbers
            );
        }
        Some(Floats::new(d_table))
    }
}

/// A unit's part of what a row adds to the sums of the first and last piece.
#[derive(CubeType)]
pub(super) struct OuterPieces {
    first_moment: f32,
    first_gradient: f32,
    last_moment: f32,
    last_gradient: f32,
}

#[cube]
impl OuterPieces {
    /// Of no words yet.
    pub(super) fn new() -> OuterPieces {
        OuterPieces {
            first_moment: 0.0f32.runtime(),
            first_gradient: 0.0f32.runtime(),
            last_moment: 0.0f32.runtime(),
            last_gradient: 0.0f32.runtime(),
        }
    }

    /// Adds the gradient `g` of `f(z)` to the sums of its piece: to those of an inner piece the moment `g (z − left)`, in
    /// units of `unit` and of a piece's width, and `g`, in units of `unit`; to those of the first and last as they are.
    pub(super) fn add(&mut self, g: f32, z: f32, unit: f32, inner: &[Atomic<u32>], numbers: &Numbers) {
        let piece = piece_of(z, &numbers.map);
        let distance = distance_of(z, piece, &numbers.map);
        let index = index_of(piece, &numbers.map);
        let term = g / unit;
        // Whole numbers have no NaN: what is not a number goes to the first piece, in floats. Rounding may take a term a
        // little above 1. Of sizes, bits are in the order of the numbers, and NaN is above all of them for every compiler.
        let size = u32::reinterpret(term) & 0x7fff_ffffu32;
        if index == 0 || size > comptime!(2.0f32.to_bits()) {
            self.first_moment += g * distance;
            self.first_gradient += g;
        } else if index == numbers.map.pieces - 1 {
            self.last_moment += g * distance;
            self.last_gradient += g;
        } else {
            fixed::add(inner, 2 * index as usize, term * (distance / numbers.map.delta));
            fixed::add(inner, 2 * index as usize + 1, term);
        }
    }

    /// Writes the sums over the cube's units to `rows` from `place` on, when all units have come here.
    pub(super) fn write(&self, rows: &mut [f32], place: usize, shared: &mut Shared<[f32]>) {
        let first_moment = cube_sum(self.first_moment, shared);
        let first_gradient = cube_sum(self.first_gradient, shared);
        let last_moment = cube_sum(self.last_moment, shared);
        let last_gradient = cube_sum(self.last_gradient, shared);
        if UNIT_POS_X == 0 {
            rows[place] = first_moment;
            rows[place + 1] = first_gradient;
            rows[place + 2] = last_moment;
            rows[place + 3] = last_gradient;
        }
    }
}

/// The gradient of a PLIF's table, slopes and then values, from the sums over all chunks.
#[cube(launch_unchecked)]
fn table_gradient(inner: &[u32], outer: &[f32], unit: &[f32], d_table: &mut [f32], numbers: Numbers) {
    let unit = unit[0] / numbers.temperature;
    let mut piece = ABSOLUTE_POS as u32;
    while piece < numbers.map.pieces {
        let mut moment = fixed::value(inner, 2 * piece as usize) * numbers.map.delta * unit;
        let mut g = fixed::value(inner, 2 * piece as usize + 1) * unit;
        if piece == 0 {
            moment = outer[0] / numbers.temperature;
            g = outer[1] / numbers.temperature;
        } else if piece == numbers.map.pieces - 1 {
            moment = outer[2] / numbers.temperature;
            g = outer[3] / numbers.temperature;
        }
        d_table[piece as usize] = moment;
        d_table[(piece + numbers.map.pieces) as usize] = g;
        piece += CUBE_COUNT_X * CUBE_DIM_X;
    }
}
