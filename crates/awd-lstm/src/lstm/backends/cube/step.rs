//! One launch a step: the recurrent product, and what happens to every unit of every sequence after it.
//!
//! A cube owns a few units of the layer in some sequences. It multiplies the rows of their gates, which no other cube reads for
//! these sequences, and so has all that these units wait for. Its units of the device share the terms of each sum: neighbours
//! read neighbouring terms of four rows, and of the states of all sequences. Sums of a unit meet those of the others in shared
//! memory, in an order that is the same in every run.
//!
//! On a device that says how many processors it has, as CUDA's do, a cube is alone on its processor and waits for memory most of
//! the time. There the states come into shared memory first, as many as it holds, and every unit asks for many weights before it
//! uses the first.
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

/// Terms whose weights a unit reads before it adds any, where the states are in shared memory.
const FAR_AHEAD: u32 = 8;

/// Places in shared memory, of all sequences, for which a unit reads states before it writes any.
const STAGED_TOGETHER: usize = 4;

/// Fewest units of a cube, in which the units that share a sum are as many as [`VALUES`].
const FEWEST_UNITS: u32 = OWNED * VALUES as u32;

/// Memory that every WebGPU device gives a cube to share, in bytes.
const LEAST_SHARED: usize = 16_384;

// Sums need no more.
const _: () = {
    let numbers = (VALUES + MOST_SEQUENCES.div_ceil(TOGETHER)) * MOST_UNITS as usize;
    assert!(numbers * size_of::<f32>() <= LEAST_SHARED);
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
    /// Units that share a sum, each with every so many-th term.
    slices: u32,
    /// Terms that a unit reads ahead.
    ahead: u32,
    /// How often it does so while the same states are in shared memory; 0 where it reads them from the device's memory.
    groups: u32,
}

/// The two products of a step.
#[derive(Clone, Copy, Debug)]
pub(super) enum Direction {
    Forward,
    Backward,
}

impl Sizes {
    /// None if the device has too few units, or there are no sequences or too many.
    pub(super) fn new(
        like: &CubeTensor,
        direction: Direction,
        batch: usize,
        units: usize,
        cut: u32,
    ) -> Option<Self> {
        let limits = Limits::of(like);
        let cube_units = limits.cube_units();
        let parts = batch.div_ceil(MOST_SEQUENCES);
        if cube_units < FEWEST_UNITS || !(1..=MAX_CUBES).contains(&parts) {
            return None;
        }
        // Parts of about the same size.
        let sequences = batch.div_ceil(parts);
        let (slices, terms) = match direction {
            // A group of units for each unit of the layer.
            Direction::Forward => (cube_units / OWNED, units),
            // A group of units for as many units of the layer as it multiplies rows.
            Direction::Backward => (cube_units / OWNED * ROWS as u32, 4 * units),
        };
        let sizes = Self { cube_units, sequences: sequences as u32, cut, slices, ahead: AHEAD, groups: 0 };
        Some(match limits.processors {
            Some(_) => sizes.with_staged_states(terms, limits.shared_bytes),
            None => sizes,
        })
    }

    /// With the states of as many of the `terms` in shared memory as fit into so many bytes.
    fn with_staged_states(self, terms: usize, shared_bytes: usize) -> Self {
        let room = shared_bytes.max(LEAST_SHARED) / size_of::<f32>() - met_length(self);
        // Terms of a unit.
        let fitting = (room as u32 / (self.sequences * self.slices)).max(1);
        let wanted = (terms as u32).div_ceil(self.slices).max(1);
        let ahead = FAR_AHEAD.min(fitting).min(wanted);
        Self { ahead, groups: (fitting / ahead).min(wanted.div_ceil(ahead)), ..self }
    }

    /// The cubes and units of a launch.
    pub(super) fn grid(&self, batch: usize, units: usize) -> (CubeCount, CubeDim) {
        let parts = batch.div_ceil(self.sequences as usize) as u32;
        let count = CubeCount::Static(units.div_ceil(OWNED as usize) as u32, parts, 1);
        (count, CubeDim::new_1d(self.cube_units))
    }
}

/// Terms whose states are in shared memory at a time.
fn staged(sizes: Sizes) -> u32 {
    sizes.slices * sizes.ahead * sizes.groups
}

/// Numbers of the memory in which first states are, and then sums meet.
fn shared_length(sizes: Sizes) -> usize {
    (VALUES * sizes.cube_units as usize).max((sizes.sequences * staged(sizes)) as usize)
}

/// Numbers of the memory that has a value a unit of each pair of sequences.
fn met_length(sizes: Sizes) -> usize {
    pairs(sizes) * sizes.cube_units as usize
}

