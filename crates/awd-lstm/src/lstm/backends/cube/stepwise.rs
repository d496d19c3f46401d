//! One launch a step: what happens to every unit of every sequence between two products.
//!
//! A unit of the device works on one unit of the layer in one sequence, then on the next of its own.

use cubecl::prelude::*;

use super::unit::{self, At};

/// Gates, cell and hidden state of step `step`, after its recurrent product `[B, 4H]`. `hidden` is the state that the next
/// product reads.
#[cube(launch_unchecked)]
#[allow(clippy::too_many_arguments)]
pub(super) fn forward(
    product: &[f32],
    c0: &[f32],
    gates: &mut [f32],
    cells: &mut [f32],
    packed: &mut [f32],
    hidden: &mut [f32],
    step: u32,
    steps: u32,
    batch: u32,
    units: u32,
) {
    let mut place = ABSOLUTE_POS as u32;
    while place < batch * units {
        let at = At { step, sequence: place / units, unit: place % units, batch, units };
        let from = (at.sequence * 4 * units + at.unit) as usize;
        let width = units as usize;
        hidden[place as usize] = unit::forward(
            &at,
            product[from],
            product[from + width],
            product[from + 2 * width],
            product[from + 3 * width],
            c0,
            gates,
            cells,
            packed,
            step == steps - 1,
        );
        place += CUBE_COUNT_X * CUBE_DIM_X;
    }
}

/// Gradients of the gates of step `step` before their sigmoid or tanh, in `d_gates` and, for the next product, in `dz`.
/// `from_next` is what the product of the step after it made. `d_cell` goes from the gradient of the cell state after the step
/// to that before it.
#[cube(launch_unchecked)]
#[allow(clippy::too_many_arguments)]
pub(super) fn backward(
    grad: &[f32],
    from_next: &[f32],
    c0: &[f32],
    gates: &[f32],
    cells: &[f32],
    d_cell: &mut [f32],
    d_gates: &mut [f32],
    dz: &mut [f32],
    step: u32,
    batch: u32,
    units: u32,
    #[comptime] has_next: bool,
) {
    let mut place = ABSOLUTE_POS as u32;
    while place < batch * units {
        let at = At { step, sequence: place / units, unit: place % units, batch, units };
        let mut d_hidden = grad[at.now()];
        if comptime!(has_next) {
            d_hidden += from_next[place as usize];
        }
        unit::backward(&at, d_hidden, c0, gates, cells, d_cell, d_gates);
        let from = at.gate();
        let to = (at.sequence * 4 * units + at.unit) as usize;
        let width = units as usize;
        dz[to] = d_gates[from];
        dz[to + width] = d_gates[from + width];
        dz[to + 2 * width] = d_gates[from + 2 * width];
        dz[to + 3 * width] = d_gates[from + 3 * width];
        place += CUBE_COUNT_X * CUBE_DIM_X;
    }
}
