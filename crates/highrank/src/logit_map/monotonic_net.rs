//! The monotonic network of Ganea et al., *Breaking the Softmax Bottleneck via Learnable Monotonic
//! Pointwise Non-linearities*, ICML 2019, eq. 14.

use burn::backend::Backend;
use burn::module::{Module, Param};
use burn::tensor::{Device, Distribution, Tensor};
use highrank_kernels::Floats;
use highrank_kernels::precision::wide;

use super::contract::{MapModule, PortableMap, at_least_one, element, required};
use crate::error::HeadError;
use crate::math::{inverse_softplus, sigmoid, softplus};

/// A learnable increasing function, a sum of rising sigmoids:
///
/// `f(z) = Σ_i softplus(v_i) σ(softplus(u_i) z + bias_i) + offset`
///
/// Ganea et al., ICML 2019, eq. 14 (arXiv 1902.08077). Evaluated unit by unit, so no `[N, V, units]` tensor exists.
/// It starts close to `f(z) = z` on about [−4, 4]: unit centres spread evenly there, steepness one over their
/// distance, and heights that sum to the interval's width.
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

/// Half the width of the interval on which a fresh network resembles the identity.
const INITIAL_REACH: f64 = 4.0;

impl MonotonicNet {
    /// Number of sigmoid units, at least 1.
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

    fn new(function: Function, device: &Device) -> Self {
        let Function { units } = function;
        let spacing = 2.0 * INITIAL_REACH / units as f64;
        // The logistic function rises from 12 % to 88 % over four units of its argument.
        let steepness = 2.0 / spacing;
        let centers: Vec<f64> = (0..units).map(|i| -INITIAL_REACH + (i as f64 + 0.5) * spacing).collect();
        let bias: Vec<f32> = centers.iter().map(|center| (-steepness * center) as f32).collect();
        // A little noise keeps equal units from learning in lockstep.
        let noisy = |value: f64| {
            Param::from_tensor(Tensor::random([units], Distribution::Normal(value, 0.01), device))
        };
        Self {
            raw_height: noisy(inverse_softplus(spacing)),
            raw_steepness: noisy(inverse_softplus(steepness)),
            bias: Param::from_tensor(Tensor::from_floats(bias.as_slice(), device)),
            offset: Param::from_tensor(Tensor::full([1], -INITIAL_REACH, device)),
        }
    }

    fn function(&self) -> Function {
        Function { units: self.units() }
    }

    /// In the type of sums: rounded to half precision, a height would be off by more than the parameter that it is made of.
    fn packed_params(&self) -> Option<Tensor<1>> {
        let widened = |param: &Param<Tensor<1>>| {
            let value = Floats::from(param.val());
            let dtype = wide(value.dtype());
            value.cast(dtype)
        };
        let height = softplus(widened(&self.raw_height));
        let steepness = softplus(widened(&self.raw_steepness));
        let parts = vec![height, steepness, widened(&self.bias), widened(&self.offset)];
        Some(Floats::cat(parts, 0).tensor())
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
        at_least_one("units", self.units)
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

#[cfg(all(test, feature = "flex"))]
mod tests {
    use super::*;

    #[test]
    fn a_fresh_network_resembles_the_identity() {
        let device = Device::flex();
        let function = Function { units: 16 };
        let net = MonotonicNet::new(function, &device);
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
