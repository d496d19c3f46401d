//! What tests of kernels share: the backends, inputs, results.

use burn::backend::Backend;
use burn::tensor::TensorData;
use burn_fusion::Fusion;

use super::{CubeBackend, CubeDevice};
use crate::tensor::{Floats, Ints};

/// The backend without fusion.
pub type Plain = CubeBackend;

/// The backend with fusion.
pub type Fused = Fusion<CubeBackend>;

/// Whichever WebGPU adapter there is; the first NVIDIA GPU where that is all this was built for.
pub fn device() -> CubeDevice {
    #[cfg(feature = "wgpu")]
    return CubeDevice::Wgpu(Default::default());
    #[cfg(not(feature = "wgpu"))]
    return CubeDevice::Cuda(Default::default());
}

/// Values in about ±1 from the index alone.
pub fn spread<B, const D: usize>(shape: [usize; D], seed: usize) -> Floats<B>
where
    B: Backend<Device = CubeDevice>,
{
    let values = (0..shape.iter().product::<usize>())
        .map(|i| ((i + 31 * seed) * 7919 % 1009) as f32 / 504.0 - 1.0)
        .collect::<Vec<_>>();
    Floats::from_data(TensorData::new(values, shape), &device())
}

/// A vector of integers.
pub fn integers<B: Backend<Device = CubeDevice>>(values: &[i32]) -> Ints<B> {
    Ints::from_data(TensorData::new(values.to_vec(), [values.len()]), &device())
}

/// The elements of a tensor, row-major.
pub fn values<B: Backend>(tensor: Floats<B>) -> Vec<f32> {
    tensor.into_data().try_to_vec().expect("a tensor of f32")
}
