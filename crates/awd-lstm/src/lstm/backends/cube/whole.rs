//! All steps in one launch, for layers whose recurrent weights are small: a cube works through one sequence, then through
//! the next of its own, and what one step hands to the other stays in the memory that its units share.
//!
//! A launch costs more time than such a product has work, and the cubes need not wait for each other: the steps of a sequence
//! depend on that sequence alone.

use cubecl::prelude::*;
use highrank_kernels::gpu::rounding::short;

use super::unit::{self, At};

/// Most units of a layer: of wider ones a cube reads the weights more slowly than the whole device does in a product.
pub(super) const MOST_UNITS: usize = 320;

/// Units of a cube, where the device has so many.
pub(super) const CUBE_UNITS: u32 = 512;

/// Terms of a sum that are read before any is added.
const AHEAD: usize = 8;

/// The sizes of a launch, which its kernel is compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Sizes {
    /// Units of the layer.
    pub(super) units: u32,
    /// Units of a cube.
    pub(super) cube_units: u32,
    /// Digits that the hidden state and the gradients of gates lose before a product.
    pub(super) cut: u32,
}

/// Into how many slices the terms of a product with so many columns are cut, so that most units of a cube have work.
fn slices(cube_units: u32, columns: u32) -> u32 {
    (cube_units / columns).max(1)
}

/// `sums[slice, column] = Σ x[k] · matrix[k, column]` over the `k` of each slice.
#[cube]
fn multiply(
    x: &Shared<[f32]>,
    matrix: &[f32],
    sums: &mut Shared<[f32]>,
    #[comptime] terms: u32,
    #[comptime] columns: u32,
    #[comptime] cube_units: u32,
) {
    let each = comptime!(terms.div_ceil(slices(cube_units, columns)));
    let mut place = UNIT_POS_X;
    while place < comptime!(slices(cube_units, columns) * columns) {
        let column = place % columns;
        let mut term = place / columns * each;
        let end = u32::min(term + each, terms);
        let mut even = 0.0f32;
        let mut odd = 0.0f32;
        while term + comptime!(AHEAD as u32) <= end {
            let mut read = Array::<f32>::new(AHEAD);
            #[unroll]
            for i in 0..AHEAD {
                read[i] = matrix[((term + i as u32) * columns + column) as usize];
            }
            #[unroll]
            for i in 0..AHEAD / 2 {
                even += x[(term + 2 * i as u32) as usize] * read[2 * i];
                odd += x[(term + 2 * i as u32 + 1) as usize] * read[2 * i + 1];
            }
            term += comptime!(AHEAD as u32);
        }
        while term < end {
            even += x[term as usize] * matrix[(term * columns + column) as usize];
            term += 1;
        }
        sums[place as usize] = even + odd;
        place += cube_units;
    }
}

/// The product of column `column` from those of its slices.
#[cube]
fn product(sums: &Shared<[f32]>, column: u32, #[comptime] columns: u32, #[comptime] cube_units: u32) -> f32 {
    let mut sum = 0.0f32;
    #[unroll]
    for slice in 0..comptime!(slices(cube_units, columns)) {
        sum += sums[(slice * columns + column) as usize];
    }
    sum
}

/// Gates, cells and hidden states of all steps. `gates` holds the input part of all steps and gets the gates after their
/// sigmoid or tanh; `recurrent_t` is `[H, 4H]`.
#[cube(launch_unchecked)]
#[allow(clippy::too_many_arguments)]
pub(super) fn forward(
    recurrent_t: &[f32],
    h0: &[f32],
    c0: &[f32],
    gates: &mut [f32],
    cells: &mut [f32],
    packed: &mut [f32],
    steps: u32,
    batch: u32,
    #[comptime] sizes: Sizes,
) {
    let units = comptime!(sizes.units);
    let rows = comptime!(4 * sizes.units);
    let cube_units = comptime!(sizes.cube_units);
    let mut hidden = Shared::<[f32]>::new_slice(comptime!(units as usize));
    let mut sums = Shared::<[f32]>::new_slice(comptime!((slices(cube_units, rows) * rows) as usize));
    let mut sequence = CUBE_POS_X;
    while sequence < batch {
        let mut first = UNIT_POS_X;
        while first < units {
            hidden[first as usize] = short(h0[(sequence * units + first) as usize], sizes.cut);
            first += cube_units;
        }
        sync_cube();
        let mut step = 0u32;
        while step < steps {
            multiply(&hidden, recurrent_t, &mut sums, units, rows, cube_units);
            sync_cube();
            let mut unit = UNIT_POS_X;
            while unit < units {
                let at = At { step, sequence, unit, batch, units: units.runtime() };
                let h = unit::forward(
                    &at,
                    product(&sums, unit, rows, cube_units),
                    product(&sums, unit + units, rows, cube_units),
                    product(&sums, unit + 2 * units, rows, cube_units),
                    product(&sums, unit + 3 * units, rows, cube_units),
                    c0,
                    gates,
                    cells,
                    packed,
                    step == steps - 1,
                );
                hidden[unit as usize] = short(h, sizes.cut);
                unit += cube_units;
            }
            sync_cube();
            step += 1;
        }
        sequence += CUBE_COUNT_X;
    }
}

/// Gradients of the gates of all steps before their sigmoid or tanh, of the first hidden state, and of the cell state from
/// that after the last step to that before the first. `recurrent` is `[4H, H]`.
#[cube(launch_unchecked)]
#[allow(clippy::too_many_arguments)]
pub(super) fn backward(
    recurrent: &[f32],
    grad: &[f32],
    c0: &[f32],
    gates: &[f32],
    cells: &[f32],
    d_cell: &mut [f32],
    d_gates: &mut [f32],
    d_hidden: &mut [f32],
    steps: u32,
    batch: u32,
    #[comptime] sizes: Sizes,
) {
    let units = comptime!(sizes.units);
    let rows = comptime!(4 * sizes.units);
    let cube_units = comptime!(sizes.cube_units);
    let mut dz = Shared::<[f32]>::new_slice(comptime!(rows as usize));
    let mut sums = Shared::<[f32]>::new_slice(comptime!((slices(cube_units, units) * units) as usize));
    let mut sequence = CUBE_POS_X;
    while sequence < batch {
        let mut left = steps;
        while left > 0 {
            let mut unit = UNIT_POS_X;
            while unit < units {
                let at = At { step: left - 1, sequence, unit, batch, units: units.runtime() };
                let mut dh = grad[at.now()];
                if left < steps {
                    dh += product(&sums, unit, units, cube_units);
                }
                unit::backward(&at, dh, c0, gates, cells, d_cell, d_gates);
                let from = at.gate();
                let width = units as usize;
                #[unroll]
                for gate in 0..4usize {
                    dz[unit as usize + gate * width] = short(d_gates[from + gate * width], sizes.cut);
                }
                unit += cube_units;
            }
            sync_cube();
            multiply(&dz, recurrent, &mut sums, rows, units, cube_units);
            sync_cube();
            left -= 1;
        }
        let mut first = UNIT_POS_X;
        while first < units {
            d_hidden[(sequence * units + first) as usize] = product(&sums, first, units, cube_units);
            first += cube_units;
        }
        // The next sequence's first product writes over the sums, but only behind the barrier of its first step.
        sequence += CUBE_COUNT_X;
    }
}
