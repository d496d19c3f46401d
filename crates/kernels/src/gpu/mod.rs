//! What native GPU kernels on Burn's CubeCL backend are made of: products, memory for their results, sizes of launches, sums
//! in a fixed order, and the way through Burn's fusion.
//!
//! Public for crates that bring their own kernels; an application has no use for it.

pub mod fixed;
pub mod fused;
#[cfg(all(test, feature = "wgpu"))]
mod fused_tests;
mod memory;
mod product;
#[cfg(feature = "wgpu")]
#[doc(hidden)]
pub mod testing;

pub use memory::{memory_budget, memory_bytes};
pub use product::{product, rounded};

pub use burn_cubecl::tensor::CubeTensor;
pub use burn_cubecl::{CubeBackend, CubeDevice};

use burn::tensor::{DType, Shape};
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::ops::numeric::empty_device_contiguous_dtype;
use cubecl::prelude::{CubeCount, CubeDim};

use crate::tensor::{Floats, Ints};

/// Most cubes of a launch along one axis that every API takes.
const MAX_CUBES: usize = 65_535;

/// The row-major memory of a tensor, copied only if it is not so already.
pub fn contiguous(tensor: Floats<CubeBackend>) -> CubeTensor {
    into_contiguous(tensor.into_primitive())
}

/// As [`contiguous`], of integers.
pub fn contiguous_ints(tensor: Ints<CubeBackend>) -> CubeTensor {
    into_contiguous(tensor.into_primitive())
}

/// Row-major memory without values, of the shape, on the device of `like`.
pub fn empty<const D: usize>(like: &CubeTensor, shape: [usize; D], dtype: DType) -> CubeTensor {
    empty_device_contiguous_dtype(like.client.clone(), like.device.clone(), Shape::new(shape), dtype)
}

/// One cube for each of `count` pieces of work, or as many as a launch may have: a kernel strides over the rest.
pub fn one_cube_each(count: usize) -> CubeCount {
    CubeCount::Static(count.clamp(1, MAX_CUBES) as u32, 1, 1)
}

/// Cubes of `units` units for one unit for each of `count` pieces of work, or as many as a launch may have.
pub fn one_unit_each(count: usize, units: u32) -> (CubeCount, CubeDim) {
    (one_cube_each(count.div_ceil(units as usize)), CubeDim::new_1d(units))
}
