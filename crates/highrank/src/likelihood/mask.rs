//! Masked words: what a bias of −∞ means.

use burn::backend::Backend;
use burn::tensor::DType;
use highrank_kernels::{Bools, Floats, Ints};

use crate::ops::{LikelihoodInput, MASKING_BIAS, is_cpu};

/// Which words of the vocabulary count.
///
/// A word is masked if its bias is at most [`MASKING_BIAS`], and by nothing else: a logit may be as low as its type allows. The
/// bias of a masked word is read as 0; what is computed of its logit is replaced wherever it could matter.
#[derive(Debug, Clone)]
pub(crate) struct Vocabulary<B: Backend> {
    /// The bias with 0 for masked words, `[1, V]`.
    pub(crate) bias: Option<Floats<B>>,
    /// None if no word is masked.
    pub(crate) masked: Option<Masked<B>>,
    /// `V`.
    size: usize,
}

/// The masked words.
#[derive(Debug, Clone)]
pub(crate) struct Masked<B: Backend> {
    /// True for masked words, `[1, V]`.
    words: Bools<B>,
    /// −∞ for masked words, 0 for others, `[1, V]`.
    minus_infinity: Floats<B>,
    /// 0 for masked words, 1 for others, `[1, V]`.
    unmasked: Floats<B>,
    /// 1 if all words are masked, else 0, `[1, 1]`.
    pub(crate) no_word_left: Floats<B>,
}

impl<B: Backend> Vocabulary<B> {
    /// Where reading back costs nothing, it is found out whether there are masked words; elsewhere there might be.
    pub(crate) fn new(input: &LikelihoodInput<Floats<B>>) -> Self {
        let size = input.vocab();
        let Some(bias) = &input.bias else { return Self { bias: None, masked: None, size } };
        let bias = bias.clone().reshape([1, size]);
        let constant = bias.clone().detach();
        if is_cpu::<B>(&bias.device()) {
            let any = constant.clone().into_data().iter::<f64>().any(|bias| bias <= MASKING_BIAS);
            if !any {
                return Self { bias: Some(bias), masked: None, size };
            }
        }
        let words = constant.at_most(MASKING_BIAS);
        let unmasked = constant.zeros_like().add_scalar(1.0).fill_where(words.clone(), 0.0);
        // Not along the row: of a single row of logits, Burn's fusion would merge it with their sums, which come out wrong (0.22).
        let is_any_left = unmasked.clone().reshape([size]).max().reshape([1, 1]);
        let masked = Masked {
            no_word_left: (-is_any_left).add_scalar(1.0),
            minus_infinity: constant.zeros_like().fill_where(words.clone(), f64::NEG_INFINITY),
            unmasked,
            words: words.clone(),
        };
        Self { bias: Some(bias.fill_where(words, 0.0)), masked: Some(masked), size }
    }

    /// 0 for masked words, 1 for others, `[1, V]`.
    pub(crate) fn unmasked(&self, like: &Floats<B>) -> Floats<B> {
        match &self.masked {
            Some(masked) => masked.unmasked.clone(),
            None => Floats::full([1, self.size], 1.0, &like.device(), like.dtype()),
        }
    }

    /// −∞ in the columns of masked words of `[rows, V]`.
    pub(crate) fn with_minus_infinity(&self, rows: Floats<B>) -> Floats<B> {
        match &self.masked {
            Some(masked) => masked.fill(rows, 0.0) + masked.minus_infinity.clone(),
            None => rows,
        }
    }

    /// The gradient of logits, `[rows, V]`: 0 for masked words, whatever stands there.
    pub(crate) fn zero_masked(&self, rows: Floats<B>) -> Floats<B> {
        match &self.masked {
            Some(masked) => masked.fill(rows, 0.0),
            None => rows,
        }
    }
}

impl<B: Backend> Masked<B> {
    /// A value in the columns of masked words of `[rows, V]`.
    pub(crate) fn fill(&self, rows: Floats<B>, value: f64) -> Floats<B> {
        let words = self.words.clone().expand(rows.shape());
        rows.fill_where(words, value)
    }

    /// 1 where a word is masked, else 0, of the shape of the words.
    pub(crate) fn of_words(&self, words: Ints<B>, dtype: DType) -> Floats<B> {
        let (shape, count, size) = (words.shape(), words.num_elements(), self.unmasked.num_elements());
        let unmasked = self.unmasked.clone().reshape([size]).select(0, words.reshape([count]));
        (-unmasked).add_scalar(1.0).reshape(shape).cast(dtype)
    }

    /// What distributions `[rows, V]` have of masked words, `[rows]`.
    pub(crate) fn mass(&self, distributions: Floats<B>) -> Floats<B> {
        let [rows, _] = distributions.dims();
        (distributions * (-self.unmasked.clone()).add_scalar(1.0)).sum_dim(1).reshape([rows])
    }
}
