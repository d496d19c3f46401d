//! One unit of the layer in one step of one sequence, between two recurrent products.

use cubecl::prelude::*;

/// Which unit of the layer, in which step of which sequence, in row-major tensors of all of them.
#[derive(CubeType, Clone, Copy)]
pub(super) struct At {
    pub(super) step: u32,
    pub(super) sequence: u32,
    pub(super) unit: u32,
    pub(super) batch: u32,
    pub(super) units: u32,
}

#[cube]
impl At {
    /// In a state of all sequences, `[B, H]`.
    pub(super) fn state(&self) -> usize {
        (self.sequence * self.units + self.unit) as usize
    }

    /// In the states of all steps, `[T, B, H]`.
    pub(super) fn now(&self) -> usize {
        ((self.step * self.batch + self.sequence) * self.units + self.unit) as usize
    }

    /// Its input gate among the gates of all steps, `[T, B, 4H]`; each other one is `H` further on.
    pub(super) fn gate(&self) -> usize {
        ((self.step * self.batch + self.sequence) * 4 * self.units + self.unit) as usize
    }

    /// In the states of all steps, at the step before.
    fn before(&self) -> usize {
        self.now() - (self.batch * self.units) as usize
    }
}

#[cube]
fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

/// The hidden state after the step, from the recurrent products of the unit's gates. `gates` holds the input part and gets the
/// gates after their sigmoid or tanh; the states go to `cells` and `packed`, after the `last` step the cell state too.
#[cube]
#[allow(clippy::too_many_arguments)]
pub(super) fn forward(
    at: &At,
    input: f32,
    forget: f32,
    candidate: f32,
    output: f32,
    c0: &[f32],
    gates: &mut [f32],
    cells: &mut [f32],
    packed: &mut [f32],
    is_last: bool,
) -> f32 {
    let gate = at.gate();
    let width = at.units as usize;
    let input = sigmoid(gates[gate] + input);
    let forget = sigmoid(gates[gate + width] + forget);
    let candidate = (gates[gate + 2 * width] + candidate).tanh();
    let output = sigmoid(gates[gate + 3 * width] + output);
    gates[gate] = input;
    gates[gate + width] = forget;
    gates[gate + 2 * width] = candidate;
    gates[gate + 3 * width] = output;

    let mut before = c0[at.state()];
    if at.step > 0 {
        before = cells[at.before()];
    }
    let cell = forget * before + input * candidate;
    let hidden = output * cell.tanh();
    cells[at.now()] = cell;
    packed[at.now()] = hidden;
    if is_last {
        packed[at.now() + (at.batch * at.units) as usize] = cell;
    }
    hidden
}

/// The gradients of the unit's gates before their sigmoid or tanh, in `d_gates`, from the gradient `d_hidden` of its hidden
/// state and that of the cell state after the step, `d_after`. The gradient of the cell state before the step goes to `d_cell`.
/// The equations are those of the portable backward pass.
#[cube]
#[allow(clippy::too_many_arguments)]
pub(super) fn backward(
    at: &At,
    d_hidden: f32,
    d_after: f32,
    c0: &[f32],
    gates: &[f32],
    cells: &[f32],
    d_cell: &mut [f32],
    d_gates: &mut [f32],
) {
    let gate = at.gate();
    let width = at.units as usize;
    let input = gates[gate];
    let forget = gates[gate + width];
    let candidate = gates[gate + 2 * width];
    let output = gates[gate + 3 * width];
    let tanh_cell = cells[at.now()].tanh();
    let mut before = c0[at.state()];
    if at.step > 0 {
        before = cells[at.before()];
    }
    let dc = d_after + d_hidden * output * (1.0 - tanh_cell * tanh_cell);
    d_gates[gate] = dc * candidate * input * (1.0 - input);
    d_gates[gate + width] = dc * before * forget * (1.0 - forget);
    d_gates[gate + 2 * width] = dc * input * (1.0 - candidate * candidate);
    d_gates[gate + 3 * width] = d_hidden * tanh_cell * output * (1.0 - output);
    d_cell[at.state()] = dc * forget;
}
