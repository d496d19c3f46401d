//! What native GPU kernels on Burn's CubeCL backends are made of: products, memory for their results, sizes of launches,
//! and the way through Burn's fusion.
//!
//! Public for crates that bring their own kernels; an application has no use for it.

pub mod fused;
mod memory;
mod product;
#[cfg(all(test, feature = "wgpu"))]
pub(crate) mod testing;

pub(crate) use memory::memory_budget;
pub use memory::memory_bytes;
pub use product::{product, rounded};

pub use burn_cubecl::CubeBackend;
#[cfg(feature = "cuda")]
pub use cubecl::cuda::CudaRuntime;
#[cfg(feature = "wgpu")]
pub use cubecl::wgpu::WgpuRuntime;

use burn::tensor::backend::Backend;
use burn::tensor::{DType, Shape, Tensor};
use burn_cubecl::CubeRuntime;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::ops::numeric::empty_device_dtype;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::{CubeCount, CubeDim};

use crate::autodiff::unwrap;

/// Most cubes of a launch along one axis that every API takes.
const MAX_CUBES: usize = 65_535;

/// The row-major memory of a tensor, copied only if it is not so already.
pub fn contiguous<R, B, const D: usize>(tensor: Tensor<B, D>) -> CubeTensor<R>
where
    R: CubeRuntime,
    B: Backend<FloatTensorPrimitive = CubeTensor<R>>,
{
    into_contiguous(unwrap(tensor))
}

/// Memory without values, of the shape, on the device of `like`.
pub fn empty<R: CubeRuntime, const D: usize>(
    like: &CubeTensor<R>,
    shape: [usize; D],
    dtype: DType,
) -> CubeTensor<R> {
    empty_device_dtype(like.client.clone(), like.device.clone(), Shape::new(shape), dtype)
}

/// One cube for each of `count` pieces of work, or as many as a launch may have: a kernel strides over the rest.
pub fn one_cube_each(count: usize) -> CubeCount {
    CubeCount::Static(count.clamp(1, MAX_CUBES) as u32, 1, 1)
}

/// Cubes of `units` units for one unit for each of `count` pieces of work, or as many as a launch may have.
pub fn one_unit_each(count: usize, units: u32) -> (CubeCount, CubeDim) {
    (one_cube_each(count.div_ceil(units as usize)), CubeDim::new_1d(units))
}
