//! What a head predicts: log-probabilities, the most probable words, words drawn at random.

use std::sync::OnceLock;

use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use highrank_kernels::Floats;
use rand::Rng;

use super::input::{Inputs, with_last};
use super::output::OutputHead;
use super::sampling::{Sampling, numbers, word_of};
use super::select::{best_pairs, best_words};
use crate::error::{HeadError, OrPanic, in_range};
use crate::likelihood::draw_in_order;
use crate::loss::leading;
use crate::ops::{Draw, Drawn, LogProbs, Prediction};

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
        let words = best_words(log_probs.clone(), k, first)?;
        Ok(Self { log_probs: log_probs.gather(1, words.clone()), words })
    }
}

impl<const D: usize> TopK<D> {
    /// Of a list for each token, `[.., k]`.
    pub(crate) fn of_lists(
        lists: Vec<Vec<(f64, usize)>>,
        shape: [usize; D],
        (device, dtype): (&Device, DType),
    ) -> Self {
        let (log_probs, words): (Vec<f64>, Vec<usize>) = lists.into_iter().flatten().unzip();
        let log_probs = Tensor::from_data(TensorData::new(log_probs, shape), (device, dtype));
        Self { log_probs, words: integers(words, shape, device) }
    }

    /// The log-probabilities and words of each token.
    pub(super) fn into_lists(self) -> Vec<Vec<(f64, usize)>> {
        let k = self.words.dims()[D - 1];
        let words = self.words.into_data().iter::<i64>().map(|word| word as usize).collect::<Vec<_>>();
        let pairs: Vec<(f64, usize)> = self.log_probs.into_data().iter::<f64>().zip(words).collect();
        pairs.chunks(k).map(<[_]>::to_vec).collect()
    }
}

/// Words or numbers of rows as a tensor.
pub(crate) fn integers<const D: usize>(
    values: impl IntoIterator<Item = usize>,
    shape: [usize; D],
    device: &Device,
) -> Tensor<D, Int> {
    let values: Vec<i64> = values.into_iter().map(|value| value as i64).collect();
    Tensor::from_data(TensorData::new(values, shape), device)
}

impl OutputHead {
    /// Log-probabilities of all words, in nats. Each row's exponentials sum to 1.
    ///
    /// Differentiable, but for training use [`loss`](Self::loss) or [`nll`](Self::nll), which store no logits.
    ///
    /// # Shapes
    /// - hidden: `[.., H]`
    /// - output: `[.., V]`; with a padded vocabulary and no clusters [`decoder_rows`](crate::HeadConfig::decoder_rows) in place of `V`
    ///
    /// # Panics
    /// If the last dimension of `hidden` is not `H`, there is no token, or a tensor is on another device than the head.
    #[track_caller]
    pub fn forward<const D: usize>(&self, hidden: Tensor<D>) -> Tensor<D> {
        self.try_forward(hidden).or_panic("forward")
    }

    pub(super) fn try_forward<const D: usize>(&self, hidden: Tensor<D>) -> Result<Tensor<D>, HeadError> {
        if let Some(adaptive) = self.adaptive() {
            self.check(&hidden)?;
            return adaptive.log_probs(hidden);
        }
        let shape = with_last(hidden.dims(), self.decoder.rows());
        Ok(self.differentiable(hidden)?.log_probs().reshape(shape).tensor())
    }

    /// The rows of [`forward`](Self::forward) in blocks of the head's memory budget, in order.
    ///
    /// For what reads all log-probabilities of a long text: the whole `[N, V]` tensor never exists.
    ///
    /// # Shapes
    /// - hidden: `[.., H]`, of N tokens in all
    /// - blocks: `[rows, V]`, N rows in all
    ///
    /// # Panics
    /// As [`forward`](Self::forward).
    #[track_caller]
    pub fn log_prob_blocks<const D: usize>(
        &self,
        hidden: Tensor<D>,
    ) -> impl Iterator<Item = Tensor<2>> + use<D> {
        self.try_log_prob_blocks(hidden).or_panic("log_prob_blocks")
    }

    pub(crate) fn try_log_prob_blocks<const D: usize>(
        &self,
        hidden: Tensor<D>,
    ) -> Result<impl Iterator<Item = Tensor<2>> + use<D>, HeadError> {
        let blocks: Box<dyn Iterator<Item = Tensor<2>>> = match self.adaptive() {
            Some(adaptive) => {
                self.check(&hidden)?;
                adaptive.log_prob_blocks(hidden)?
            }
            None => {
                Box::new(self.differentiable(hidden)?.into_chunks().map(|chunk| chunk.log_probs().tensor()))
            }
        };
        Ok(blocks)
    }

