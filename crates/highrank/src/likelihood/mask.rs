//! Masked words: what a bias of −∞ means.

use burn::backend::Backend;
use highrank_kernels::Floats;

use crate::ops::{Kernels, Likelihood, MASKED, MASKING_BIAS};

/// Which words of the vocabulary count.
///
/// A masked word's bias is read as 0, so its logit and whatever `f` makes of it are finite numbers; then it is pushed to
/// [`MASKED`], where its probability is 0 and so are its gradients.
#[derive(Debug, Clone)]
pub(crate) struct Vocabulary<B: Backend> {
    /// The bias with 0 for masked words, `[1, V]`.
    pub(crate) bias: Option<Floats<B>>,
    /// None if no word is masked.
    pub(crate) masked: Option<Masked<B>>,
    /// `V`.
    size: usize,
}

/// Constants a word, `[1, V]`.
#[derive(Debug, Clone)]
pub(crate) struct Masked<B: Backend> {
    /// [`MASKED`] for masked words, 0 for others.
    pub(crate) low: Floats<B>,
    /// −∞ for masked words, 0 for others.
    pub(crate) minus_infinity: Floats<B>,
    /// 0 for masked words, 1 for others.
    pub(crate) unmasked: Floats<B>,
}

impl<B: Kernels> Vocabulary<B> {
    /// Where reading back costs nothing, it is found out whether there are masked words; elsewhere there might be.
    pub(crate) fn new(input: &Likelihood<Floats<B>>) -> Self {
        let size = input.vocab();
        let Some(bias) = &input.bias else { return Self { bias: None, masked: None, size } };
        let row = |x: Floats<B>| x.reshape([1, size]);
        let constant = bias.clone().detach();
        if B::is_cpu(&bias.device()) {
            let any = constant.clone().into_data().iter::<f64>().any(|bias| bias <= MASKING_BIAS);
            if !any {
                return Self { bias: Some(row(bias.clone())), masked: None, size };
            }
        }
        let is_masked = constant.at_most(MASKING_BIAS);
        let low = constant.zeros_like().fill_where(is_masked.clone(), MASKED);
        let finite = constant.clone().fill_where(is_masked.clone(), 0.0);
        let masked = Masked {
            minus_infinity: row(constant - finite),
            unmasked: row(low.zeros_like().add_scalar(1.0).fill_where(is_masked.clone(), 0.0)),
            low: row(low),
        };
        let bias = bias.clone().fill_where(is_masked, 0.0);
        Self { bias: Some(row(bias)), masked: Some(masked), size }
    }

    /// 0 for masked words, 1 for others, `[1, V]`.
    pub(crate) fn unmasked(&self, like: &Floats<B>) -> Floats<B> {
        match &self.masked {
            Some(masked) => masked.unmasked.clone(),
            None => Floats::full([1, self.size], 1.0, &like.device(), like.dtype()),
        }
    }
}
