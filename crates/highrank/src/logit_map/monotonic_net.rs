//! The monotonic network of Ganea et al., *Breaking the Softmax Bottleneck via Learnable Monotonic
//! Pointwise Non-linearities*, ICML 2019, eq. 14.

use burn::backend::Backend;
use burn::module::{Module, Param};
use burn::tensor::{Distribution, Tensor, TensorCreationOptions};
use highrank_kernels::Floats;

use super::contract::{MapModule, PortableMap, element, required, widened};
use crate::checks::TensorChecks;
use crate::error::{HeadError, in_range};
use crate::math::{inverse_softplus, sigmoid, softplus};

/// A learnable increasing function, a sum of rising sigmoids:
///
/// `f(z) = Σ_i softplus(v_i) σ(softplus(u_i) z + bias_i) + offset`
///
/// Ganea et al., ICML 2019, eq. 14 (arXiv 1902.08077). Evaluated unit by unit, so no `[N, V, units]` tensor exists.
/// It starts close to `f(z) = z` on about [−4, 4]: unit centres spread evenly there, steepness two over their
/// distance, and heights that sum to the interval's width. `u` and `v` have normal noise on them, with a standard deviation of 0.01.
///
/// Packed parameters: `softplus(v_i)`, `softplus(u_i)` and `bias_i` of each unit, then the offset.
#[derive(Module, Debug)]
pub struct MonotonicNet {
    /// `v`, shape `[units]`: a unit rises by `softplus(v_i)`.
    pub raw_height: Param<Tensor<1>>,
    /// `u`, shape `[units]`: a unit's steepness is `softplus(u_i)`.
    pub raw_steepness: Param<Tensor<1>>,
    /// `bias`, shape `[units]`.
    pub bias: Param<Tensor<1>>,
    /// `offset`, shape `[1]`.
    pub offset: Param<Tensor<1>>,
}

/// Most units that a [`MonotonicNet`] may have.
const MAX_UNITS: usize = 1_000_000;

/// Half the width of the interval on which a fresh network resembles the identity.
const INITIAL_REACH: f64 = 4.0;

impl MonotonicNet {
    /// Number of sigmoid units, 1 to 1,000,000.
    pub fn units(&self) -> usize {
        self.bias.shape().num_elements()
    }
}

/// The map without its parameters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Function {
    /// Number of sigmoid units.
    pub(crate) units: usize,
}

impl MapModule for MonotonicNet {
    type Function = Function;

    fn new(function: Function, on: TensorCreationOptions) -> Self {
        let Function { units } = function;
        let spacing = 2.0 * INITIAL_REACH / units as f64;
        // The logistic function rises from 12 % to 88 % over four units of its argument.
        let steepness = 2.0 / spacing;
        let centers: Vec<f64> = (0..units).map(|i| -INITIAL_REACH + (i as f64 + 0.5) * spacing).collect();
        let bias: Vec<f32> = centers.iter().map(|center| (-steepness * center) as f32).collect();
        // A little noise keeps equal units from learning in lockstep.
        let noisy = |value: f64| {
            Param::from_tensor(Tensor::random([units], Distribution::Normal(value, 0.01), on.clone()))
        };
        Self {
            raw_height: noisy(inverse_softplus(spacing)),
            raw_steepness: noisy(inverse_softplus(steepness)),
            bias: Param::from_tensor(Tensor::from_data(bias.as_slice(), on.clone())),
            offset: Param::from_tensor(Tensor::full([1], -INITIAL_REACH, on)),
        }
    }

    fn function(&self) -> Function {
        Function { units: self.units() }
    }

    fn check(&self, checks: &TensorChecks) -> Result<(), HeadError> {
        let units = [self.units()];
        checks.param("the monotonic network's raw_height", &self.raw_height, units)?;
        checks.param("the monotonic network's raw_steepness", &self.raw_steepness, units)?;
        checks.param("the monotonic network's bias", &self.bias, units)?;
        checks.param("the monotonic network's offset", &self.offset, [1])
    }

    /// In the type of sums: rounded to half precision, a height would be off by more than the parameter that it is made of.
    fn packed_params(&self) -> Option<Tensor<1>> {
        let [height, steepness, bias, offset] =
            widened([&self.raw_height, &self.raw_steepness, &self.bias, &self.offset]);
        Some(Floats::cat(vec![softplus(height), softplus(steepness), bias, offset], 0).tensor())
    }
}

impl Function {
    /// Height, steepness and bias of unit `i`.
    fn unit<B: Backend>(self, params: &Floats<B>, i: usize) -> [Floats<B>; 3] {
        [0, self.units, 2 * self.units].map(|part| element(params, part + i))
    }
}

