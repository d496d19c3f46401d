//! One launch a step: what happens to every unit of every sequence between two products.
//!
//! A unit of the device works on one unit of the layer in one sequence, then on the next of its own.

use cubecl::prelude::*;

/// Units of a cube.
pub(super) const UNITS: u32 = 256;

#[cube]
fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

/// Gates, cell and hidden state of step `step`. `gates` holds the input part of all steps and gets the gates after their
/// sigmoid or tanh; `hidden` is the state that the next product reads.
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
    let state = batch * units;
    let mut place = ABSOLUTE_POS as u32;
    while place < state {
        let sequence = place / units;
        let unit = place % units;
        let row = sequence * 4 * units + unit;
        let gate = ((step * batch) * 4 * units + row) as usize;
        let width = units as usize;
        let from = row as usize;
        let input = sigmoid(gates[gate] + product[from]);
        let forget = sigmoid(gates[gate + width] + product[from + width]);
        let candidate = (gates[gate + 2 * width] + product[from + 2 * width]).tanh();
        let output = sigmoid(gates[gate + 3 * width] + product[from + 3 * width]);
        gates[gate] = input;
        gates[gate + width] = forget;
        gates[gate + 2 * width] = candidate;
        gates[gate + 3 * width] = output;

        let now = (step * state + place) as usize;
        let mut before = c0[place as usize];
        if step > 0 {
            before = cells[now - state as usize];
        }
        let cell = forget * before + input * candidate;
        let h = output * cell.tanh();
        cells[now] = cell;
        packed[now] = h;
        hidden[place as usize] = h;
        if step == steps - 1 {
            packed[now + state as usize] = cell;
        }
        place += CUBE_COUNT_X * UNITS;
    }
}

/// Gradients of the gates of step `step` before their sigmoid or tanh, in `d_gates` and, for the next product, in `dz`.
/// `d_cell` is the gradient of the cell state, from that after the step to that before it. The equations are those of the
/// portable backward pass.
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
    let state = batch * units;
    let mut place = ABSOLUTE_POS as u32;
    while place < state {
        let sequence = place / units;
        let unit = place % units;
        let row = sequence * 4 * units + unit;
        let gate = ((step * batch) * 4 * units + row) as usize;
        let width = units as usize;
        let to = row as usize;
        let now = (step * state + place) as usize;
        let input = gates[gate];
        let forget = gates[gate + width];
        let candidate = gates[gate + 2 * width];
        let output = gates[gate + 3 * width];
        let tanh_cell = cells[now].tanh();
        let mut before = c0[place as usize];
        if step > 0 {
            before = cells[now - state as usize];
        }

        let mut dh = grad[now];
        if comptime!(has_next) {
            dh += from_next[place as usize];
        }
        let dc = d_cell[place as usize] + dh * output * (1.0 - tanh_cell * tanh_cell);
        let dz_input = dc * candidate * input * (1.0 - input);
        let dz_forget = dc * before * forget * (1.0 - forget);
        let dz_candidate = dc * input * (1.0 - candidate * candidate);
        let dz_output = dh * tanh_cell * output * (1.0 - output);
        d_gates[gate] = dz_input;
        d_gates[gate + width] = dz_forget;
        d_gates[gate + 2 * width] = dz_candidate;
        d_gates[gate + 3 * width] = dz_output;
        dz[to] = dz_input;
        dz[to + width] = dz_forget;
        dz[to + 2 * width] = dz_candidate;
        dz[to + 3 * width] = dz_output;
        d_cell[place as usize] = dc * forget;
        place += CUBE_COUNT_X * UNITS;
    }
}