    /// The `k` most probable words of every token, most probable first.
    ///
    /// Of equally probable words the lowest comes first. Masked words come last, with −∞. The words are selected, nothing
    /// is sorted but the `k`: on the host, or on a GPU where `k` is at most 32. Works through the tokens in chunks of
    /// the head's memory budget. `log_probs` of the result is differentiable; for a head with clusters it is a constant.
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

    pub(super) fn try_top_k<const D: usize>(
        &self,
        hidden: Tensor<D>,
        k: usize,
    ) -> Result<TopK<D>, HeadError> {
        let vocab = self.vocab();
        in_range("k", k as f64, format!("1 to the vocabulary's {vocab}"), 1.0..=vocab as f64)?;
        if let Some(adaptive) = self.adaptive() {
            self.check(&hidden)?;
            return adaptive.top_k(hidden, k);
        }
        let shape = with_last(hidden.dims(), k);
        let device = hidden.device();
        let inputs = self.differentiable(hidden)?;
        if !inputs.native {
            let (mut log_probs, mut words, mut first) = (vec![], vec![], 0);
            for chunk in inputs.into_chunks() {
                let tokens = chunk.input.tokens();
                let top = TopK::of_rows(chunk.log_probs().tensor(), k, first)?;
                log_probs.push(top.log_probs);
                words.push(top.words);
                first += tokens;
            }
            return Ok(TopK {
                log_probs: Tensor::cat(log_probs, 0).reshape(shape),
                words: Tensor::cat(words, 0).reshape(shape),
            });
        }
        let dtype = inputs.input.wide();
        let best = read(inputs, |token, row| match row {
            LogProbs::F32(row) => best_pairs(row, k, token),
            LogProbs::F64(row) => best_pairs(row, k, token),
        })?;
        Ok(TopK::of_lists(best, shape, (&device, dtype)))
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
    /// # Errors
    /// [`HeadError::Range`] if an option is out of its range ([`Sampling::validate`]); [`HeadError::Shape`] and others if `hidden`
    /// does not fit the head, or T is not D − 1; [`HeadError::NotANumber`] or [`HeadError::AllMasked`] with the first token that
    /// no word can be drawn for.
    pub fn sample<const D: usize, const T: usize>(
        &self,
        hidden: Tensor<D>,
        sampling: &Sampling,
        rng: &mut impl Rng,
    ) -> Result<Tensor<T, Int>, HeadError> {
        sampling.validate()?;
        let shape = leading::<D, T>(&hidden.dims(), || "the output".into())?;
        let device = hidden.device();
        if let Some(adaptive) = self.adaptive() {
            self.check(&hidden)?;
            return Ok(integers(adaptive.sample(hidden, sampling, rng)?, shape, &device));
        }
        let inputs = self.constant(hidden)?;
        let words = match sampling.is_neutral() {
            true => draw(inputs, rng)?,
            false => {
                let numbers = sampling.numbers(inputs.input.tokens(), rng);
                read(inputs, |token, row| sampling.draw(row, token, numbers[token]))?
            }
        };
        Ok(integers(words, shape, &device))
    }
}

/// What `of` makes of each token's log-probabilities; the error of the first token that has one.
pub(crate) fn read<R: Send + Sync>(
    inputs: Inputs,
    of: impl Fn(usize, LogProbs<'_>) -> Result<R, HeadError> + Sync,
) -> Result<Vec<R>, HeadError> {
    let made: Vec<OnceLock<_>> = (0..inputs.input.tokens()).map(|_| OnceLock::new()).collect();
    inputs.predict(Prediction::Read(&|token, row| {
        made[token].get_or_init(|| of(token, row));
    }));
    made.into_iter().map(|made| made.into_inner().expect("all tokens are read")).collect()
}

/// A word for each token from the distribution itself, that of a component where there are several.
pub(super) fn draw(inputs: Inputs, rng: &mut impl Rng) -> Result<Vec<usize>, HeadError> {
    let components = match inputs.input.log_prior.clone() {
        Some(log_prior) => draw_components(log_prior, &numbers(inputs.input.tokens(), rng))?,
        None => vec![],
    };
    let numbers = numbers(inputs.input.tokens(), rng);
    let mut words = vec![Drawn::AllMasked; numbers.len()];
    let draw = Draw { components: &components, numbers: &numbers, words: &mut words };
    inputs.predict(Prediction::Draw(draw));
    words.into_iter().enumerate().map(|(token, drawn)| word_of(drawn, token)).collect()
}

/// The component of each token that its number in `[0, 1)` stands for, by its prior.
pub(crate) fn draw_components(log_prior: Floats, numbers: &[f64]) -> Result<Vec<usize>, HeadError> {
    let [_, components] = log_prior.dims();
    let rows: Vec<f64> = log_prior.into_data().iter::<f64>().collect();
    let rows = rows.chunks(components).zip(numbers).enumerate();
    rows.map(|(token, (row, number))| word_of(draw_in_order(row, *number), token)).collect()
}
