//! What native CPU kernels on Burn's Flex backend are made of: float types with vectorised elementary functions, matrix
//! products on slices, and the way from tensors to slices and back.
//!
//! Public for crates that bring their own kernels; an application has no use for it.

mod product;
mod real;

pub use product::{Product, Strided};
pub use real::{Real, sigmoid, softplus, tanh};

use burn::backend::flex::FlexTensor;
use burn::tensor::TensorData;

/// The elements of a contiguous tensor.
///
/// # Panics
/// If the tensor has another float type, because the inputs of a kernel must share one, or is not contiguous.
pub fn slice<T: Real>(tensor: &FlexTensor) -> &[T] {
    assert_eq!(tensor.dtype(), T::dtype(), "all inputs of an operation must have the same float type");
    tensor.as_slice().expect("a contiguous tensor")
}

/// A tensor that owns `values`, row-major.
///
/// # Panics
/// If the shape has another number of elements.
pub fn tensor<T: Real, const D: usize>(values: Vec<T>, shape: [usize; D]) -> FlexTensor {
    FlexTensor::from_data(TensorData::new(values, shape))
}
