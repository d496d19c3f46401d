//! Weights for tests.

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::{Tensor, TensorData};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// A module whose parameters are uniform in ±`bound`, always the same ones: the random numbers of the CPU's backend are those of all
/// threads, so with them a test would depend on the others.
pub(crate) fn with_fixed_weights<M: Module>(module: M, bound: f64) -> M {
    module.map(&mut Draw { rng: Pcg64Mcg::seed_from_u64(11), bound })
}

struct Draw {
    rng: Pcg64Mcg,
    bound: f64,
}

impl ModuleMapper for Draw {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        param.map(|old| {
            let count = old.shape().num_elements();
            let values: Vec<f32> =
                (0..count).map(|_| self.rng.random_range(-self.bound..self.bound) as f32).collect();
            let new =
                Tensor::from_data(TensorData::new(values, old.shape()), &old.device().without_autodiff());
            if old.device().is_autodiff() { Tensor::from_inner(new).require_grad() } else { new }
        })
    }
}