/// Pairs of sequences, the last of which may be half of one.
fn pairs(sizes: Sizes) -> usize {
    (sizes.sequences as usize).div_ceil(TOGETHER)
}

/// A unit's part of the products of [`ROWS`] rows with the states of all sequences:
/// `sums[row, i] = Σ x[sequence i, k] · matrix[row, k]` over every `slices`-th `k`.
///
/// - of_row: where the rows of the matrix begin
/// - of_sequence: where the states of the sequences begin
#[cube]
fn multiply(
    x: &[f32],
    of_sequence: &Array<u32>,
    matrix: &[f32],
    of_row: &Array<u32>,
    shared: &mut Shared<[f32]>,
    terms: u32,
    #[comptime] sizes: Sizes,
) -> Array<f32> {
    let mut sums = zeros(sizes);
    let own = UNIT_POS_X % sizes.slices;
    if comptime!(sizes.groups == 0) {
        let mut term = own;
        while term + comptime!((sizes.ahead - 1) * sizes.slices) < terms {
            add_from_memory(x, of_sequence, matrix, of_row, &mut sums, term, terms, sizes.ahead, sizes);
            term += comptime!(sizes.ahead * sizes.slices);
        }
        while term < terms {
            add_from_memory(x, of_sequence, matrix, of_row, &mut sums, term, terms, 1u32, sizes);
            term += sizes.slices;
        }
    } else {
        let mut from = 0u32;
        while from < terms {
            stage(x, of_sequence, shared, from, terms, sizes);
            sync_cube();
            #[unroll]
            for group in 0..sizes.groups {
                let at = own + comptime!(group * sizes.ahead * sizes.slices);
                add_staged(&*shared, matrix, of_row, &mut sums, at, from, terms, sizes);
            }
            // The next states, or the sums, take the place of these.
            sync_cube();
            from += comptime!(staged(sizes));
        }
    }
    sums
}

/// `count` terms of the rows, from `term` on. Beyond the last it is that one again.
#[cube]
fn read_weights(
    matrix: &[f32],
    of_row: &Array<u32>,
    term: u32,
    terms: u32,
    #[comptime] count: u32,
    #[comptime] sizes: Sizes,
) -> Array<f32> {
    let mut read = Array::<f32>::new(comptime!(count as usize * ROWS));
    #[unroll]
    for ahead in 0..count {
        let at = u32::min(term + comptime!(ahead * sizes.slices), terms - 1);
        #[unroll]
        for row in 0..ROWS {
            read[comptime!(ahead as usize * ROWS + row)] = matrix[(of_row[row] + at) as usize];
        }
    }
    read
}

/// Adds a term of sequence `i` to the sums of all rows.
#[cube]
fn add_term(
    sums: &mut Array<f32>,
    state: f32,
    weights: &Array<f32>,
    #[comptime] ahead: u32,
    #[comptime] i: usize,
) {
    #[unroll]
    for row in 0..ROWS {
        sums[comptime!(i * ROWS + row)] += state * weights[comptime!(ahead as usize * ROWS + row)];
    }
}

/// Adds `count` terms, the first of them number `term`.
#[cube]
#[allow(clippy::too_many_arguments)]
fn add_from_memory(
    x: &[f32],
    of_sequence: &Array<u32>,
    matrix: &[f32],
    of_row: &Array<u32>,
    sums: &mut Array<f32>,
    term: u32,
    terms: u32,
    #[comptime] count: u32,
    #[comptime] sizes: Sizes,
) {
    let weights = read_weights(matrix, of_row, term, terms, count, sizes);
    #[unroll]
    for i in 0..comptime!(sizes.sequences as usize) {
        #[unroll]
        for ahead in 0..count {
            let at = of_sequence[i] + term + comptime!(ahead * sizes.slices);
            add_term(sums, short(x[at as usize], sizes.cut), &weights, ahead, i);
        }
    }
}

/// Adds the terms that a unit reads ahead, the first of them number `at` in shared memory. Beyond the last term are zeros there,
/// whatever weight they meet.
#[cube]
#[allow(clippy::too_many_arguments)]
fn add_staged(
    shared: &Shared<[f32]>,
    matrix: &[f32],
    of_row: &Array<u32>,
    sums: &mut Array<f32>,
    at: u32,
    from: u32,
    terms: u32,
    #[comptime] sizes: Sizes,
) {
    let weights = read_weights(matrix, of_row, from + at, terms, sizes.ahead, sizes);
    #[unroll]
    for ahead in 0..sizes.ahead {
        #[unroll]
        for i in 0..comptime!(sizes.sequences as usize) {
            let place = comptime!(i as u32 * staged(sizes) + ahead * sizes.slices);
            add_term(sums, shared[(at + place) as usize], &weights, ahead, i);
        }
    }
}

