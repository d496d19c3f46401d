//! What tests of kernels share: the two backends, inputs, results.

use burn::tensor::backend::Backend;
use burn::tensor::{Tensor, TensorData};

use super::{CubeBackend, WgpuRuntime};

/// Any WebGPU adapter, without fusion.
pub(crate) type Plain = CubeBackend<WgpuRuntime, f32, i32, u32>;

/// The same with fusion.
pub(crate) type Fused = burn::backend::Wgpu;

/// Values in about ±1 from the index alone.
pub(crate) fn spread<B: Backend, const D: usize>(shape: [usize; D], seed: usize) -> Tensor<B, D> {
    let values = (0..shape.iter().product::<usize>())
        .map(|i| ((i + 31 * seed) * 7919 % 1009) as f32 / 504.0 - 1.0)
        .collect::<Vec<_>>();
    Tensor::from_data(TensorData::new(values, shape), &Default::default())
}

pub(crate) fn values<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> Vec<f32> {
    tensor.into_data().to_vec().unwrap()
}
