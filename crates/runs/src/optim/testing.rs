//! A module for tests.

use burn::module::{Module, Param};
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor};

#[derive(Module, Debug)]
pub struct Pair {
    pub weight: Param<Tensor<2>>,
    pub bias: Param<Tensor<1>>,
}

pub fn pair_on(device: &Device) -> Pair {
    Pair {
        weight: Param::from_tensor(Tensor::from_data([[1.0, -2.0]], device)),
        bias: Param::from_tensor(Tensor::from_data([4.0], device)),
    }
}

pub fn pair() -> Pair {
    pair_on(&Device::flex().autodiff())
}

pub fn grads(module: &Pair, weight: [f32; 2], bias: f32) -> GradientsParams {
    let device = Device::flex();
    let mut grads = GradientsParams::new();
    grads.register(module.weight.id, Tensor::<2>::from_data([weight], &device));
    grads.register(module.bias.id, Tensor::<1>::from_data([bias], &device));
    grads
}

pub fn values(module: &Pair) -> Vec<f64> {
    let (weight, bias) = (module.weight.to_data(), module.bias.to_data());
    weight.iter::<f64>().chain(bias.iter::<f64>()).collect()
}
