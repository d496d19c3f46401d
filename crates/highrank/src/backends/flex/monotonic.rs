//! The monotonic net on slices: see [`crate::logit_map::MonotonicNet`] for the formula.
//!
//! A block of logits at a time, unit by unit. What each unit makes of a logit is kept until the block's gradient is made.

use core::f64::consts::LOG2_E;

use highrank_kernels::cpu::{LANES, Real};

/// `Σ_i h_i σ(s_i z + b_i) + c`.
pub(super) struct MonotonicNet<T> {
    units: Vec<Unit<T>>,
    /// `c`
    offset: T,
}

/// One unit.
#[derive(Clone, Copy)]
struct Unit<T> {
    /// `h`
    height: T,
    /// `h s`
    slope: T,
    /// `−s log₂ e` and `−b log₂ e`, as the sigmoid is `1 / (1 + 2^(rate · z + shift))`.
    rate: T,
    shift: T,
}

/// Bounds of the exponent of two: a sigmoid below 2⁻⁶² is 2⁻⁶².
const LOW: f64 = -126.0;
const HIGH: f64 = 62.0;

/// Sums that a unit has of a row: those of `g t`, `g t (1 − t) z` and `g t (1 − t)`, where `t` is the unit's sigmoid.
const SUMS: usize = 3;

/// Logits of a block: with all that is kept of them, and all partial sums, they stay in the first-level cache.
pub(super) const BLOCK: usize = 4 * LANES;

impl<T: Real> MonotonicNet<T> {
    /// By its parameters: heights, steepnesses, biases and the offset.
    pub(super) fn new(params: &[T]) -> Self {
        let count = params.len() / 3;
        let unit = |i: usize| {
            let [height, steepness, bias] = [params[i], params[count + i], params[2 * count + i]];
            Unit {
                height,
                slope: height * steepness,
                rate: T::of(-steepness.wide() * LOG2_E),
                shift: T::of(-bias.wide() * LOG2_E),
            }
        };
        Self { units: (0..count).map(unit).collect(), offset: params[3 * count] }
    }

    pub(super) fn num_params(&self) -> usize {
        3 * self.units.len() + 1
    }

    /// Those of each unit, and that of `g`.
    pub(super) fn num_sums(&self) -> usize {
        SUMS * self.units.len() + 1
    }

    /// The logit, and the sigmoid of each unit.
    pub(super) fn parts(&self) -> usize {
        1 + self.units.len()
    }

    /// `f(z)` of a row, in place. `parts` is empty, or takes the parts of a block, one array of [`BLOCK`] for each.
    #[inline(always)]
    pub(super) fn apply(&self, row: &mut [T], parts: &mut [T]) {
        for block in row.chunks_mut(BLOCK) {
            // Copies, of which the compiler knows that they do not overlap with anything.
            let (mut z, mut sums) = ([T::ZERO; BLOCK], [self.offset; BLOCK]);
            z[..block.len()].copy_from_slice(block);
            if let Some(([kept], sigmoids)) = parts.as_chunks_mut::<BLOCK>().0.split_at_mut_checked(1) {
                *kept = z;
                for (unit, t) in self.units.iter().zip(sigmoids) {
                    for ((sum, z), t) in sums.iter_mut().zip(&z).zip(t) {
                        *t = unit.sigmoid(*z);
                        *sum = unit.height.mul_add(*t, *sum);
                    }
                }
            } else {
                for unit in &self.units {
                    for (sum, z) in sums.iter_mut().zip(&z) {
                        *sum = unit.height.mul_add(unit.sigmoid(*z), *sum);
                    }
                }
            }
            block.copy_from_slice(&sums[..block.len()]);
        }
    }

    /// Turns the gradient of a block's mapped logits into that of the logits, and adds to the sums, each of them [`LANES`]
    /// partial ones.
    #[inline(always)]
    pub(super) fn pull_back(&self, parts: &[T], block: &mut [T], lanes: &mut [T]) {
        let Some(([z], sigmoids)) = parts.as_chunks::<BLOCK>().0.split_at_checked(1) else { return };
        let (of_units, of_g) = lanes.as_chunks_mut::<LANES>().0.as_chunks_mut::<SUMS>();
        // Copies here and below, of which the compiler knows that they do not overlap with anything.
        let (mut g, mut slopes) = ([T::ZERO; BLOCK], [T::ZERO; BLOCK]);
        g[..block.len()].copy_from_slice(block);
        for ((unit, t), sums) in self.units.iter().zip(sigmoids).zip(of_units) {
            let [mut d_height, mut d_steepness, mut d_bias] = *sums;
            for (group, slopes) in slopes.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
                let of = |values: &[T; BLOCK]| values.as_chunks::<LANES>().0[group];
                let (g, z, t, mut slope) = (of(&g), of(z), of(t), *slopes);
                for i in 0..LANES {
                    let bend = (-t[i]).mul_add(t[i], t[i]);
                    let bent = g[i] * bend;
                    d_height[i] = g[i].mul_add(t[i], d_height[i]);
                    d_steepness[i] = bent.mul_add(z[i], d_steepness[i]);
                    d_bias[i] += bent;
                    slope[i] = unit.slope.mul_add(bend, slope[i]);
                }
                *slopes = slope;
            }
            *sums = [d_height, d_steepness, d_bias];
        }
        for g in g.as_chunks::<LANES>().0 {
            of_g.as_flattened_mut().iter_mut().zip(g).for_each(|(sum, g)| *sum += *g);
        }
        for ((to, g), slope) in block.iter_mut().zip(&g).zip(&slopes) {
            *to = *g * *slope;
        }
    }

    /// The gradient of the parameters, by the sums of all rows.
    pub(super) fn finish(&self, sums: &[T], d_params: &mut [T]) {
        let (of_units, of_g) = sums.as_chunks::<SUMS>();
        let count = self.units.len();
        for (i, (unit, [d_height, d_steepness, d_bias])) in self.units.iter().zip(of_units).enumerate() {
            d_params[i] = *d_height;
            d_params[count + i] = unit.height * *d_steepness;
            d_params[2 * count + i] = unit.height * *d_bias;
        }
        d_params[3 * count] = of_g[0];
    }
}

impl<T: Real> Unit<T> {
    /// `σ(s z + b)`, within bounds.
    #[inline(always)]
    fn sigmoid(&self, z: T) -> T {
        let power = z.mul_add(self.rate, self.shift).clamped(T::of(LOW), T::of(HIGH));
        T::ONE / (T::ONE + power.exp2_of_bounded())
    }
}
