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
//! | `plif.rs` | the one with tables |
//!
//! Exponentials and products come from [`crate::cpu`].

mod map;
mod plif;
mod sweep;
mod token;

use burn::backend::Flex;
use burn::tensor::{DType, Int, Tensor};

use super::{Gradients, Likelihood, LikelihoodBackend, Targets, Wanted, portable};
use crate::context::ContextSource;
use crate::context::latent::{self, LatentArgs, LatentGradients, LatentMask, LatentWanted};
use crate::cpu::{self, Buffer, Real, contiguous, in_pool, slice};

impl LikelihoodBackend for Flex {
    fn nll(input: Likelihood<Self>, targets: Targets<Self>) -> Tensor<Self, 1> {
        match targets {
            Targets::Words(words) if input.is_exact() => score(input, &words, None, Wanted::ALL).0,
            targets => portable::nll(&input, &targets),
        }
    }

    fn nll_and_gradients(
        input: Likelihood<Self>,
        targets: Targets<Self>,
        upstream: Tensor<Self, 1>,
        wanted: Wanted,
    ) -> (Tensor<Self, 1>, Gradients<Self>) {
        match targets {
            Targets::Words(words) if input.is_exact() => score(input, &words, Some(upstream), wanted),
            targets => portable::nll_and_gradients(&input, &targets, upstream, wanted),
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
    let dtype = input.weight.dtype();
    match dtype {
        DType::F32 => run::<f32>(&input, words, upstream, wanted),
        DType::F64 => run::<f64>(&input, words, upstream, wanted),
        _ => {
            let wide = cast(input, DType::F32);
            let upstream = upstream.map(|upstream| upstream.cast(DType::F32));
            let (nll, gradients) = run::<f32>(&wide, words, upstream, wanted);
            let gradients = Gradients {
                contexts: gradients.contexts.map(|gradient| gradient.cast(dtype)),
                latent_weight: gradients.latent_weight.map(|gradient| gradient.cast(dtype)),
                latent_bias: gradients.latent_bias.map(|gradient| gradient.cast(dtype)),
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
        contexts: match input.contexts {
            ContextSource::Given(contexts) => ContextSource::Given(contexts.cast(dtype)),
            ContextSource::Latent(args) => ContextSource::Latent(LatentArgs {
                hidden: args.hidden.cast(dtype),
                weight: args.weight.cast(dtype),
                bias: args.bias.map(|bias| bias.cast(dtype)),
                mask: args.mask.map(|mask| LatentMask { values: mask.values.cast(dtype), ..mask }),
                precision: args.precision,
            }),
        },
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
    let (tokens, components, [vocab, d]) = (input.tokens(), input.components(), input.weight.dims());
    let log_prior = input.log_prior.as_ref().map(contiguous);
    let weight = contiguous(&input.weight);
    let bias = input.bias.as_ref().map(contiguous);
    let params = input.map_params.as_ref().map(contiguous);
    let upstream = upstream.as_ref().map(contiguous);
    let words: Vec<usize> = words.to_data().iter::<i64>().map(|word| word as usize).collect();
    if let Some((token, word)) = words.iter().enumerate().find(|(_, word)| **word >= vocab) {
        panic!("likelihood: target {} at token {token} is outside the vocabulary 0..{vocab}", *word as i64);
    }

    let (given, latent) = match &input.contexts {
        ContextSource::Given(contexts) => (Some(contiguous(contexts)), None),
        ContextSource::Latent(args) => (None, Some(latent::flex::Inputs::new(args))),
    };
    let contexts = match (&given, &latent) {
        (Some(contexts), _) => sweep::Source::Given(slice(contexts)),
        (None, Some(latent)) => sweep::Source::Latent(latent.layer()),
        (None, None) => unreachable!("contexts have one of two sources"),
    };
    let mut d_contexts = match &latent {
        _ if upstream.is_none() || !wanted.context_gradient(&input.contexts) => {
            sweep::ContextGradient::Unwanted
        }
        Some(latent) => sweep::ContextGradient::Layer(latent.room(wanted.latent())),
        None => sweep::ContextGradient::Given(Buffer::new(tokens * components * d)),
    };
    let kernel = sweep::Input {
        contexts,
        log_prior: log_prior.as_ref().map(slice),
        weight: slice(&weight),
        shared: token::Shared {
            vocab,
            bias: bias.as_ref().map(slice),
            map: map::Map::new(input.map, params.as_ref().map_or(&[][..], slice)),
        },
        words: &words,
        upstream: upstream.as_ref().map(slice),
        components,
        d,
        chunk_tokens: input.chunk_tokens(),
        block_tokens: input.block_tokens(),
    };
    let mut output = sweep::Output::<T>::new(&kernel, wanted);
    in_pool(|| sweep::run(&kernel, &mut d_contexts, &mut output));

    let layer = match d_contexts {
        sweep::ContextGradient::Unwanted => LatentGradients { hidden: None, weight: None, bias: None },
        sweep::ContextGradient::Given(gradient) => LatentGradients {
            hidden: Some(cpu::wrap(gradient.into_tensor([tokens * components, d]))),
            weight: None,
            bias: None,
        },
        sweep::ContextGradient::Layer(gradients) => {
            latent.as_ref().expect("the layer that made the contexts").finish(gradients)
        }
    };
    let vector = |values: Buffer<T>| {
        let len = values.len();
        cpu::wrap(values.into_tensor([len]))
    };
    let gradients = Gradients {
        contexts: layer.hidden,
        latent_weight: layer.weight,
        latent_bias: layer.bias,
        log_prior: output.log_prior.map(|values| cpu::wrap(values.into_tensor([tokens, components]))),
        weight: output.weight.map(|values| cpu::wrap(values.into_tensor([vocab, d]))),
        bias: output.bias.map(vector),
        map_params: output.params.filter(|_| wanted.map_params).map(vector),
    };
    (cpu::wrap(cpu::tensor(output.nll, [tokens])), gradients)
}
