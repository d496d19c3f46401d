//! What a head predicts: log-probabilities, the most probable words, words drawn at random.

use burn::tensor::{Device, Int, Tensor};
use highrank_kernels::Floats;
use rand::Rng;

use super::bound::{BoundHead, leading, with_last};
use super::sampling::Sampling;
use super::select;
use crate::error::{HeadError, OrPanic};
use crate::likelihood::portable;
use crate::ops::{ContextSource, Likelihood};

/// The most probable words of every token, most probable first.
#[derive(Debug, Clone)]
pub struct TopK<const D: usize> {
    /// Log-probabilities in nats, shape `[.., k]`.
    pub log_probs: Tensor<D>,
    /// The words, shape `[.., k]`.
    pub words: Tensor<D, Int>,
}

impl TopK<2> {
    /// The `k` most probable words of every row of log-probabilities, which are of the tokens `first ..`.
    pub(super) fn of_rows(log_probs: Tensor<2>, k: usize, first: usize) -> Result<Self, HeadError> {
        let words = select::best_words(log_probs.clone(), k, first)?;
        Ok(Self { log_probs: log_probs.gather(1, words.clone()), words })
    }
}

impl BoundHead<'_> {
    /// Log-probabilities of all words, in nats. Each row's exponentials sum to 1.
    ///
    /// Differentiable, but for training use [`loss`](Self::loss) or [`nll`](Self::nll), which store no logits.
    ///
    /// # Shapes
    /// - hidden: `[.., H]`
    /// - output: `[.., V]`; with a padded vocabulary [`rows`](crate::decoder::Decoder::rows) in place of `V`
    ///
    /// # Panics
    /// If the last dimension of `hidden` is not `H`, or there is no token.
    #[track_caller]
    pub fn log_probs<const D: usize>(&self, hidden: Tensor<D>) -> Tensor<D> {
        self.try_log_probs(hidden).or_panic("log_probs")
    }

    /// [`log_probs`](Self::log_probs) with an error in place of a panic.
    ///
    /// # Errors
    /// [`HeadError::Shape`].
    pub fn try_log_probs<const D: usize>(&self, hidden: Tensor<D>) -> Result<Tensor<D>, HeadError> {
        let shape = with_last(hidden.dims(), self.head.decoder.rows());
        Ok(portable::log_probs(&self.composed(hidden)?).reshape(shape).tensor())
    }

    /// The rows of [`log_probs`](Self::log_probs) in blocks of the head's memory budget, in order.
    ///
    /// For what reads all log-probabilities of a long text, such as the [analyses](crate::analysis): the whole `[N, V]`
    /// tensor never exists.
    ///
    /// # Shapes
    /// - hidden: `[.., H]`, of N tokens in all
    /// - blocks: `[rows, V]`, N rows in all
    ///
    /// # Panics
    /// As [`log_probs`](Self::log_probs).
    #[track_caller]
    pub fn log_prob_blocks<const D: usize>(
        &self,
        hidden: Tensor<D>,
    ) -> impl Iterator<Item = Tensor<2>> + use<D> {
        self.try_log_prob_blocks(hidden).or_panic("log_prob_blocks")
    }

    /// [`log_prob_blocks`](Self::log_prob_blocks) with an error in place of a panic.
    ///
    /// # Errors
    /// [`HeadError::Shape`].
    pub fn try_log_prob_blocks<const D: usize>(
        &self,
        hidden: Tensor<D>,
    ) -> Result<impl Iterator<Item = Tensor<2>> + use<D>, HeadError> {
        Ok(self.composed(hidden)?.into_chunks().map(|chunk| portable::log_probs(&chunk).tensor()))
    }

    /// The logits `z = h_k·Wᵀ + b`, before the logit map, in blocks of the head's memory budget, in order.
    ///
    /// # Shapes
    /// - hidden: `[.., H]`, of N tokens in all
    /// - blocks: `[rows·K, V]`, N·K rows in all; the K components of a token follow each other
    ///
    /// # Panics
    /// As [`log_probs`](Self::log_probs).
    #[track_caller]
    pub fn logit_blocks<const D: usize>(
        &self,
        hidden: Tensor<D>,
    ) -> impl Iterator<Item = Tensor<2>> + use<D> {
        self.try_logit_blocks(hidden).or_panic("logit_blocks")
    }

    /// [`logit_blocks`](Self::logit_blocks) with an error in place of a panic.
    ///
    /// # Errors
    /// [`HeadError::Shape`].
    pub fn try_logit_blocks<const D: usize>(
        &self,
        hidden: Tensor<D>,
    ) -> Result<impl Iterator<Item = Tensor<2>> + use<D>, HeadError> {
        Ok(self.composed(hidden)?.into_chunks().map(|chunk| portable::logits(&chunk).tensor()))
    }

    /// The `k` most probable words of every token, most probable first.
    ///
    /// Of equally probable words the lowest comes first. Masked words come last, with −∞. The words are selected, nothing
    /// is sorted but the `k`: on the host, or on a GPU where `k` is at most 32. Works through the tokens in chunks of
    /// the head's memory budget. `log_probs` of the result is differentiable.
    ///
    /// # Shapes
    /// - hidden: `[.., H]`
    /// - output: `[.., k]`
    ///
    /// # Panics
    /// If `k` is 0 or above `V`, `hidden` does not fit the head, or a log-probability is NaN.
    #[track_caller]
    pub fn top_k<const D: usize>(&self, hidden: Tensor<D>, k: usize) -> TopK<D> {
        self.try_top_k(hidden, k).or_panic("top_k")
    }

    /// [`top_k`](Self::top_k) with an error in place of a panic.
    ///
    /// # Errors
    /// [`HeadError::TopK`], [`HeadError::Shape`], or [`HeadError::NotANumber`] with the first token that has a NaN.
    pub fn try_top_k<const D: usize>(&self, hidden: Tensor<D>, k: usize) -> Result<TopK<D>, HeadError> {
        let vocab = self.head.decoder.vocab;
        if !(1..=vocab).contains(&k) {
            return Err(HeadError::TopK { k, vocab });
        }
        let shape = with_last(hidden.dims(), k);
        let (mut log_probs, mut words, mut first) = (vec![], vec![], 0);
        for chunk in self.composed(hidden)?.into_chunks() {
            let top = TopK::of_rows(portable::log_probs(&chunk).tensor(), k, first)?;
            log_probs.push(top.log_probs);
            words.push(top.words);
            first += chunk.tokens();
        }
        Ok(TopK {
            log_probs: Tensor::cat(log_probs, 0).reshape(shape),
            words: Tensor::cat(words, 0).reshape(shape),
        })
    }

    /// Draws one word for every token.
    ///
    /// With the neutral options of [`Sampling::default`] a Mixture of Softmaxes draws its component first, then a word
    /// from that component's softmax, which is the same distribution at `1/K` of the cost. A temperature or a truncation
    /// acts on the mixed distribution, so there the mixture is computed first. Probabilities are read back and
    /// drawn from on the host in f64: the same `rng` gives the same words on every backend up to its rounding. Masked words
    /// are never drawn.
    ///
    /// # Shapes
    /// - hidden: `[.., H]`, D dimensions
    /// - output: `[..]`, T = D − 1 dimensions
    ///
    /// # Panics
    /// If the options are invalid ([`Sampling::validate`]), `hidden` does not fit the head, or T is not D − 1. If a token's
    /// log-probabilities hold a NaN, or all its words are masked.
    #[track_caller]
    pub fn sample<const D: usize, const T: usize>(
        &self,
        hidden: Tensor<D>,
        sampling: &Sampling,
        rng: &mut impl Rng,
    ) -> Tensor<T, Int> {
        self.try_sample(hidden, sampling, rng).or_panic("sample")
    }

    /// [`sample`](Self::sample) with an error in place of a panic.
    ///
    /// # Errors
    /// [`HeadError::Sampling`], [`HeadError::Shape`]; [`HeadError::NotANumber`] or [`HeadError::AllMasked`] with the first
    /// token that no word can be drawn for.
    pub fn try_sample<const D: usize, const T: usize>(
        &self,
        hidden: Tensor<D>,
        sampling: &Sampling,
        rng: &mut impl Rng,
    ) -> Result<Tensor<T, Int>, HeadError> {
        sampling.validate()?;
        let shape = leading::<D, T>(&hidden.dims())?;
        let device = hidden.device();
        let mut input = self.composed(hidden)?;
        if sampling.is_neutral() {
            input = draw_components(input, rng)?;
        }
        let mut words = Vec::with_capacity(input.tokens());
        for chunk in input.into_chunks() {
            let rows = to_f64(portable::log_probs(&chunk));
            for row in rows.chunks(chunk.vocab()) {
                words.push(sampling.draw(row, words.len(), rng)? as i64);
            }
        }
        Ok(Tensor::<1, Int>::from_data(words.as_slice(), &device).reshape(shape))
    }
}

/// Draws one component a token by its prior and leaves only that component's context.
fn draw_components(input: Likelihood, rng: &mut impl Rng) -> Result<Likelihood, HeadError> {
    let Some(log_prior) = &input.log_prior else { return Ok(input) };
    let components = input.components();
    let mut rows = Vec::with_capacity(input.tokens());
    for (token, row) in to_f64(log_prior.clone()).chunks(components).enumerate() {
        rows.push((token * components + Sampling::default().draw(row, token, rng)?) as i64);
    }
    let device = Device::new(input.weight.device());
    let rows = Tensor::<1, Int>::from_data(rows.as_slice(), &device);
    let contexts = portable::context_tensor(input.contexts, input.weight.shape()[1]).select(0, rows.into());
    Ok(Likelihood { contexts: ContextSource::Given(contexts), log_prior: None, ..input })
}

fn to_f64(tensor: Floats) -> Vec<f64> {
    tensor.into_data().iter::<f64>().collect()
}
