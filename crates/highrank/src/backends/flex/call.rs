//! What a call of the likelihood reads and makes, on slices.

use burn::backend::Flex;
use burn::tensor::DType;
use burn_flex::FlexTensor;
use highrank_kernels::cpu::{Buffer, Factor, Matrix, Real, Thin, as_short, contiguous, slice};
use highrank_kernels::{Floats, Precision};

use super::factor::Stored;
use super::goal::Goal;
use super::latent::{Layer, LayerGradients};
use super::words::Words;
use crate::ops::{Likelihood, Statistic, Wanted};

/// The likelihood's inputs as slices, row-major.
pub(super) struct Input<'a, T> {
    pub(super) contexts: Source<'a, T>,
    /// `[N, K]`
    pub(super) log_prior: Option<&'a [T]>,
    /// `[V, d]`
    pub(super) weight: Stored<'a, T>,
    pub(super) shared: Words<'a, T>,
    pub(super) goal: &'a Goal<T>,
    /// Gradient of the losses, `[N]`, if gradients are to be made.
    pub(super) upstream: Option<&'a [T]>,
    pub(super) offset: Offset<'a, T>,
    pub(super) components: usize,
    pub(super) d: usize,
    pub(super) chunk_tokens: usize,
    pub(super) block_tokens: usize,
    /// Of the products with the decoder.
    pub(super) precision: Precision,
    /// Whether there is a bias. If rows have none, it is the thin decoder's first column.
    pub(super) has_bias: bool,
    /// The decoder once more, where it is [thin](super::thin).
    pub(super) thin: Option<Thin<T>>,
}

/// What is added to the logits of the first words.
#[derive(Debug, Clone, Copy)]
pub(super) struct Offset<'a, T> {
    /// `[N, S]`, or nothing.
    rows: &'a [T],
    /// `S`, or 0.
    pub(super) words: usize,
}

impl<'a, T: Real> Offset<'a, T> {
    /// The tensor row-major, if there is one.
    ///
    /// # Panics
    /// If it does not fit the likelihood, or if there are several components.
    pub(super) fn read(input: &Likelihood<Floats<Flex>>) -> Option<FlexTensor> {
        let offset = input.offset.as_ref()?;
        let ([tokens, words], vocab) = (offset.dims(), input.vocab());
        assert_eq!(tokens, input.tokens(), "likelihood: tokens of the offset");
        assert!(words <= vocab, "likelihood: an offset of {words} words for {vocab}");
        assert_eq!(input.components(), 1, "likelihood: components of logits with an offset");
        Some(contiguous(&offset.clone().cast(input.wide())))
    }

    /// On a slice.
    pub(super) fn of(tensor: Option<&'a FlexTensor>) -> Self {
        match tensor {
            Some(tensor) => {
                let [_, words] = tensor.layout().shape().dims();
                Self { rows: slice(tensor), words }
            }
            None => Self { rows: &[], words: 0 },
        }
    }

    /// Adds that of a token to its row.
    #[inline(always)]
    pub(super) fn add_to(&self, row: &mut [T], token: usize) {
        let offset = &self.rows[token * self.words..(token + 1) * self.words];
        row.iter_mut().zip(offset).for_each(|(z, e)| *z += *e);
    }
}

/// Where the contexts come from.
pub(super) enum Source<'a, T> {
    /// `[N·K, d]`
    Given(Stored<'a, T>),
    Latent(Layer<'a, T>),
}

/// The gradient of the contexts, or of what they are made of, if wanted.
pub(super) enum ContextGradient<T> {
    Unwanted,
    /// `[N·K, d]`
    Given(Buffer<T>),
    Layer(LayerGradients<T>),
}

/// Losses, and statistics and gradients where wanted.
pub(super) struct Output<T> {
    /// `[N]`
    pub(super) loss: Vec<T>,
    /// `[N, Statistic::COUNT]`, or nothing.
    pub(super) statistics: Vec<T>,
    /// `[N, K]`
    pub(super) log_prior: Option<Buffer<T>>,
    /// `[V, d]`
    pub(super) weight: Option<Buffer<T>>,
    /// `[V]`
    pub(super) bias: Option<Buffer<T>>,
    /// Of the map's parameters, `[num_params]`.
    pub(super) params: Option<Buffer<T>>,
    /// `[N, S]`
    pub(super) offset: Option<Buffer<T>>,
}

impl<T: Real> Output<T> {
    /// Room for the losses, and with an upstream gradient for the wanted gradients.
    ///
    /// To be made by the calling thread: memory that pool threads allocate in turns is held by each of them.
    pub(super) fn new(input: &Input<'_, T>, wanted: Wanted) -> Self {
        let (tokens, components, vocab, d) =
            (input.goal.tokens(), input.components, input.shared.vocab, input.d);
        let graded = input.upstream.is_some();
        let room = |wanted: bool, count: usize| (wanted && graded && count > 0).then(|| Buffer::zeros(count));
        Self {
            loss: vec![T::ZERO; tokens],
            statistics: vec![T::ZERO; if input.goal.statistics { tokens * Statistic::COUNT } else { 0 }],
            log_prior: room(wanted.log_prior && input.log_prior.is_some(), tokens * components),
            weight: match wanted.weight && tokens > 0 {
                // The first to come writes it, the others add: a large one takes long to clear.
                true => graded.then(|| Buffer::new(vocab * d)),
                false => room(wanted.weight, vocab * d),
            },
            bias: room(wanted.bias && input.has_bias, vocab),
            // Each map accumulates it in the same pass.
            params: room(true, input.shared.map.num_params()),
            offset: room(wanted.offset, tokens * input.offset.words),
        }
    }
}

/// How the products find the gradients of a chunk's logits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// Each row must be multiplied with its scale.
    Unscaled,
    /// As they are.
    Scaled,
    /// As they are, rounded.
    Rounded(Precision),
    /// Rounded to bf16, in the first half of each row's memory: the two products read half as much, and neither rounds it
    /// again. The row is in cache when that is done.
    Short,
}

impl Form {
    /// At a precision.
    pub(super) fn at<T: Real>(precision: Precision) -> Self {
        match (precision, T::dtype()) {
            (Precision::Full, _) => Self::Unscaled,
            (Precision::Bf16, DType::F32) => Self::Short,
            _ => Self::Scaled,
        }
    }

    /// The gradients as a factor.
    pub(super) fn factor<T: Real>(self, logits: &[T], rows: usize, vocab: usize) -> Factor<'_, T> {
        match self {
            Self::Unscaled | Self::Scaled | Self::Rounded(_) => {
                Factor::Wide(Matrix::new(logits, rows, vocab))
            }
            Self::Short => Factor::Short(Matrix::strided(as_short(logits), rows, vocab, 2 * vocab)),
        }
    }
}

/// # Panics
/// If a tensor has more values than the others ask for, or less.
pub(super) fn assert_length(name: &str, tensor: Option<&FlexTensor>, expected: usize) {
    let Some(tensor) = tensor else { return };
    let shape = tensor.layout().shape().clone();
    assert_eq!(shape.num_elements(), expected, "likelihood: values of {name}, of shape {shape:?}");
}
