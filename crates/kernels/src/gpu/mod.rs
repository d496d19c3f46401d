//! Building blocks of native GPU kernels on Burn's CubeCL backend: products, memory for their results, launch sizes, sums in a
//! fixed order, and operations in the stream of Burn's fusion.
//!
//! Public for crates that bring their own kernels; an application has no use for it.

pub mod fixed;
pub mod fused;
mod limits;
mod memory;
mod product;
pub mod rounding;
mod split_k;
#[cfg(any(feature = "wgpu", feature = "cuda"))]
#[doc(hidden)]
pub mod testing;

pub use limits::{Limits, MAX_BUFFERS, MAX_CUBES, MOST_UNITS, one_cube_each, one_unit_each};
pub use memory::{memory_budget, memory_bytes};
pub use product::{left_to_round, product, rounded};

pub use burn_cubecl::tensor::CubeTensor;
pub use burn_cubecl::{CubeBackend, CubeDevice};

use burn::tensor::{DType, Shape};
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::ops::numeric::empty_device_contiguous_dtype;

use crate::tensor::{Floats, Ints};

/// Largest index of a kernel. Indices have 32 bits and stay below 2³¹, so that the last stride cannot overflow.
const MAX_INDEX: usize = i32::MAX as usize;

/// Most rows of `width` values that the 32-bit indices of a kernel reach, so what a launch reads and writes together must be
/// cut into chunks of no more: `rows · width < 2³¹`.
///
/// # Panics
/// If they do not reach through one row.
pub fn most_rows(width: usize) -> usize {
    assert!(width <= MAX_INDEX, "a row of {width} values, but a kernel's indices go up to {MAX_INDEX}");
    MAX_INDEX / width.max(1)
}

/// Checks the tensor `what` before a launch: a kernel trusts the sizes that it is told, so any other tensor would let it
/// read or write beyond its memory.
///
/// # Panics
/// If the shape or the type is another one, with both in the message, or the memory is not row-major or too small.
#[track_caller]
pub fn expect<const D: usize>(tensor: &CubeTensor, what: &str, shape: [usize; D], dtype: DType) {
    let got = tensor.meta.shape();
    assert!(
        got[..] == shape && tensor.dtype == dtype,
        "{what}: the kernel needs {shape:?} in {dtype:?}, but the tensor has {:?} in {:?}",
        &got[..],
        tensor.dtype,
    );
    // Of memory that several tensors share, what is this one's.
    let (needed, bytes) = ((got.num_elements() * dtype.size()) as u64, tensor.handle.size_in_used());
    assert!(
        tensor.is_contiguous() && bytes >= needed,
        "{what}: the kernel needs {needed} bytes of row-major memory, but has {bytes} bytes with the strides {:?} for {shape:?}",
        tensor.meta.strides(),
    );
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_stay_within_the_indices() {
        for width in [1, 2, 3, 10_000, 262_144, MAX_INDEX] {
            let rows = most_rows(width);
            assert!(rows * width < 1 << 31 && (rows + 1) * width >= 1 << 31, "{width}");
        }
        assert_eq!(most_rows(0), MAX_INDEX);
    }

    #[test]
    #[should_panic(expected = "a row of 2147483648 values, but a kernel's indices go up to 2147483647")]
    fn a_row_beyond_the_indices_is_refused() {
        most_rows(1 << 31);
    }

    #[cfg(any(feature = "wgpu", feature = "cuda"))]
    mod on_a_device {
        use super::*;
        use crate::gpu::testing::{Plain, spread};

        fn memory() -> CubeTensor {
            contiguous(spread::<Plain, 2>([3, 5], 1))
        }

        #[test]
        #[should_panic(expected = "bias: the kernel needs [5] in F32, but the tensor has [3, 5] in F32")]
        fn another_shape_is_refused() {
            expect(&memory(), "bias", [5], DType::F32);
        }

        #[test]
        #[should_panic(expected = "bias: the kernel needs [3, 5] in F16, but the tensor has [3, 5] in F32")]
        fn another_type_is_refused() {
            expect(&memory(), "bias", [3, 5], DType::F16);
        }

        #[test]
        #[should_panic(expected = "bias: the kernel needs 60 bytes of row-major memory, but has")]
        fn a_transpose_is_refused() {
            let transpose = spread::<Plain, 2>([3, 5], 1).transpose().into_primitive();
            expect(&transpose, "bias", [5, 3], DType::F32);
        }

        #[test]
        #[should_panic(expected = "bias: the kernel needs 60 bytes of row-major memory, but has 40 bytes")]
        fn the_end_of_shared_memory_is_refused_where_it_is_too_short() {
            let memory = memory();
            let before = memory.handle.size_in_used() - 40;
            let handle = memory.handle.clone().offset_start(before);
            expect(&CubeTensor { handle, ..memory }, "bias", [3, 5], DType::F32);
        }
    }
}
