//! The decoder's bias, and the words that it masks.

use burn_flex::FlexTensor;
use highrank_kernels::cpu::{Buffer, Real, slice};

use crate::ops::MASKING_BIAS;

/// The bias with finite numbers only.
pub(super) struct Vocabulary<T> {
    bias: Bias<T>,
    /// The masked words, in order.
    pub(super) masked: Vec<usize>,
}

enum Bias<T> {
    None,
    Given(FlexTensor),
    Copied(Buffer<T>),
}

impl<T: Real> Vocabulary<T> {
    /// Reads the bias. That of masked words becomes 0: whatever a map makes of their logits then is a number.
    pub(super) fn new(bias: Option<FlexTensor>) -> Self {
        let Some(bias) = bias else { return Self { bias: Bias::None, masked: vec![] } };
        let values: &[T] = slice(&bias);
        let is_masked = |bias: &T| *bias <= T::of(MASKING_BIAS);
        let masked: Vec<_> = (0..values.len()).filter(|word| is_masked(&values[*word])).collect();
        if masked.is_empty() {
            return Self { bias: Bias::Given(bias), masked };
        }
        let mut copy = Buffer::of(values);
        masked.iter().for_each(|word| copy[*word] = T::ZERO);
        Self { bias: Bias::Copied(copy), masked }
    }

    pub(super) fn bias(&self) -> Option<&[T]> {
        match &self.bias {
            Bias::None => None,
            Bias::Given(bias) => Some(slice(bias)),
            Bias::Copied(bias) => Some(bias),
        }
    }
}
