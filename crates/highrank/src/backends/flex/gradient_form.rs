//! [`GradientForm`]: whether gradients of logits are unscaled, scaled, or rounded to bf16 where products read them.

use burn::tensor::DType;
use highrank_kernels::Precision;
use highrank_kernels::cpu::{Factor, Matrix, Real, as_short, shorten};

/// How the products find the gradients of a chunk's logits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GradientForm {
    /// Each row must be multiplied with its scale.
    Unscaled,
    /// As they are.
    Scaled,
    /// Rounded to bf16, in the first half of each row's memory: the two products read half as much, and neither rounds it
    /// again. The row is in cache when that is done.
    Short,
}

impl GradientForm {
    /// At a precision.
    pub(super) fn at<T: Real>(precision: Precision) -> Self {
        match (precision, T::dtype()) {
            (Precision::Full, _) => Self::Unscaled,
            (Precision::Bf16, DType::F32) => Self::Short,
            _ => Self::Scaled,
        }
    }

    /// Brings rows of unscaled gradients into this form.
    pub(super) fn finish<T: Real>(self, rows: &mut [T], scales: &[T]) {
        let vocab = rows.len() / scales.len().max(1);
        let rows = rows.chunks_exact_mut(vocab.max(1)).zip(scales);
        match self {
            Self::Unscaled => {}
            Self::Scaled => rows.for_each(|(row, scale)| row.iter_mut().for_each(|g| *g *= *scale)),
            Self::Short => rows.for_each(|(row, scale)| shorten(row, *scale)),
        }
    }

    /// The gradients as a factor.
    pub(super) fn factor<T: Real>(self, logits: &[T], rows: usize, vocab: usize) -> Factor<'_, T> {
        match self {
            Self::Unscaled | Self::Scaled => Factor::Wide(Matrix::new(logits, rows, vocab)),
            Self::Short => {
                Factor::Short(Matrix::new(as_short(logits), rows, 2 * vocab)).block(0..rows, 0..vocab)
            }
        }
    }
}
