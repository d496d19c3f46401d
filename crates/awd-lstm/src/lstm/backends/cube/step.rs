//! One launch a step: the recurrent product, and what happens to every unit of every sequence after it.
//!
//! A cube owns a few units of the layer in some sequences. It multiplies the rows of their gates, which no other cube reads for
//! these sequences, and so has all that these units wait for. Its units of the device share the terms of each sum: neighbours
//! read neighbouring terms of four rows, and of the states of all sequences. Sums of a unit meet those of the others in shared
//! memory, in an order that is the same in every run.
//!
//! A step reads what the step before it has written, and launches run in their order.

use cubecl::prelude::*;
use highrank_kernels::gpu::rounding::short;
use highrank_kernels::gpu::{CubeTensor, Limits, MAX_CUBES, MOST_UNITS};

use super::unit::{self, At};

/// Units of the layer that a cube owns: neighbours, so that what is read of one unit is read along with the others'.
const OWNED: u32 = 8;

/// Rows of the matrix that a unit of the device multiplies together: its layer unit's gates, or the gradients of as many units.
const ROWS: usize = 4;

/// Most sequences of a cube: as many sums as a unit can keep, [`ROWS`] for each.
const MOST_SEQUENCES: usize = 12;

/// Sequences whose sums are in shared memory at a time.
const TOGETHER: usize = 2;

/// Sums of a unit there.
const VALUES: usize = ROWS * TOGETHER;

/// Terms that a unit reads before it adds any.
const AHEAD: u32 = 2;

/// Fewest units of a cube, in which the units that share a sum are as many as [`VALUES`].
const FEWEST_UNITS: u32 = OWNED * VALUES as u32;

// The memory that a cube shares is what every WebGPU device has, or less.
const _: () = {
    let numbers = (VALUES + MOST_SEQUENCES.div_ceil(TOGETHER)) * MOST_UNITS as usize;
    assert!(numbers * size_of::<f32>() <= 16_384);
};

/// The sizes of a launch that its kernel is compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Sizes {
    /// Units of a cube.
    cube_units: u32,
    /// Sequences of a cube.
    sequences: u32,
    /// Binary digits that the hidden state and the gradients of gates lose before a product.
    cut: u32,
}

impl Sizes {
    /// None if the device has too few units, or there are no sequences or too many.
    pub(super) fn new(like: &CubeTensor, batch: usize, cut: u32) -> Option<Self> {
        let cube_units = Limits::of(like).cube_units();
        let parts = batch.div_ceil(MOST_SEQUENCES);
        let fits = cube_units >= FEWEST_UNITS && (1..=MAX_CUBES).contains(&parts);
        // Parts of about the same size.
        fits.then(|| Self { cube_units, sequences: batch.div_ceil(parts) as u32, cut })
    }

    /// The cubes and units of a launch.
    pub(super) fn grid(&self, batch: usize, units: usize) -> (CubeCount, CubeDim) {
        let parts = batch.div_ceil(self.sequences as usize) as u32;
        let count = CubeCount::Static(units.div_ceil(OWNED as usize) as u32, parts, 1);
        (count, CubeDim::new_1d(self.cube_units))
    }
}

/// Pairs of sequences, the last of which may be half of one.
fn pairs(sizes: Sizes) -> usize {
    (sizes.sequences as usize).div_ceil(TOGETHER)
}

/// Adds the terms of a slice: `sums[row, i] = Σ x[sequence i, k] · matrix[row, k]` over every `slices`-th `k`.
///
/// - of_row: where the rows of the matrix begin
/// - of_sequence: where the states of the sequences begin
#[cube]
#[allow(clippy::too_many_arguments)]
fn add_terms(
    x: &[f32],
    of_sequence: &Array<u32>,
    matrix: &[f32],
    of_row: &Array<u32>,
    sums: &mut Array<f32>,
    first: u32,
    terms: u32,
    #[comptime] slices: u32,
    #[comptime] sizes: Sizes,
) {
    let mut term = first;
    while term + comptime!((AHEAD - 1) * slices) < terms {
        add_some(x, of_sequence, matrix, of_row, sums, term, slices, AHEAD, sizes);
        term += comptime!(AHEAD * slices);
    }
    while term < terms {
        add_some(x, of_sequence, matrix, of_row, sums, term, slices, 1u32, sizes);
        term += slices;
    }
}

