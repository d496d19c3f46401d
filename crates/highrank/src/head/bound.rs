//! A head together with its decoder matrix: what every method works on.

use burn::backend::Dispatch;
use burn::tensor::{Device, Int, Tensor};
use highrank_kernels::Floats;
use rand::Rng;

use super::output::OutputHead;
use super::sampling::Sampling;
use crate::context::{Context, Contexts};
use crate::error::{HeadError, OrPanic};
use crate::likelihood::{self, default_memory_budget, portable};
use crate::ops::{ContextSource, Kernels, Likelihood, Targets};

/// An [`OutputHead`] bound to its decoder matrix, its own or the caller's.
///
/// Returned by [`OutputHead::tied_to`]; lives as long as the borrow of the head.
#[derive(Debug, Clone)]
pub struct BoundHead<'a> {
    head: &'a OutputHead,
    weight: Tensor<2>,
}

/// The most probable words of every token, most probable first.
#[derive(Debug, Clone)]
pub struct TopK<const D: usize> {
    /// Log-probabilities in nats, shape `[.., k]`.
    pub log_probs: Tensor<D>,
    /// The words, shape `[.., k]`.
    pub words: Tensor<D, Int>,
}

impl<'a> BoundHead<'a> {
    pub(super) fn new(head: &'a OutputHead, weight: Tensor<2>) -> Self {
        Self { head, weight }
    }

    /// Log-probabilities of all words, in nats. Each row's exponentials sum to 1.
    ///
    /// Differentiable, but for training use [`loss`](Self::loss) or [`nll`](Self::nll), which store no logits.
    ///
    /// # Shapes
    /// - hidden: `[.., H]`
    /// - output: `[.., V]`
    ///
    /// # Panics
    /// If the last dimension of `hidden` is not `H`, or there is no token.
    #[track_caller]
    pub fn log_probs<const D: usize>(&self, hidden: Tensor<D>) -> Tensor<D> {
        let shape = with_last(hidden.dims(), self.head.decoder.vocab);
        portable::log_probs(&self.composed(hidden).or_panic("log_probs")).reshape(shape).tensor()
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
        let input = self.composed(hidden).or_panic("log_prob_blocks");
        input.into_chunks().map(|chunk| portable::log_probs(&chunk).tensor())
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
        let input = self.composed(hidden).or_panic("logit_blocks");
        input.into_chunks().map(|chunk| portable::logits(&chunk).tensor())
    }

    /// The `k` most probable words of every token.
    ///
    /// Works through tokens in chunks of the head's memory budget; equal probabilities come in the backend's sorting
    /// order.
    ///
    /// # Shapes
    /// - hidden: `[.., H]`
    /// - output: `[.., k]`
    ///
    /// # Panics
    /// If `k` is 0 or above `V`, or `hidden` does not fit the head.
    #[track_caller]
    pub fn top_k<const D: usize>(&self, hidden: Tensor<D>, k: usize) -> TopK<D> {
        let vocab = self.head.decoder.vocab;
        assert!((1..=vocab).contains(&k), "top_k: k is {k}, expected 1 to the vocabulary's {vocab}");
        let shape = with_last(hidden.dims(), k);
        let input = self.composed(hidden).or_panic("top_k");
        let (log_probs, words): (Vec<_>, Vec<_>) = input
            .into_chunks()
            .map(|chunk| portable::log_probs(&chunk).tensor::<2>().topk_with_indices(k, 1))
            .unzip();
        TopK {
            log_probs: Tensor::cat(log_probs, 0).reshape(shape),
            words: Tensor::cat(words, 0).reshape(shape),
        }
    }

    /// Draws one word for every token.
    ///
    /// With the neutral options of [`Sampling::default`] a Mixture of Softmaxes draws its component first, then a word
    /// from that component's softmax, which is the same distribution at `1/K` of the cost. A temperature or a truncation
    /// acts on the mixed distribution, so there the mixture is computed first. Probabilities are read back and
    /// drawn from on the host in f64: the same `rng` gives the same words on every backend up to its rounding.
    ///
    /// # Shapes
    /// - hidden: `[.., H]`, D dimensions
    /// - output: `[..]`, T = D − 1 dimensions
    ///
    /// # Panics
    /// If the options are invalid ([`Sampling::validate`]), `hidden` does not fit the head, or T is not D − 1.
    #[track_caller]
    pub fn sample<const D: usize, const T: usize>(
        &self,
        hidden: Tensor<D>,
        sampling: &Sampling,
        rng: &mut impl Rng,
    ) -> Tensor<T, Int> {
        sampling.validate().or_panic("sample");
        let shape = leading::<D, T>(&hidden.dims()).or_panic("sample");
        let device = hidden.device();
        let mut input = self.composed(hidden).or_panic("sample");
        if sampling.is_neutral() {
            input = draw_components(input, rng);
        }
        let mut words = Vec::with_capacity(input.tokens());
        for chunk in input.into_chunks() {
            let rows = to_f64(portable::log_probs(&chunk));
            words.extend(rows.chunks(chunk.vocab()).map(|row| sampling.draw(row, rng) as i64));
        }
        Tensor::<1, Int>::from_data(words.as_slice(), &device).reshape(shape)
    }

