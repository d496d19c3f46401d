//! The hidden states of a run of tokens, and where they stood.

use std::sync::Arc;

use burn::tensor::{Device, Int, Tensor, TensorData};
use highrank_kernels::Floats;

/// Hidden states in a row, with what is known of the dimensions that they had.
#[derive(Debug, Clone)]
pub(crate) struct Tokens {
    /// `[N', H]`
    pub(super) hidden: Floats,
    /// The dimensions before the features, of N tokens in all.
    pub(super) leading: Vec<usize>,
    /// The tokens' numbers among the N; `None` if they are all.
    pub(super) kept: Option<Arc<[u32]>>,
    /// Of the latent contexts, in place of a drawn one.
    pub(super) latent_mask: Option<Tensor<2>>,
}

impl Tokens {
    /// All tokens of `[.., H]`.
    pub(crate) fn all<const D: usize>(hidden: Tensor<D>) -> Self {
        let dims = hidden.dims();
        let (leading, width) = (dims[..D - 1].to_vec(), dims[D - 1]);
        let tokens = leading.iter().product();
        Self { hidden: hidden.reshape([tokens, width]).into(), leading, kept: None, latent_mask: None }
    }

    /// Those of all tokens that are listed by number. Nothing else of the tensor is read, and the gradient of
    /// the others is exactly 0.
    pub(crate) fn keeping(self, kept: Arc<[u32]>) -> Self {
        let numbers = Self::numbers(&kept, &Device::new(self.hidden.device()));
        Self { hidden: self.hidden.select(0, numbers.into()), kept: Some(kept), ..self }
    }

    /// The dimensions before the features.
    pub(crate) fn leading(&self) -> &[usize] {
        &self.leading
    }

    /// The same tokens with other hidden states.
    pub(crate) fn map_hidden(self, of: impl FnOnce(Floats) -> Floats) -> Self {
        Self { hidden: of(self.hidden), ..self }
    }

    /// The same tokens with a mask `[sequences, K·d]` for the latent contexts, in place of a drawn one: see
    /// [`OutputHead::with_latent_mask`](crate::OutputHead::with_latent_mask).
    pub(crate) fn with_latent_mask(self, latent_mask: Option<Tensor<2>>) -> Self {
        Self { latent_mask, ..self }
    }

    /// `[N', H]`
    pub(crate) fn hidden(self) -> Floats {
        self.hidden
    }

    /// A list of tokens as a tensor.
    pub(crate) fn numbers(kept: &[u32], device: &Device) -> Tensor<1, Int> {
        let numbers: Vec<i64> = kept.iter().map(|token| i64::from(*token)).collect();
        Tensor::from_data(TensorData::new(numbers, [kept.len()]), device)
    }
}
