//! The three visits of a chunk's logits.
//!
//! | kernel | a cube's work | a unit's work |
//! |---|---|---|
//! | [`statistics`] | a row of logits, then the next of its rows | every `CUBE_DIM`-th word of it |
//! | [`responsibilities`] | | a token's components, one after the other |
//! | [`gradient`] | a row of logits, then the next of its rows | every `CUBE_DIM`-th word of it |
//!
//! The same inputs give the same bits: a sum within a row is a tree in shared memory, and the sums of a PLIF's pieces are
//! whole numbers ([`fixed`]), which come out the same in any order.

use cubecl::prelude::*;
use highrank_kernels::gpu::fixed;

use super::map::{self, Map, Numbers};

/// Units of a cube that shares a row; a power of two for the tree.
pub(super) const ROW_UNITS: u32 = 256;

/// Where a maximum starts: WGSL has no infinity.
const LOWEST: f32 = f32::MIN;

/// What is known of a row: at `2r` the log-sum-exp of its mapped logits, at `2r + 1` the target's log-probability and
/// later the row's weight in the gradient.
pub(super) const ROW_VALUES: usize = 2;

/// What a row adds to the sums of a PLIF's first and last piece, whose distances have no bound: moment and gradient of
/// either.
pub(super) const OUTER_VALUES: usize = 4;

/// Which inputs there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Form {
    pub(super) map: Map,
    pub(super) bias: bool,
}

/// The sum of `x` over the cube's units, on all of them.
#[cube]
fn cube_sum(x: f32, shared: &mut Shared<[f32]>) -> f32 {
    shared[UNIT_POS_X as usize] = x;
    sync_cube();
    let mut half = comptime!(ROW_UNITS / 2).runtime();
    while half > 0 {
        if UNIT_POS_X < half {
            shared[UNIT_POS_X as usize] += shared[(UNIT_POS_X + half) as usize];
        }
        sync_cube();
        half /= 2;
    }
    let sum = shared[0];
    sync_cube();
    sum
}

/// The maximum of `x` over the cube's units, on all of them.
#[cube]
fn cube_max(x: f32, shared: &mut Shared<[f32]>) -> f32 {
    shared[UNIT_POS_X as usize] = x;
    sync_cube();
    let mut half = comptime!(ROW_UNITS / 2).runtime();
    while half > 0 {
        if UNIT_POS_X < half {
            let other = shared[(UNIT_POS_X + half) as usize];
            if other > shared[UNIT_POS_X as usize] {
                shared[UNIT_POS_X as usize] = other;
            }
        }
        sync_cube();
        half /= 2;
    }
    let max = shared[0];
    sync_cube();
    max
}

/// `z` of a word: the product, and the bias where there is one.
#[cube]
fn logit(product: f32, bias: &[f32], word: usize, #[comptime] form: Form) -> f32 {
    if comptime!(form.bias) { product + bias[word] } else { product }
}

/// Log-sum-exp of every row's mapped logits, and the target's log-probability, in one visit.
#[cube(launch_unchecked)]
#[allow(clippy::too_many_arguments)]
pub(super) fn statistics<I: Numeric>(
    products: &[f32],
    bias: &[f32],
    table: &[f32],
    words: &[I],
    rows: &mut [f32],
    count: u32,
    vocab: u32,
    components: u32,
    numbers: Numbers,
    #[comptime] form: Form,
    #[define(I)] _dtype: ElemType,
) {
    let mut shared = Shared::<[f32]>::new_slice(ROW_UNITS as usize);
    let mut row = CUBE_POS_X;
    while row < count {
        let start = row as usize * vocab as usize;
        let mut max = LOWEST.runtime();
        let mut sum = 0.0f32;
        let mut word = UNIT_POS_X;
        while word < vocab {
            let z = logit(products[start + word as usize], bias, word as usize, form);
            let mapped = map::apply(z, table, &numbers, form.map);
            if mapped > max {
                sum *= (max - mapped).exp();
                max = mapped;
            }
            sum += (mapped - max).exp();
            word += ROW_UNITS;
        }
        let row_max = cube_max(max, &mut shared);
        let row_sum = cube_sum(sum * (max - row_max).exp(), &mut shared);
        if UNIT_POS_X == 0 {
            let lse = row_max + row_sum.ln();
            rows[ROW_VALUES * row as usize] = lse;
            let target = u32::cast_from(words[(row / components) as usize]);
            // A word outside of the vocabulary has no logit to read: its probability is 0.
            let mut at_target = LOWEST.runtime();
            if target < vocab {
                let z = logit(products[start + target as usize], bias, target as usize, form);
                at_target = map::apply(z, table, &numbers, form.map) - lse;
            }
            rows[ROW_VALUES * row as usize + 1] = at_target;
        }
        row += CUBE_COUNT_X;
    }
}

