//! What every call of the likelihood reads, and buffers for the gradients of that.

use core::ops::Range;

use burn::backend::Flex;
use highrank_kernels::cpu::{Buffer, Factor, Real};
use highrank_kernels::{Floats, Precision};

use super::mapped_logits::MappedLogits;
use super::tensors::{as_factor, assert_length, factor, gradient_buffer, row_major, values};
use super::{gated, latent};
use crate::ops::{ContextSource, Gradients, LikelihoodInput, Wanted};

/// The likelihood's tensors row-major in the type of sums, but for factors of products that may stay bf16.
///
/// # Panics
/// If contexts with gates have several components.
pub(super) fn as_read(input: LikelihoodInput<Floats<Flex>>) -> LikelihoodInput<Floats<Flex>> {
    let (sums, components) = (input.wide(), input.components());
    let wide = |tensor: Floats<Flex>| row_major(tensor.cast(sums));
    let weight = row_major(as_factor(input.weight, sums));
    let contexts = match input.contexts {
        ContextSource::Given(contexts) => ContextSource::Given(row_major(as_factor(contexts, sums))),
        ContextSource::Latent(args) => ContextSource::Latent(latent::as_read(args, sums)),
        ContextSource::Gated(args) => {
            assert_eq!(components, 1, "likelihood: components of contexts with gates");
            ContextSource::Gated(gated::as_read(args, sums))
        }
    };
    LikelihoodInput {
        contexts,
        log_prior: input.log_prior.map(wide),
        bias: input.bias.map(wide),
        map_params: input.map_params.map(wide),
        chunk_bytes: input.chunk_bytes,
        weight,
        map: input.map,
        temperature: input.temperature,
        precision: input.precision,
    }
}

/// The likelihood as the sweep reads it.
pub(super) struct Call<'a, T> {
    pub(super) contexts: &'a ContextSource<Floats<Flex>>,
    /// `[N, K]`
    pub(super) log_prior: Option<&'a [T]>,
    /// `[V, d]`
    pub(super) decoder: Factor<'a, T>,
    pub(super) logits: MappedLogits<'a, T>,
    /// `N`
    pub(super) tokens: usize,
    /// `K`
    pub(super) components: usize,
    pub(super) d: usize,
    /// The component of each token that alone is asked for, `[N]`; nothing if all are.
    pub(super) chosen: &'a [usize],
    /// Tokens whose logits exist at a time.
    pub(super) chunk: usize,
    /// Tokens whose contexts do.
    pub(super) block: usize,
    /// Of the products with the decoder.
    pub(super) precision: Precision,
}

impl<'a, T: Real> Call<'a, T> {
    /// Of a likelihood [as it is read](as_read).
    ///
    /// # Panics
    /// If tensors do not fit each other.
    pub(super) fn new(input: &'a LikelihoodInput<Floats<Flex>>, chosen: &'a [usize]) -> Self {
        let (tokens, components, [vocab, d]) = (input.tokens(), input.components(), input.weight.dims());
        assert_length("log_prior", input.log_prior.as_ref(), tokens * components);
        assert_length("bias", input.bias.as_ref(), vocab);
        // One of one component is no choice.
        let chosen = if components == 1 { &[] } else { chosen };
        let [chunk, block] = match chosen {
            [] => [input.chunk_tokens(), input.block_tokens()],
            // Each token's contexts are more than what becomes of them.
            _ => {
                let numbers = input.chunk_numbers();
                let block = (numbers / 2 / (components * d).max(1)).max(1);
                [(numbers / vocab.max(1)).clamp(1, block), block]
            }
        };
        let block = even(tokens, block);
        Self {
            contexts: &input.contexts,
            log_prior: input.log_prior.as_ref().map(values),
            decoder: factor(&input.weight),
            logits: MappedLogits::new(input),
            tokens,
            components,
            d,
            chosen,
            chunk: even(block, chunk),
            block,
            precision: input.precision,
        }
    }

    /// Rows of logits that a token has.
    pub(super) fn rows_of_token(&self) -> usize {
        if self.chosen.is_empty() { self.components } else { 1 }
    }

    /// The log-priors of some of a token's rows, or nothing.
    pub(super) fn log_prior_of(&self, token: usize, rows: Range<usize>) -> &'a [T] {
        let first = token * self.components;
        self.log_prior.map_or(&[], |all| &all[first + rows.start..first + rows.end])
    }
}

/// The length of runs of at most `most` tokens that are as even as can be: a short last chunk would read all of the
/// decoder for few tokens.
fn even(tokens: usize, most: usize) -> usize {
    tokens.div_ceil(tokens.div_ceil(most).max(1))
}

/// Buffers for the wanted gradients of a likelihood [as it is read](as_read).
///
/// To be made by the calling thread: memory that pool threads allocate in turns is held by each of them.
pub(super) fn gradient_buffers<T: Real>(
    input: &LikelihoodInput<Floats<Flex>>,
    wanted: Wanted,
) -> Gradients<Buffer<T>> {
    let (tokens, wanted) = (input.tokens(), input.inputs().zip(wanted));
    let mut gradients =
        wanted.map(|(tensor, is_wanted)| Some(gradient_buffer::<T>(tensor.filter(|_| is_wanted)?, tokens)));
    if let Some(bias) = &mut gradients.gated.bias {
        bias.fill(T::ZERO);
    }
    gradients
}

/// The tensors of [`gradient_buffers`].
pub(super) fn gradient_tensors<T: Real>(
    input: &LikelihoodInput<Floats<Flex>>,
    gradients: Gradients<Buffer<T>>,
) -> Gradients<Floats<Flex>> {
    let tensors = input.inputs().zip(gradients);
    let mut gradients =
        tensors.map(|(tensor, gradient)| Some(Floats::new(gradient?.into_tensor(tensor?.shape()))));
    gradients.gated.bias = gradients.gated.bias.map(Floats::transpose);
    gradients
}
