//! Runs of tokens that exist at a time: blocks with their contexts, and in them chunks with their logits.

use burn::tensor::DType;
use highrank_kernels::Floats;

use crate::likelihood::gated;
use crate::likelihood::mask::Vocabulary;
use crate::ops::{ContextSource, Kernels, LikelihoodInput, runs};

/// The contexts as a tensor `[N·K, d]`, by the backend's latent layer; of contexts with gates the mixed one.
pub(crate) fn context_tensor<B: Kernels>(source: ContextSource<Floats<B>>, d: usize) -> Floats<B> {
    match source {
        ContextSource::Given(contexts) => contexts,
        ContextSource::Latent(args) => {
            let latent = B::latent(args);
            let elements = latent.num_elements();
            latent.reshape([elements / d, d])
        }
        ContextSource::Gated(args) => B::mix(args.inputs.prior, args.inputs.latent),
    }
}

/// A run of tokens whose contexts exist at a time.
pub(crate) struct Block<'a, B: Kernels> {
    pub(super) input: &'a LikelihoodInput<Floats<B>>,
    /// Of the logit map.
    table: Option<Floats<B>>,
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// `h_k`, `[tokens·K, d]`
    pub(super) contexts: Floats<B>,
    /// Where they came from.
    pub(super) source: ContextSource<Floats<B>>,
}

pub(crate) fn blocks<B: Kernels>(input: &LikelihoodInput<Floats<B>>) -> impl Iterator<Item = Block<'_, B>> {
    let d = input.weight.shape()[1];
    let table = input.map_params.clone().map(|params| input.map.table(params));
    runs(input.tokens(), input.block_tokens()).map(move |(start, end)| {
        let source = input.slice(start, end).contexts;
        let contexts = context_tensor(source.clone(), d);
        Block { input, table: table.clone(), start, end, contexts, source }
    })
}

impl<'a, B: Kernels> Block<'a, B> {
    pub(super) fn chunks(&self, vocabulary: &'a Vocabulary<B>) -> impl Iterator<Item = Chunk<'a, B>> {
        let step = self.input.chunk_tokens();
        runs(self.end - self.start, step).map(move |(start, end)| Chunk::new(self, vocabulary, start, end))
    }

    /// Contexts of the block's tokens `start .. end`, `[tokens·K, d]`.
    pub(crate) fn contexts(&self, start: usize, end: usize) -> Floats<B> {
        let components = self.input.components();
        self.contexts.clone().rows(start * components..end * components)
    }
}

/// A run of tokens that is worked on at a time, with its logits.
pub(super) struct Chunk<'a, B: Kernels> {
    pub(super) input: &'a LikelihoodInput<Floats<B>>,
    pub(super) vocabulary: &'a Vocabulary<B>,
    pub(super) table: Option<Floats<B>>,
    /// The first token, and the one after the last.
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) components: usize,
    /// `[tokens·K, d]`
    pub(super) contexts: Floats<B>,
    /// `[tokens, K]`
    pub(super) log_prior: Option<Floats<B>>,
    /// Where words mix the contexts by gates.
    pub(super) gated: Option<gated::Chunk<B>>,
    /// `z`, `[tokens·K, V]`; that of a masked word is a number without meaning.
    pub(super) logits: Floats<B>,
}

impl<'a, B: Kernels> Chunk<'a, B> {
    /// Tokens `start .. end` of a block.
    fn new(block: &Block<'a, B>, vocabulary: &'a Vocabulary<B>, start: usize, end: usize) -> Self {
        let input = block.input;
        let contexts = block.contexts(start, end);
        let gated = match &block.source {
            ContextSource::Gated(args) => Some(gated::Chunk::new(args.slice(start, end), &input.weight)),
            _ => None,
        };
        let (start, end) = (block.start + start, block.start + end);
        let product = B::product(contexts.clone(), input.weight.clone().transpose(), input.precision);
        let logits = match &vocabulary.bias {
            Some(bias) => product + bias.clone(),
            None => product,
        };
        let logits = match &gated {
            Some(gated) => gated.offset(logits),
            None => logits,
        };
        Self {
            input,
            vocabulary,
            table: block.table.clone(),
            start,
            end,
            components: input.components(),
            contexts,
            log_prior: input.log_prior.as_ref().map(|prior| prior.clone().rows(start..end)),
            gated,
            logits,
        }
    }