    /// The likelihood's inputs, contexts composed of Burn's operations.
    fn composed<const D: usize>(&self, hidden: Tensor<D>) -> Result<Likelihood, HeadError> {
        let budget = default_memory_budget(self.decoder_bytes());
        self.likelihood(hidden, Context::forward, budget)
    }

    /// The likelihood's inputs, by the native operations of the device where it has them.
    fn native<const D: usize>(&self, hidden: Tensor<D>) -> Result<Likelihood, HeadError> {
        let budget = Dispatch::memory_budget(self.decoder_bytes(), self.weight.device().as_dispatch());
        self.likelihood(hidden, Context::forward_native, budget)
    }

    /// The likelihood's inputs for hidden states of any number of leading dimensions, by either form of the context.
    fn likelihood<const D: usize>(
        &self,
        hidden: Tensor<D>,
        contexts: fn(&Context, Tensor<D>) -> Contexts,
        default_budget: usize,
    ) -> Result<Likelihood, HeadError> {
        let dims = hidden.dims();
        let expected = self.d_hidden();
        if D < 2 || dims[D - 1] != expected || dims.contains(&0) {
            return Err(HeadError::Shape {
                what: "hidden",
                got: dims.to_vec(),
                expected: format!("[.., {expected}] with at least one token"),
            });
        }
        let contexts = contexts(&self.head.context, hidden);
        Ok(Likelihood {
            contexts: contexts.contexts,
            log_prior: contexts.log_prior,
            weight: self.weight.clone().into(),
            bias: self.head.decoder.bias.as_ref().map(|bias| bias.val().into()),
            map: self.head.logit_map.function(),
            map_params: self.head.logit_map.packed_params().map(Floats::from),
            chunk_bytes: self.head.memory_budget.unwrap_or(default_budget),
            precision: self.head.precision,
        })
    }

    /// Size of `W` in bytes.
    fn decoder_bytes(&self) -> usize {
        self.weight.shape().num_elements() * self.weight.dtype().size()
    }

    /// `H`.
    fn d_hidden(&self) -> usize {
        use crate::context::Context::*;
        match &self.head.context {
            Direct(_) => self.head.decoder.d_embedding,
            MixtureOfContexts(mixture) | MixtureOfSoftmaxes(mixture) => {
                mixture.prior.weight.shape().dims::<2>()[0]
            }
        }
    }
}

