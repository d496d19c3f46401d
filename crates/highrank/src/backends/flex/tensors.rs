//! Tensors as kernels read them: row-major, on slices, in the type of sums or as factors of products.

use std::mem;

use burn::backend::Flex;
use burn::tensor::DType;
use highrank_kernels::Floats;
use highrank_kernels::cpu::{Buffer, Factor, Matrix, Real, into_contiguous, slice};

/// A [row-major](row_major) matrix as a factor of products: in the type of sums, or in bf16, of which no widened copy is made.
///
/// # Panics
/// If it has another type, or is not contiguous.
pub(super) fn factor<T: Real>(matrix: &Floats<Flex>) -> Factor<'_, T> {
    let (tensor, [rows, columns]) = (matrix.primitive(), matrix.dims());
    match tensor.dtype() {
        DType::BF16 => {
            Factor::Short(Matrix::new(tensor.as_slice().expect("a contiguous tensor"), rows, columns))
        }
        _ => Factor::Wide(Matrix::new(slice(tensor), rows, columns)),
    }
}

/// A factor of products whose sums have the type `sums`: cast to it, but for bf16 where sums are in f32.
pub(super) fn as_factor(tensor: Floats<Flex>, sums: DType) -> Floats<Flex> {
    match (tensor.dtype(), sums) {
        (DType::BF16, DType::F32) => tensor,
        _ => tensor.cast(sums),
    }
}

/// The tensor in row-major order, copied only if it is not so already.
pub(super) fn row_major(tensor: Floats<Flex>) -> Floats<Flex> {
    Floats::new(into_contiguous(tensor))
}

/// The values of a [row-major](row_major) tensor.
///
/// # Panics
/// If it has another float type.
pub(super) fn values<T: Real>(tensor: &Floats<Flex>) -> &[T] {
    slice(tensor.primitive())
}

/// A buffer for the gradient of a tensor, of so many tokens. The first tokens to come write a matrix, the others add: a large
/// one takes long to clear.
pub(super) fn gradient_buffer<T: Real>(tensor: &Floats<Flex>, tokens: usize) -> Buffer<T> {
    let shape = tensor.shape();
    match shape.num_dims() == 2 && tokens > 0 {
        true => Buffer::new(shape.num_elements()),
        false => Buffer::zeros(shape.num_elements()),
    }
}

/// # Panics
/// If a tensor has more values than the others ask for, or less.
pub(super) fn assert_length(name: &str, tensor: Option<&Floats<Flex>>, expected: usize) {
    let Some(tensor) = tensor else { return };
    assert_eq!(
        tensor.num_elements(),
        expected,
        "likelihood: values of {name}, of shape {:?}",
        tensor.shape()
    );
}

/// Takes the first values of a slice, or as many as there are.
pub(super) fn take<'a, X>(slice: &mut &'a mut [X], count: usize) -> &'a mut [X] {
    let count = count.min(slice.len());
    let (taken, rest) = mem::take(slice).split_at_mut(count);
    *slice = rest;
    taken
}
