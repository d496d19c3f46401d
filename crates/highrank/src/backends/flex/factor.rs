//! Factors of products as their tensors store them.

use core::ops::Range;

use burn::backend::Flex;
use burn::tensor::{DType, bf16};
use burn_flex::FlexTensor;
use highrank_kernels::Floats;
use highrank_kernels::cpu::{Factor, Matrix, Real, slice};

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