/// Copies the states of the cube's sequences from term `from` on to shared memory, rounded as a product reads them, and zeros
/// beyond the last term.
#[cube]
fn stage(
    x: &[f32],
    of_sequence: &Array<u32>,
    shared: &mut Shared<[f32]>,
    from: u32,
    terms: u32,
    #[comptime] sizes: Sizes,
) {
    let sequences = comptime!(sizes.sequences as usize);
    let mut first = UNIT_POS_X;
    while first < comptime!(staged(sizes)) {
        let mut read = Array::<f32>::new(comptime!(STAGED_TOGETHER * sizes.sequences as usize));
        #[unroll]
        for place in 0..STAGED_TOGETHER {
            let term = from + first + comptime!(place as u32 * sizes.cube_units);
            let within = u32::min(term, terms - 1);
            #[unroll]
            for i in 0..sequences {
                let state = short(x[(of_sequence[i] + within) as usize], sizes.cut);
                read[comptime!(place * sequences + i)] = select(term < terms, state, 0.0f32);
            }
        }
        #[unroll]
        for place in 0..STAGED_TOGETHER {
            let at = first + comptime!(place as u32 * sizes.cube_units);
            if at < comptime!(staged(sizes)) {
                #[unroll]
                for i in 0..sequences {
                    shared[comptime!(i * staged(sizes) as usize) + at as usize] =
                        read[comptime!(place * sequences + i)];
                }
            }
        }
        first += comptime!(STAGED_TOGETHER as u32 * sizes.cube_units);
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
fn product(met: &Shared<[f32]>, group: u32, row: u32, i: u32, #[comptime] sizes: Sizes) -> f32 {
    let value = row * comptime!(TOGETHER as u32) + i % comptime!(TOGETHER as u32);
    let mut at = i / comptime!(TOGETHER as u32) * sizes.cube_units + group * sizes.slices + value;
    let mut sum = 0.0f32;
    #[unroll]
    for _ in 0..comptime!(sizes.slices as usize / VALUES) {
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
    let owned = CUBE_POS_X * OWNED;
    let first = CUBE_POS_Y * sizes.sequences;
    let unit = u32::min(owned + UNIT_POS_X / sizes.slices, units - 1);
    let mut of_row = Array::<u32>::new(ROWS);
    #[unroll]
    for gate in 0..ROWS {
        of_row[gate] = (comptime!(gate as u32) * units + unit) * units;
    }
    let mut shared = Shared::<[f32]>::new_slice(comptime!(shared_length(sizes)));
    let mut met = Shared::<[f32]>::new_slice(comptime!(met_length(sizes)));
    let sums = if comptime!(is_first) {
        let of_sequence = starts(0u32, first, batch, units, sizes);
        multiply(h0, &of_sequence, recurrent, &of_row, &mut shared, units, sizes)
    } else {
        let of_sequence = starts((step - 1) * batch * units, first, batch, units, sizes);
        multiply(&*packed, &of_sequence, recurrent, &of_row, &mut shared, units, sizes)
    };
    meet(&sums, &mut shared, &mut met, sizes);

    let mut item = UNIT_POS_X;
    while item < comptime!(OWNED * sizes.sequences) {
        let (group, i) = (item % OWNED, item / OWNED);
        let at = At { step, sequence: first + i, unit: owned + group, batch, units };
        if at.unit < units && at.sequence < batch {
            unit::forward(
                &at,
                product(&met, group, 0u32, i, sizes),
                product(&met, group, 1u32, i, sizes),
                product(&met, group, 2u32, i, sizes),
                product(&met, group, 3u32, i, sizes),
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
    let owned = CUBE_POS_X * OWNED;
    let first = CUBE_POS_Y * sizes.sequences;
    let mut met = Shared::<[f32]>::new_slice(comptime!(met_length(sizes)));
    if comptime!(!is_last) {
        let terms = 4 * units;
        let group = UNIT_POS_X / sizes.slices;
        let mut of_row = Array::<u32>::new(ROWS);
        #[unroll]
        for row in 0..ROWS {
            let unit = owned + group * comptime!(ROWS as u32) + comptime!(row as u32);
            of_row[row] = u32::min(unit, units - 1) * terms;
        }
        let of_sequence = starts((step + 1) * batch * terms, first, batch, terms, sizes);
        let mut shared = Shared::<[f32]>::new_slice(comptime!(shared_length(sizes)));
        let sums = multiply(&*d_gates, &of_sequence, recurrent_t, &of_row, &mut shared, terms, sizes);
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
                d_hidden += product(&met, own / rows, own % rows, i, sizes);
                let d_after = d_cell[at.state()];
                unit::backward(&at, d_hidden, d_after, c0, gates, cells, d_cell, d_gates);
            }
        }
        item += sizes.cube_units;
    }
}
