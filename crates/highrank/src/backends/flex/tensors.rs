//! Tensors as kernels read them: row-major, on slices, in the type of sums or as factors of products.

use core::ops::Range;
use std::mem;

use burn::backend::Flex;
use burn::tensor::{DType, bf16};
use burn_flex::FlexTensor;
use highrank_kernels::Floats;
use highrank_kernels::cpu::{Buffer, Factor, Matrix, Real, into_contiguous, slice};

/// The values of a matrix, row-major: in the type of sums, or in bf16, of which no widened copy is made.
#[derive(Debug, Clone, Copy)]
pub(super) enum Stored<'a, T> {
    Wide(&'a [T]),
    Short(&'a [bf16]),
}

impl<'a, T: Real> Stored<'a, T> {
    /// # Panics
    /// If the tensor has another type, or is not contiguous.
    pub(super) fn new(tensor: &'a FlexTensor) -> Self {
        match tensor.dtype() {
            DType::BF16 => Self::Short(tensor.as_slice().expect("a contiguous tensor")),
            _ => Self::Wide(slice(tensor)),
        }
    }

    /// Some of the rows, of `columns` values each.
    pub(super) fn rows(self, rows: Range<usize>, columns: usize) -> Self {
        let span = rows.start * columns..rows.end * columns;
        match self {
            Self::Wide(values) => Self::Wide(&values[span]),
            Self::Short(values) => Self::Short(&values[span]),
        }
    }

    /// The matrix with so many columns.
    pub(super) fn factor(self, rows: usize, columns: usize) -> Factor<'a, T> {
        match self {
            Self::Wide(values) => Factor::Wide(Matrix::new(values, rows, columns)),
            Self::Short(values) => Factor::Short(Matrix::new(values, rows, columns)),
        }
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

/// The tensor of a buffer's values, of one dimension or two.
///
/// # Panics
/// If the shape has another number of elements.
pub(super) fn tensor_of<T: Real>(buffer: Buffer<T>, shape: &[usize]) -> Floats<Flex> {
    Floats::new(match *shape {
        [rows, columns] => buffer.into_tensor([rows, columns]),
        _ => buffer.into_tensor([shape.iter().product()]),
    })
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
