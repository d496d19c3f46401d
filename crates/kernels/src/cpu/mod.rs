//! Building blocks of native CPU kernels on Burn's Flex backend.
//!
//! Public for crates that bring their own kernels; an application has no use for it.

#[cfg(any(target_arch = "x86_64", test))]
// Elsewhere the tests alone use it, and not all of it.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
mod bf16;
mod blocked;
mod buffer;
mod few_columns;
mod few_rows;
mod lanes;
mod matrix;
mod panels;
mod product;
mod real;
mod rounding;
mod threads;
mod vectorised;
mod vectors;

pub use buffer::{Buffer, clear};
pub use few_columns::FewColumns;
pub use lanes::{BLOCK, LANES};
pub use matrix::{Factor, Matrix};
pub use panels::Panels;
pub use product::multiply;
pub use real::{Real, sigmoid, softplus, softplus_and_sigmoid, tanh};
pub use rounding::{as_short, shorten};
pub use threads::{share, share_with};

use burn::backend::Flex;
use burn::tensor::TensorData;
use burn_flex::FlexTensor;

use crate::tensor::Floats;

/// The elements of a contiguous tensor.
///
/// # Panics
/// If the tensor has another float type, because the inputs of a kernel must share one, or is not contiguous.
pub fn slice<T: Real>(tensor: &FlexTensor) -> &[T] {
    assert_eq!(tensor.dtype(), T::dtype(), "all inputs of an operation must have the same float type");
    tensor.as_slice().expect("a contiguous tensor")
}

/// Runs `work` on a thread of the pool, so that handing out parts of it wakes no sleeping thread each time.
pub fn in_pool<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    rayon::scope(|_| work())
}

/// A tensor that owns `values`, row-major.
///
/// # Panics
/// If the shape has another number of elements.
pub fn tensor<T: Real, const D: usize>(values: Vec<T>, shape: [usize; D]) -> FlexTensor {
    FlexTensor::from_data(TensorData::new(values, shape))
}

/// The primitive of a tensor in row-major order, copied only if it is not so already. It is the only owner of its memory if the
/// tensor was.
pub fn into_contiguous(tensor: Floats<Flex>) -> FlexTensor {
    tensor.into_primitive().to_contiguous()
}
