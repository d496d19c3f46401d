//! Native CPU kernel of the likelihood on Burn's Flex backend.
//!
//! A chunk of tokens: one matrix product into a buffer, then every token's rows in one visit while they are in cache
//! (bias, map, maximum, exponentials and their sum, responsibilities, gradient in place), then two products out of the
//! buffer. Straight on the tensors' memory; f32 and f64 by the same code, f16 and bf16 in f32.
//!
//! | file | job |
//! |---|---|
//! | `sweep.rs` | chunks, products, threads |
//! | `token.rs` | one token's rows |
//! | `map.rs` | logit maps on slices |
//!
//! Exponentials and products come from [`crate::cpu`].

mod map;
mod sweep;
mod token;

use burn::backend::Flex;
use burn::tensor::{DType, Int, Tensor};

use super::{Gradients, Likelihood, LikelihoodBackend, Targets, Wanted, portable};
use crate::context::latent::{self, LatentArgs, LatentGradients, LatentWanted};
use crate::cpu::{self, Real, contiguous, in_pool, slice};

impl LikelihoodBackend for Flex {
    fn nll(input: Likelihood<Self>, targets: Targets<Self>) -> Tensor<Self, 1> {
        match targets {
            Targets::Words(words) => score(input, &words, None, Wanted::ALL).0,
            Targets::Distributions(_) => portable::nll(&input, &targets),
        }
    }

    fn nll_and_gradients(
        input: Likelihood<Self>,
        targets: Targets<Self>,
        upstream: Tensor<Self, 1>,
        wanted: Wanted,
    ) -> (Tensor<Self, 1>, Gradients<Self>) {
        match targets {
            Targets::Words(words) => score(input, &words, Some(upstream), wanted),
            Targets::Distributions(_) => portable::nll_and_gradients(&input, &targets, upstream, wanted),
        }
    }

    fn latent(args: LatentArgs<Self>) -> Tensor<Self, 2> {
        latent::flex::latent(args)
    }

    fn latent_backward(
        args: LatentArgs<Self>,
        output: Tensor<Self, 2>,
        grad: Tensor<Self, 2>,
        wanted: LatentWanted,
    ) -> LatentGradients<Self> {
        latent::flex::latent_backward(args, output, grad, wanted)
    }

    fn reads_are_free() -> bool {
        true
    }
}

/// Cross-entropies and gradients in the tensors' own precision, half precision by way of f32.
fn score(
    input: Likelihood<Flex>,
    words: &Tensor<Flex, 1, Int>,
    upstream: Option<Tensor<Flex, 1>>,
    wanted: Wanted,
) -> (Tensor<Flex, 1>, Gradients<Flex>) {
    let dtype = input.contexts.dtype();
    match dtype {
        DType::F32 => run::<f32>(&input, words, upstream, wanted),
        DType::F64 => run::<f64>(&input, words, upstream, wanted),
        _ => {
            let wide = cast(input, DType::F32);
            let upstream = upstream.map(|upstream| upstream.cast(DType::F32));
            let (nll, gradients) = run::<f32>(&wide, words, upstream, wanted);
            let gradients = Gradients {
                contexts: gradients.contexts.map(|gradient| gradient.cast(dtype)),
                log_prior: gradients.log_prior.map(|gradient| gradient.cast(dtype)),
                weight: gradients.weight.map(|gradient| gradient.cast(dtype)),
                bias: gradients.bias.map(|gradient| gradient.cast(dtype)),
                map_params: gradients.map_params.map(|gradient| gradient.cast(dtype)),
            };
            (nll.cast(dtype), gradients)
        }
    }
}

fn cast(input: Likelihood<Flex>, dtype: DType) -> Likelihood<Flex> {
    Likelihood {
        contexts: input.contexts.cast(dtype),
        log_prior: input.log_prior.map(|prior| prior.cast(dtype)),
        weight: input.weight.cast(dtype),
        bias: input.bias.map(|bias| bias.cast(dtype)),
        map_params: input.map_params.map(|params| params.cast(dtype)),
        ..input
    }
}

fn run<T: Real>(
    input: &Likelihood<Flex>,
    words: &Tensor<Flex, 1, Int>,
    upstream: Option<Tensor<Flex, 1>>,
    wanted: Wanted,
) -> (Tensor<Flex, 1>, Gradients<Flex>) {
    let (tokens, components, vocab) = (input.tokens(), input.components(), input.vocab());
    let d = input.contexts.dims()[1];
    let contexts = contiguous(&input.contexts);
    let log_prior = input.log_prior.as_ref().map(contiguous);
    let weight = contiguous(&input.weight);
    let bias = input.bias.as_ref().map(contiguous);
    let params = input.map_params.as_ref().map(contiguous);
    let upstream = upstream.as_ref().map(contiguous);
    let words: Vec<usize> = words.to_data().iter::<i64>().map(|word| word as usize).collect();
    if let Some((token, word)) = words.iter().enumerate().find(|(_, word)| **word >= vocab) {
        panic!("likelihood: target {} at token {token} is outside the vocabulary 0..{vocab}", *word as i64);
    }

    let kernel = sweep::Input {
        contexts: slice(&contexts),
        log_prior: log_prior.as_ref().map(slice),
        weight: slice(&weight),
        shared: token::Shared {
            vocab,
            bias: bias.as_ref().map(slice),
            map: map::Map::new(input.map, params.as_ref().map_or(&[][..], slice)),
        },
        words: &words,
        components,
        d,
        chunk_tokens: input.chunk_tokens(),
        num_params: input.map.num_params(),
    };
    let upstream = upstream.as_ref().map(slice);
    let mut output = sweep::Output::<T>::new(&kernel, upstream.is_some(), wanted);
    in_pool(|| sweep::run(&kernel, upstream, &mut output));

    fn tensor<T: Real, const D: usize>(values: Vec<T>, shape: [usize; D]) -> Option<Tensor<Flex, D>> {
        (!values.is_empty()).then(|| cpu::wrap(cpu::tensor(values, shape)))
    }
    let num_params = output.params.len();
    let gradients = Gradients {
        contexts: tensor(output.contexts, [tokens * components, d]),
        log_prior: tensor(output.log_prior, [tokens, components]),
        weight: tensor(output.weight, [vocab, d]),
        bias: tensor(output.bias, [vocab]),
        map_params: tensor(output.params, [num_params]).filter(|_| wanted.map_params),
    };
    (tensor(output.nll, [tokens]).expect("at least one token"), gradients)
}