/// Adds `count` terms of a slice.
#[cube]
#[allow(clippy::too_many_arguments)]
fn add_some(
    x: &[f32],
    of_sequence: &Array<u32>,
    matrix: &[f32],
    of_row: &Array<u32>,
    sums: &mut Array<f32>,
    term: u32,
    #[comptime] slices: u32,
    #[comptime] count: u32,
    #[comptime] sizes: Sizes,
) {
    let mut read = Array::<f32>::new(comptime!(count as usize * ROWS));
    #[unroll]
    for ahead in 0..count {
        #[unroll]
        for row in 0..ROWS {
            let at = of_row[row] + term + comptime!(ahead * slices);
            read[comptime!(ahead as usize * ROWS + row)] = matrix[at as usize];
        }
    }
    #[unroll]
    for i in 0..comptime!(sizes.sequences as usize) {
        #[unroll]
        for ahead in 0..count {
            let at = of_sequence[i] + term + comptime!(ahead * slices);
            let state = short(x[at as usize], sizes.cut);
            #[unroll]
            for row in 0..ROWS {
                sums[comptime!(i * ROWS + row)] += state * read[comptime!(ahead as usize * ROWS + row)];
            }
        }
    }
}

/// Puts a unit's sums where those of all units meet: each of [`VALUES`] units adds one value of as many neighbours, which share
/// a sum. `shared` is their meeting place; `met` then has, of each pair of sequences, a value a unit.
#[cube]
fn meet(sums: &Array<f32>, shared: &mut Shared<[f32]>, met: &mut Shared<[f32]>, #[comptime] sizes: Sizes) {
    let value = UNIT_POS_X % comptime!(VALUES as u32);
    let neighbours = UNIT_POS_X - value;
    #[unroll]
    for pair in 0..comptime!(pairs(sizes)) {
        #[unroll]
        for row in 0..ROWS {
            #[unroll]
            for i in 0..TOGETHER {
                if comptime!(pair * TOGETHER + i < sizes.sequences as usize) {
                    let at = comptime!((row * TOGETHER + i) as u32 * sizes.cube_units) + UNIT_POS_X;
                    shared[at as usize] = sums[comptime!((pair * TOGETHER + i) * ROWS + row)];
                }
            }
        }
        sync_cube();
        let mut sum = 0.0f32;
        #[unroll]
        for i in 0..VALUES {
            // Each begins with another neighbour, so that no two read from one bank.
            let neighbour = neighbours + (value + comptime!(i as u32)) % comptime!(VALUES as u32);
            sum += shared[(value * sizes.cube_units + neighbour) as usize];
        }
        met[comptime!(pair as u32 * sizes.cube_units) as usize + UNIT_POS_X as usize] = sum;
        sync_cube();
    }
}

/// The product of row `row` of group `group` with the state of the cube's sequence number `i`.
#[cube]
fn product(
    met: &Shared<[f32]>,
    group: u32,
    row: u32,
    i: u32,
    #[comptime] slices: u32,
    #[comptime] sizes: Sizes,
) -> f32 {
    let value = row * comptime!(TOGETHER as u32) + i % comptime!(TOGETHER as u32);
    let mut at = i / comptime!(TOGETHER as u32) * sizes.cube_units + group * slices + value;
    let mut sum = 0.0f32;
    #[unroll]
    for _ in 0..comptime!(slices as usize / VALUES) {
        sum += met[at as usize];
        at += comptime!(VALUES as u32);
    }
    sum
}

/// Where the states of the cube's sequences begin in a tensor of rows of `terms` numbers, from `from` on. Beyond the last
/// sequence it is that one's again, whose sums nothing reads.
#[cube]
fn starts(from: u32, first: u32, batch: u32, terms: u32, #[comptime] sizes: Sizes) -> Array<u32> {
    let mut starts = Array::<u32>::new(comptime!(sizes.sequences as usize));
    #[unroll]
    for i in 0..comptime!(sizes.sequences as usize) {
        starts[i] = from + u32::min(first + comptime!(i as u32), batch - 1) * terms;
    }
    starts
}

/// A unit's sums before its first term.
#[cube]
fn zeros(#[comptime] sizes: Sizes) -> Array<f32> {
    let mut sums = Array::<f32>::new(comptime!(sizes.sequences as usize * ROWS));
    #[unroll]
    for i in 0..comptime!(sizes.sequences as usize * ROWS) {
        sums[i] = 0.0f32;
    }
    sums
}

