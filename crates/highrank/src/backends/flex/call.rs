//! What a call of the likelihood reads and makes, on slices.

use burn::backend::Flex;
use burn::tensor::DType;
use burn_flex::FlexTensor;
use highrank_kernels::cpu::{Buffer, Factor, Matrix, Real, as_short, contiguous};
use highrank_kernels::{Floats, Precision};

use super::factor::{Stored, as_factor};
use super::gated::{self, GateGradients, Gates};
use super::goal::Goal;
use super::latent::{self, Layer, LayerGradients};
use super::words::Words;
use crate::ops::{ContextSource, Gradients, LatentInputs, LatentWanted, Statistic, Wanted};

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
    pub(super) components: usize,
    pub(super) d: usize,
    pub(super) chunk_tokens: usize,
    pub(super) block_tokens: usize,
    /// Of the products with the decoder.
    pub(super) precision: Precision,
}

/// The tensors of the contexts, row-major.
pub(super) enum Contexts {
    /// `[N·K, d]`
    Given(FlexTensor),
    Latent(Box<latent::Inputs>),
    Gated(Box<gated::Inputs>),
}

impl Contexts {
    /// Of tensors [as they are read](contexts_as_read), for so many components and a decoder `[V, d]`.
    pub(super) fn new(source: &ContextSource<Floats<Flex>>, components: usize, decoder: [usize; 2]) -> Self {
        match source {
            ContextSource::Given(contexts) => Self::Given(contiguous(contexts)),
            ContextSource::Latent(args) => Self::Latent(Box::new(latent::Inputs::new(args))),
            ContextSource::Gated(args) => {
                Self::Gated(Box::new(gated::Inputs::new(args, components, decoder)))
            }
        }
    }

    /// On slices.
    pub(super) fn source<'a, T: Real>(&'a self, decoder: Stored<'a, T>) -> Source<'a, T> {
        match self {
            Self::Given(contexts) => Source::Given(Stored::new(contexts)),
            Self::Latent(inputs) => Source::Latent(inputs.layer()),
            Self::Gated(inputs) => Source::Gated(inputs.gates(decoder)),
        }
    }

    /// Room for the wanted gradients.
    pub(super) fn room<T: Real>(&self, wanted: Wanted) -> ContextGradient<T> {
        match self {
            Self::Given(contexts) if wanted.contexts => {
                ContextGradient::Given(Buffer::new(contexts.layout().shape().num_elements()))
            }
            Self::Latent(inputs) if wanted.latent() != LatentWanted::default() => {
                ContextGradient::Layer(inputs.room(wanted.latent()))
            }
            Self::Gated(inputs) => ContextGradient::Gated(inputs.room(wanted.gated)),
            _ => ContextGradient::Unwanted,
        }
    }

    /// The gradients as tensors.
    pub(super) fn finish<T: Real>(&self, gradient: ContextGradient<T>) -> Gradients<Floats<Flex>> {
        match (self, gradient) {
            (Self::Given(contexts), ContextGradient::Given(gradient)) => {
                let [rows, d] = contexts.layout().shape().dims();
                let contexts = Some(Floats::new(gradient.into_tensor([rows, d])));
                Gradients { contexts, ..Gradients::default() }
            }
            (Self::Latent(inputs), ContextGradient::Layer(gradients)) => {
                let LatentInputs { hidden, weight, bias } = inputs.finish(gradients);
                Gradients {
                    contexts: hidden,
                    latent_weight: weight,
                    latent_bias: bias,
                    ..Gradients::default()
                }
            }
            (Self::Gated(inputs), ContextGradient::Gated(gradients)) => {
                Gradients { gated: inputs.finish(gradients), ..Gradients::default() }
            }
            _ => Gradients::default(),
        }
    }
}

/// The contexts' tensors in the type of sums, but for factors of products that may stay bf16.
pub(super) fn contexts_as_read(
    source: ContextSource<Floats<Flex>>,
    sums: DType,
) -> ContextSource<Floats<Flex>> {
    match source {
        ContextSource::Given(contexts) => ContextSource::Given(as_factor(contexts, sums)),
        ContextSource::Latent(args) => ContextSource::Latent(latent::as_read(args, sums)),
        ContextSource::Gated(args) => ContextSource::Gated(args.map(|tensor| tensor.cast(sums))),
    }
}

/// Where the contexts come from.
pub(super) enum Source<'a, T> {
    /// `[N·K, d]`
    Given(Stored<'a, T>),
    Latent(Layer<'a, T>),
    Gated(Gates<'a, T>),
}

/// The gradient of the contexts, or of what they are made of, if wanted.
pub(super) enum ContextGradient<T> {
    Unwanted,
    /// `[N·K, d]`
    Given(Buffer<T>),
    Layer(LayerGradients<T>),
    /// Also where the decoder's alone is wanted, to which gates add.
    Gated(GateGradients<T>),
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
            bias: room(wanted.bias && input.shared.bias.is_some(), vocab),
            // Each map accumulates it in the same pass.
            params: room(true, input.shared.map.num_params()),
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
            Self::Unscaled | Self::Scaled => Factor::Wide(Matrix::new(logits, rows, vocab)),
            Self::Short => Factor::Short(Matrix::strided(as_short(logits), rows, vocab, 2 * vocab)),
        }
    }
}