impl PortableMap for Function {
    fn validate(self) -> Result<(), HeadError> {
        in_range("units", self.units as f64, "1 to 1,000,000", 1.0..=MAX_UNITS as f64)
    }

    fn num_params(self) -> usize {
        3 * self.units + 1
    }

    fn apply<B: Backend>(self, z: Floats<B>, table: Option<&Floats<B>>) -> Floats<B> {
        let params = required(table);
        let start = z.zeros_like() + element(params, 3 * self.units);
        (0..self.units).fold(start, |sum, i| {
            let [height, steepness, bias] = self.unit(params, i);
            sum + sigmoid(z.clone() * steepness + bias) * height
        })
    }

    /// With `t = σ(s z + b)` and `t' = t (1 − t)`: `∂z = a s t'`, `∂a = t`, `∂s = a z t'`, `∂b = a t'`, `∂offset = 1`.
    fn vjp<B: Backend>(
        self,
        z: Floats<B>,
        table: Option<&Floats<B>>,
        g: Floats<B>,
    ) -> (Floats<B>, Option<Floats<B>>) {
        let params = required(table);
        let mut dz = z.zeros_like();
        let (mut d_height, mut d_steepness, mut d_bias) = (vec![], vec![], vec![]);
        for i in 0..self.units {
            let [height, steepness, bias] = self.unit(params, i);
            let t = sigmoid(z.clone() * steepness.clone() + bias);
            d_height.push((g.clone() * t.clone()).sum());
            let inner = g.clone() * t.clone() * (-t).add_scalar(1.0) * height;
            d_steepness.push((inner.clone() * z.clone()).sum());
            d_bias.push(inner.clone().sum());
            dz = dz + inner * steepness;
        }
        let parts = [d_height, d_steepness, d_bias, vec![g.sum()]].concat();
        (dz, Some(Floats::cat(parts, 0)))
    }
}

/// A block of logits at a time, unit by unit. What each unit makes of a logit is kept until the block's gradient is made.
#[cfg(feature = "flex")]
mod cpu {
    use core::f64::consts::LOG2_E;

    use highrank_kernels::cpu::{LANES, Real};

    use super::super::cpu::{CpuBody, Layout, OnCpu};
    use super::Function;

    /// `Σ_i h_i σ(s_i z + b_i) + c`.
    pub(crate) struct Body<T> {
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
    const BLOCK: usize = 4 * LANES;

    impl OnCpu for Function {
        type Body<T> = Body<T>;

        fn on_cpu<T: Real>(self, params: &[T]) -> Body<T> {
            let count = self.units;
            let unit = |i: usize| {
                let [height, steepness, bias] = [params[i], params[count + i], params[2 * count + i]];
                Unit {
                    height,
                    slope: height * steepness,
                    rate: T::of(-steepness.wide() * LOG2_E),
                    shift: T::of(-bias.wide() * LOG2_E),
                }
            };
            Body { units: (0..count).map(unit).collect(), offset: params[3 * count] }
        }
    }

    impl<T: Real> CpuBody<T> for Body<T> {
        /// Keeps the logit, and the sigmoid of each unit. The sums are those of each unit, and that of `g`.
        fn layout(&self) -> Layout {
            let units = self.units.len();
            let (parts, num_sums) = (1 + units, SUMS * units + 1);
            Layout { block: BLOCK, parts, num_sums, lanes: LANES, ..Layout::NOTHING }
        }

        /// Takes a row; of the parts only those of one block, an array of [`BLOCK`] values for each.
        #[inline(always)]
        fn apply(&self, row: &mut [T], parts: &mut [T]) {
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

        #[inline(always)]
        fn pull_back(&self, parts: &[T], block: &mut [T], lanes: &mut [T]) {
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

        fn finish(&self, _params: &[T], sums: &[T], d_params: &mut [T]) {
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
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use super::*;
    use burn::tensor::Device;

    #[test]
    fn a_fresh_network_resembles_the_identity() {
        let device = Device::flex();
        let function = Function { units: 16 };
        let net = MonotonicNet::new(function, (&device).into());
        let z: Vec<f32> = (-30..=30).map(|i| i as f32 / 10.0).collect();
        let input = Tensor::<1>::from_floats(z.as_slice(), &device).reshape([1, z.len()]);
        let params = net.packed_params().map(Floats::from);
        let y = function.apply(Floats::from(input), params.as_ref());
        let y = y.into_data().try_to_vec::<f32>().unwrap();
        for (z, y) in z.iter().zip(&y) {
            assert!((z - y).abs() < 0.35, "f({z}) = {y}");
        }
        assert!(y.windows(2).all(|pair| pair[0] < pair[1]), "not increasing: {y:?}");
    }
}