/// Gates, cells and hidden states of step `step`. `gates` holds the input part and gets the gates after their sigmoid or tanh;
/// `recurrent` is `[4H, H]`. The state before the first step is `h0`, that before any other in `packed`.
#[cube(launch_unchecked)]
#[allow(clippy::too_many_arguments)]
pub(super) fn forward(
    recurrent: &[f32],
    h0: &[f32],
    c0: &[f32],
    gates: &mut [f32],
    cells: &mut [f32],
    packed: &mut [f32],
    step: u32,
    steps: u32,
    batch: u32,
    units: u32,
    #[comptime] is_first: bool,
    #[comptime] sizes: Sizes,
) {
    // A group of units of the device for each unit of the layer.
    let slices = comptime!(sizes.cube_units / OWNED);
    let owned = CUBE_POS_X * OWNED;
    let first = CUBE_POS_Y * sizes.sequences;
    let unit = u32::min(owned + UNIT_POS_X / slices, units - 1);
    let mut of_row = Array::<u32>::new(ROWS);
    #[unroll]
    for gate in 0..ROWS {
        of_row[gate] = (comptime!(gate as u32) * units + unit) * units;
    }
    let mut sums = zeros(sizes);
    if comptime!(is_first) {
        let of_sequence = starts(0u32, first, batch, units, sizes);
        add_terms(h0, &of_sequence, recurrent, &of_row, &mut sums, UNIT_POS_X % slices, units, slices, sizes);
    } else {
        let of_sequence = starts((step - 1) * batch * units, first, batch, units, sizes);
        add_terms(
            &*packed,
            &of_sequence,
            recurrent,
            &of_row,
            &mut sums,
            UNIT_POS_X % slices,
            units,
            slices,
            sizes,
        );
    }
    let mut shared = Shared::<[f32]>::new_slice(comptime!(VALUES * sizes.cube_units as usize));
    let mut met = Shared::<[f32]>::new_slice(comptime!(pairs(sizes) * sizes.cube_units as usize));
    meet(&sums, &mut shared, &mut met, sizes);

    let mut item = UNIT_POS_X;
    while item < comptime!(OWNED * sizes.sequences) {
        let (group, i) = (item % OWNED, item / OWNED);
        let at = At { step, sequence: first + i, unit: owned + group, batch, units };
        if at.unit < units && at.sequence < batch {
            unit::forward(
                &at,
                product(&met, group, 0u32, i, slices, sizes),
                product(&met, group, 1u32, i, slices, sizes),
                product(&met, group, 2u32, i, slices, sizes),
                product(&met, group, 3u32, i, slices, sizes),
                c0,
                gates,
                cells,
                packed,
                step == steps - 1,
            );
        }
        item += sizes.cube_units;
    }
}

/// Gradients of the gates of step `step` before their sigmoid or tanh. The last step `is_last`, and takes the gradient of the cell
/// state from the last row of `grad`; any other reads the gradients of the gates of the step after it, and `d_cell`, which goes
/// from the gradient of the cell state after the step to that before it. `recurrent_t` is `[H, 4H]`.
#[cube(launch_unchecked)]
#[allow(clippy::too_many_arguments)]
pub(super) fn backward(
    recurrent_t: &[f32],
    grad: &[f32],
    c0: &[f32],
    gates: &[f32],
    cells: &[f32],
    d_cell: &mut [f32],
    d_gates: &mut [f32],
    step: u32,
    batch: u32,
    units: u32,
    #[comptime] is_last: bool,
    #[comptime] sizes: Sizes,
) {
    // A group of units of the device for as many units of the layer as it multiplies rows.
    let slices = comptime!(sizes.cube_units / OWNED * ROWS as u32);
    let owned = CUBE_POS_X * OWNED;
    let first = CUBE_POS_Y * sizes.sequences;
    let mut met = Shared::<[f32]>::new_slice(comptime!(pairs(sizes) * sizes.cube_units as usize));
    if comptime!(!is_last) {
        let terms = 4 * units;
        let group = UNIT_POS_X / slices;
        let mut of_row = Array::<u32>::new(ROWS);
        #[unroll]
        for row in 0..ROWS {
            let unit = owned + group * comptime!(ROWS as u32) + comptime!(row as u32);
            of_row[row] = u32::min(unit, units - 1) * terms;
        }
        let of_sequence = starts((step + 1) * batch * terms, first, batch, terms, sizes);
        let mut sums = zeros(sizes);
        add_terms(
            &*d_gates,
            &of_sequence,
            recurrent_t,
            &of_row,
            &mut sums,
            UNIT_POS_X % slices,
            terms,
            slices,
            sizes,
        );
        let mut shared = Shared::<[f32]>::new_slice(comptime!(VALUES * sizes.cube_units as usize));
        meet(&sums, &mut shared, &mut met, sizes);
    }

    let mut item = UNIT_POS_X;
    while item < comptime!(OWNED * sizes.sequences) {
        let (own, i) = (item % OWNED, item / OWNED);
        let at = At { step, sequence: first + i, unit: owned + own, batch, units };
        if at.unit < units && at.sequence < batch {
            let mut d_hidden = grad[at.now()];
            if comptime!(is_last) {
                // The row after the last step's is the cell state's.
                let d_last = grad[at.now() + (batch * units) as usize];
                unit::backward(&at, d_hidden, d_last, c0, gates, cells, d_cell, d_gates);
            } else {
                let rows = comptime!(ROWS as u32);
                d_hidden += product(&met, own / rows, own % rows, i, slices, sizes);
                let d_after = d_cell[at.state()];
                unit::backward(&at, d_hidden, d_after, c0, gates, cells, d_cell, d_gates);
            }
        }
        item += sizes.cube_units;
    }
}