impl BoundHead<'_> {
    /// Negative log-likelihood of every token in nats, `−log P(target)`.
    ///
    /// Equals `−log_probs(hidden).gather(targets)` without the `[.., V]` tensor. Takes any upstream gradient; the
    /// backward pass recomputes the logits chunk by chunk. For a mean, [`loss`](Self::loss) is cheaper.
    ///
    /// # Shapes
    /// - hidden: `[.., H]`, D dimensions
    /// - targets, output: `[..]`, T = D − 1 dimensions
    ///
    /// # Panics
    /// If the shapes do not fit (both are in the message). On CPU backends, if a target is outside `0..V`; on others
    /// such a target gives an undefined number, see [`validate_targets`](crate::validate_targets).
    #[track_caller]
    pub fn nll<const D: usize, const T: usize>(
        &self,
        hidden: Tensor<D>,
        targets: Tensor<T, Int>,
    ) -> Tensor<T> {
        let shape = leading::<D, T>(&hidden.dims()).or_panic("nll");
        let targets = self.words(targets, shape).or_panic("nll");
        let input = self.native(hidden).or_panic("nll");
        likelihood::nll(input, targets).reshape(shape)
    }

    /// Weighted mean of the tokens' negative log-likelihoods in nats, `Σ w nll / Σ w`.
    ///
    /// Without weights the plain mean. A token of weight 0 is ignored: it adds nothing to the loss or any gradient, but
    /// its target must still be a word. Weights of 0 alone give NaN. The gradient also reaches tracked weights.
    ///
    /// # Shapes
    /// - hidden: `[.., H]`, D dimensions
    /// - targets, weights: `[..]`, T = D − 1 dimensions
    /// - output: `[1]`
    ///
    /// # Panics
    /// As [`nll`](Self::nll).
    #[track_caller]
    pub fn loss<const D: usize, const T: usize>(
        &self,
        hidden: Tensor<D>,
        targets: Tensor<T, Int>,
        weights: Option<Tensor<T>>,
    ) -> Tensor<1> {
        let shape = leading::<D, T>(&hidden.dims()).or_panic("loss");
        let targets = self.words(targets, shape).or_panic("loss");
        let weights = weights.map(|weights| {
            same_shape("weights", weights.dims(), shape).or_panic("loss");
            weights.reshape([shape.iter().product::<usize>()])
        });
        likelihood::mean_nll(self.native(hidden).or_panic("loss"), targets, weights)
    }

    /// Weighted mean of the cross-entropies against full distributions, `−Σ_v q_v log P(v)`, in nats.
    ///
    /// For distillation and for studies where the true distribution is known. The distributions are constants.
    ///
    /// # Shapes
    /// - hidden: `[.., H]`
    /// - distributions: `[.., V]`, probabilities
    /// - weights: `[N]`, N the product of the leading dimensions
    /// - output: `[1]`
    ///
    /// # Panics
    /// If the shapes do not fit (both are in the message), or `distributions` is tracked by autodiff.
    #[track_caller]
    pub fn soft_loss<const D: usize>(
        &self,
        hidden: Tensor<D>,
        distributions: Tensor<D>,
        weights: Option<Tensor<1>>,
    ) -> Tensor<1> {
        let vocab = self.head.decoder.vocab;
        same_shape("distributions", distributions.dims(), with_last(hidden.dims(), vocab))
            .or_panic("soft_loss");
        let input = self.native(hidden).or_panic("soft_loss");
        if let Some(weights) = &weights {
            same_shape("weights", weights.dims(), [input.tokens()]).or_panic("soft_loss");
        }
        let rows = distributions.reshape([input.tokens(), vocab]);
        likelihood::mean_nll(input, Targets::Distributions(rows.into()), weights)
    }

    /// Targets of the given shape as a vector, checked where that costs nothing.
    fn words<const T: usize>(
        &self,
        targets: Tensor<T, Int>,
        shape: [usize; T],
    ) -> Result<Targets, HeadError> {
        same_shape("targets", targets.dims(), shape)?;
        let words = targets.reshape([shape.iter().product::<usize>()]);
        if Dispatch::is_cpu(self.weight.device().as_dispatch()) {
            validate_targets(&words, self.head.decoder.vocab)?;
        }
        Ok(Targets::Words(words.into()))
    }
}

/// Checks that every target is a word of the vocabulary, `0 ≤ target < V`.
///
/// Reads the targets back from the device. The heads call it by themselves on CPU backends.
///
/// # Errors
/// [`HeadError::Target`] with the first target outside.
pub fn validate_targets(targets: &Tensor<1, Int>, vocab: usize) -> Result<(), HeadError> {
    let data = targets.to_data();
    let wrong = data.iter::<i64>().enumerate().find(|(_, word)| !(0..vocab as i64).contains(word));
    match wrong {
        Some((token, target)) => Err(HeadError::Target { target, token, vocab }),
        None => Ok(()),
    }
}

/// Draws one component a token by its prior and leaves only that component's context.
fn draw_components(input: Likelihood, rng: &mut impl Rng) -> Likelihood {
    let Some(log_prior) = &input.log_prior else { return input };
    let components = input.components();
    let rows: Vec<i64> = to_f64(log_prior.clone())
        .chunks(components)
        .enumerate()
        .map(|(token, row)| (token * components + Sampling::default().draw(row, rng)) as i64)
        .collect();
    let device = Device::new(input.weight.device());
    let rows = Tensor::<1, Int>::from_data(rows.as_slice(), &device);
    let contexts = portable::context_tensor(input.contexts, input.weight.shape()[1]).select(0, rows.into());
    Likelihood { contexts: ContextSource::Given(contexts), log_prior: None, ..input }
}

fn to_f64(tensor: Floats) -> Vec<f64> {
    tensor.into_data().iter::<f64>().collect()
}

/// The dimensions before the last.
fn leading<const D: usize, const T: usize>(hidden: &[usize; D]) -> Result<[usize; T], HeadError> {
    hidden[..D - 1].try_into().map_err(|_| HeadError::Shape {
        what: "hidden",
        got: hidden.to_vec(),
        expected: format!("{} dimensions, one more than the {T} of the targets", T + 1),
    })
}

fn with_last<const D: usize>(mut dims: [usize; D], last: usize) -> [usize; D] {
    dims[D - 1] = last;
    dims
}

fn same_shape<const D: usize>(
    what: &'static str,
    got: [usize; D],
    want: [usize; D],
) -> Result<(), HeadError> {
    match got == want {
        true => Ok(()),
        false => Err(HeadError::Shape {
            what,
            got: got.to_vec(),
            expected: format!("{want:?}, as the hidden state says"),
        }),
    }
}
