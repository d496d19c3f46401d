//! Sums and maxima over the units of a cube, a power of two, in the same order in every run.

use cubecl::prelude::*;
use highrank_kernels::gpu::MOST_UNITS;

/// Where a maximum starts: WGSL has no infinity.
pub(super) const LOWEST: f32 = f32::MIN;

/// Memory in which the units of a cube add up.
#[cube]
pub(super) fn shared_row() -> Shared<[f32]> {
    Shared::<[f32]>::new_slice(comptime!(MOST_UNITS as usize))
}

/// The sum of `x` over the cube's units, on all of them.
#[cube]
pub(super) fn cube_sum(x: f32, shared: &mut Shared<[f32]>) -> f32 {
    shared[UNIT_POS_X as usize] = x;
    sync_cube();
    let mut half = CUBE_DIM_X / 2;
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
pub(super) fn cube_max(x: f32, shared: &mut Shared<[f32]>) -> f32 {
    shared[UNIT_POS_X as usize] = x;
    sync_cube();
    let mut half = CUBE_DIM_X / 2;
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

/// The lowest word of the units whose value is the maximum, as a float, on all of them.
#[cube]
pub(super) fn cube_lowest_word(value: f32, max: f32, word: u32, shared: &mut Shared<[f32]>) -> f32 {
    let mut negative = LOWEST.runtime();
    if value == max {
        negative = -f32::cast_from(word);
    }
    -cube_max(negative, shared)
}