/// Cross-entropy of every token; where there is an upstream gradient, the weight `u γ_k` of each of its rows takes the
/// place of the target's log-probability.
#[cube(launch_unchecked)]
pub(super) fn responsibilities(
    rows: &mut [f32],
    log_prior: &[f32],
    upstream: &[f32],
    nll: &mut [f32],
    tokens: u32,
    components: u32,
    #[comptime] has_prior: bool,
    #[comptime] has_upstream: bool,
) {
    let mut token = ABSOLUTE_POS as u32;
    while token < tokens {
        let first = token as usize * components as usize;
        let mut max = LOWEST.runtime();
        for k in 0..components {
            let row = first + k as usize;
            let joint = joint(rows[ROW_VALUES * row + 1], log_prior, row, has_prior);
            if joint > max {
                max = joint;
            }
        }
        let mut sum = 0.0f32;
        for k in 0..components {
            let row = first + k as usize;
            sum += (joint(rows[ROW_VALUES * row + 1], log_prior, row, has_prior) - max).exp();
        }
        let log_prob = max + sum.ln();
        nll[token as usize] = -log_prob;
        if comptime!(has_upstream) {
            for k in 0..components {
                let row = first + k as usize;
                let joint = joint(rows[ROW_VALUES * row + 1], log_prior, row, has_prior);
                rows[ROW_VALUES * row + 1] = upstream[token as usize] * (joint - log_prob).exp();
            }
        }
        token += CUBE_COUNT_X * CUBE_DIM_X;
    }
}

/// `log π_k + log p_k(y)` of a row, whose target has the log-probability `at_target`.
#[cube]
fn joint(at_target: f32, log_prior: &[f32], row: usize, #[comptime] has_prior: bool) -> f32 {
    if comptime!(has_prior) { at_target + log_prior[row] } else { at_target }
}

/// `∂/∂z = w (softmax(f(z)) − onehot_y) f'(z)` with the row's weight `w`, in the place of the products. A PLIF's
/// gradients are summed by piece: in `sums` the moments `g (z − left)` and the gradients `g` of its inner pieces, in
/// units of the largest upstream gradient (and of a piece's width), in `outer` those of the first and last.
#[cube(launch_unchecked)]
// The negated comparison is what sees a NaN.
#[allow(clippy::too_many_arguments, clippy::neg_cmp_op_on_partial_ord)]
pub(super) fn gradient<I: Numeric>(
    products: &mut [f32],
    bias: &[f32],
    table: &[f32],
    words: &[I],
    rows: &[f32],
    largest: &[f32],
    sums: &[Atomic<u32>],
    outer: &mut [f32],
    count: u32,
    vocab: u32,
    components: u32,
    numbers: Numbers,
    #[comptime] form: Form,
    #[define(I)] _dtype: ElemType,
) {
    let mut shared = Shared::<[f32]>::new_slice(ROW_UNITS as usize);
    let mut row = CUBE_POS_X;
    while row < count {
        let start = row as usize * vocab as usize;
        let lse = rows[ROW_VALUES * row as usize];
        let weight = rows[ROW_VALUES * row as usize + 1];
        let target = u32::cast_from(words[(row / components) as usize]);
        let mut first_moment = 0.0f32;
        let mut first_gradient = 0.0f32;
        let mut last_moment = 0.0f32;
        let mut last_gradient = 0.0f32;
        let mut word = UNIT_POS_X;
        while word < vocab {
            let place = start + word as usize;
            let z = logit(products[place], bias, word as usize, form);
            let mut g = weight * (map::apply(z, table, &numbers, form.map) - lse).exp();
            if word == target {
                g -= weight;
            }
            products[place] = g * map::slope(z, table, &numbers, form.map);
            if comptime!(form.map == Map::Plif) {
                let piece = map::piece_of(z, &numbers);
                let distance = map::distance_of(z, piece, &numbers);
                let index = u32::cast_from(piece);
                let term = g / largest[0];
                // Whole numbers have no NaN: what is not a number goes to the first piece, in floats. Rounding may take a
                // term a little above 1.
                if index == 0 || !(term.abs() <= 2.0f32) {
                    first_moment += g * distance;
                    first_gradient += g;
                } else if index == numbers.pieces - 1 {
                    last_moment += g * distance;
                    last_gradient += g;
                } else {
                    fixed::add(sums, 2 * index as usize, term * (distance / numbers.delta));
                    fixed::add(sums, 2 * index as usize + 1, term);
                }
            }
            word += ROW_UNITS;
        }
        if comptime!(form.map == Map::Plif) {
            let first_moment = cube_sum(first_moment, &mut shared);
            let first_gradient = cube_sum(first_gradient, &mut shared);
            let last_moment = cube_sum(last_moment, &mut shared);
            let last_gradient = cube_sum(last_gradient, &mut shared);
            if UNIT_POS_X == 0 {
                let place = OUTER_VALUES * row as usize;
                outer[place] = first_moment;
                outer[place + 1] = first_gradient;
                outer[place + 2] = last_moment;
                outer[place + 3] = last_gradient;
            }
        }
        row += CUBE_COUNT_X;
    }
}

/// The gradient of a PLIF's table, slopes and then values, from the sums of [`gradient`] over all chunks.
#[cube(launch_unchecked)]
pub(super) fn table_gradient(
    sums: &[u32],
    outer: &[f32],
    largest: &[f32],
    d_table: &mut [f32],
    numbers: Numbers,
) {
    let mut piece = ABSOLUTE_POS as u32;
    while piece < numbers.pieces {
        let mut moment = fixed::value(sums, 2 * piece as usize) * numbers.delta * largest[0];
        let mut g = fixed::value(sums, 2 * piece as usize + 1) * largest[0];
        if piece == 0 {
            moment = outer[0];
            g = outer[1];
        } else if piece == numbers.pieces - 1 {
            moment = outer[2];
            g = outer[3];
        }
        d_table[piece as usize] = moment;
        d_table[(piece + numbers.pieces) as usize] = g;
        piece += CUBE_COUNT_X * CUBE_DIM_X;
    }
}