    pub(super) fn tokens(&self) -> usize {
        self.end - self.start
    }

    /// The softmax of `f(z)/τ` in every row, without its masked words.
    pub(super) fn softmax(&self) -> Softmax<B> {
        let mapped = self.input.map.apply(self.logits.clone(), self.table.as_ref());
        let mapped = match self.input.temperature {
            1.0 => mapped,
            temperature => mapped.mul_scalar(1.0 / temperature),
        };
        // The maximum is a constant of the gradient, where this is differentiated by composition.
        let constant = mapped.clone().detach();
        let Some(masked) = &self.vocabulary.masked else {
            let max = constant.max_dim(1);
            let shifted = mapped - max.clone();
            let exp = shifted.clone().exp();
            return Softmax { max, sum: exp.clone().sum_dim(1), shifted, exp };
        };
        let lowest = if constant.dtype() == DType::F64 { f64::MIN } else { f32::MIN.into() };
        let max = masked.fill(constant, lowest).max_dim(1);
        let max = max * (-masked.no_word_left.clone()).add_scalar(1.0);
        let shifted = masked.fill(mapped - max.clone(), 0.0);
        let exp = masked.fill(shifted.clone().exp(), 0.0);
        let sum = exp.clone().sum_dim(1) + masked.no_word_left.clone();
        Softmax { max, sum, shifted, exp }
    }

    /// `log π_k + log p_k(v)`, `[tokens, K, words]`, of log-probabilities of some words, `[tokens·K, words]`.
    pub(super) fn joint(&self, component_log_probs: Floats<B>) -> Floats<B> {
        let [_, words] = component_log_probs.dims();
        let x = component_log_probs.reshape([self.tokens(), self.components, words]);
        match &self.log_prior {
            Some(prior) => x + prior.clone().reshape([self.tokens(), self.components, 1]),
            None => x,
        }
    }
}

/// A softmax in every row; the columns of masked words hold 0.
pub(super) struct Softmax<B: Kernels> {
    /// The largest `a = f(z)/τ`, `[rows, 1]`.
    pub(super) max: Floats<B>,
    /// `a − max`, `[rows, V]`.
    pub(super) shifted: Floats<B>,
    /// `e^{a − max}`, `[rows, V]`.
    pub(super) exp: Floats<B>,
    /// `Σ_v e^{a_v − max}`, `[rows, 1]`; 1 where no word is left.
    pub(super) sum: Floats<B>,
}

impl<B: Kernels> Softmax<B> {
    /// `log p`, `[rows, V]`; a number without meaning for masked words.
    ///
    /// The maximum is subtracted first: where logits are large, a log-probability near 0 keeps its own digits.
    pub(super) fn log_probs(&self) -> Floats<B> {
        self.shifted.clone() - self.sum.clone().log()
    }

    /// `log Σ_v e^{a_v}`, `[rows, 1]`.
    pub(super) fn log_sum_exp(&self) -> Floats<B> {
        self.sum.clone().log() + self.max.clone()
    }
}

/// The gradients of logits `z`, and of the logit map's table, for those of `f(z)/τ`; all `[tokens·K, V]` but the table's.
pub(super) fn logit_gradients<B: Kernels>(
    input: &LikelihoodInput<Floats<B>>,
    table: Option<&Floats<B>>,
    logits: Floats<B>,
    d_mapped: Floats<B>,
) -> (Floats<B>, Option<Floats<B>>) {
    input.map.vjp(logits, table, d_mapped.mul_scalar(1.0 / input.temperature))
}
