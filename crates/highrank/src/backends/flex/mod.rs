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
//! | `latent.rs` | the latent layer of a mixture |
//! | `map.rs` | logit maps on slices |
//! | `plif.rs` | the one with tables |
//!
//! Exponentials and products come from [`highrank_kernels::cpu`].

mod latent;
mod map;
mod plif;
mod sweep;
mod token;

use burn::backend::Flex;
use burn::backend::tensor::Device;
use burn::tensor::DType;
use highrank_kernels::cpu::{self, Buffer, Real, contiguous, in_pool, slice};
use highrank_kernels::{Floats, Ints, Precision, precision};

use super::dispatched::dispatch_to_kernels;
use crate::likelihood::{default_memory_budget, portable};
use crate::ops::{
    ContextSource, Gradients, Kernels, LatentArgs, LatentGradients, LatentWanted, Likelihood, Targets, Wanted,
};

dispatch_to_kernels!(Flex);

impl Kernels for Flex {
    fn nll(input: Likelihood<Floats<Self>>, targets: Targets<Floats<Self>, Ints<Self>>) -> Floats<Self> {
        match targets {
            Targets::Words(words) if input.is_exact() => score(input, words, None, Wanted::ALL).0,
            targets => portable::nll(&input, &targets),
        }
    }

    fn nll_and_gradients(
        input: Likelihood<Floats<Self>>,
        targets: Targets<Floats<Self>, Ints<Self>>,
        upstream: Floats<Self>,
        wanted: Wanted,
    ) -> (Floats<Self>, Gradients<Floats<Self>>) {
        match targets {
            Targets::Words(words) if input.is_exact() => score(input, words, Some(upstream), wanted),
            targets => portable::nll_and_gradients(&input, &targets, upstream, wanted),
        }
    }

    fn product(lhs: Floats<Self>, rhs: Floats<Self>, precision: Precision) -> Floats<Self> {
        precision::product(lhs, rhs, precision)
    }

    fn latent(args: LatentArgs<Floats<Self>>) -> Floats<Self> {
        latent::latent(args)
    }

    fn latent_backward(
        args: LatentArgs<Floats<Self>>,
        output: Floats<Self>,
        grad: Floats<Self>,
        wanted: LatentWanted,
    ) -> LatentGradients<Floats<Self>> {
        latent::latent_backward(args, output, grad, wanted)
    }

    fn memory_budget(decoder_bytes: usize, _device: &Device<Self>) -> usize {
        default_memory_budget(decoder_bytes)
    }

    fn is_cpu(_device: &Device<Self>) -> bool {
        true
    }
}

/// Cross-entropies and gradients in the tensors' own precision, half precision by way of f32.
fn score(
    input: Likelihood<Floats<Flex>>,
    words: Ints<Flex>,
    upstream: Option<Floats<Flex>>,
    wanted: Wanted,
) -> (Floats<Flex>, Gradients<Floats<Flex>>) {
    let dtype = input.weight.dtype();
    match dtype {
        DType::F32 => run::<f32>(&input, words, upstream, wanted),
        DType::F64 => run::<f64>(&input, words, upstream, wanted),
        _ => {
            let wide = input.map(|tensor| tensor.cast(DType::F32));
            let upstream = upstream.map(|upstream| upstream.cast(DType::F32));
            let (nll, gradients) = run::<f32>(&wide, words, upstream, wanted);
            (nll.cast(dtype), gradients.map_some(|gradient| gradient.cast(dtype)))
        }
    }
}

fn run<T: Real>(
    input: &Likelihood<Floats<Flex>>,
    words: Ints<Flex>,
    upstream: Option<Floats<Flex>>,
    wanted: Wanted,
) -> (Floats<Flex>, Gradients<Floats<Flex>>) {
    let (tokens, components, [vocab, d]) = (input.tokens(), input.components(), input.weight.dims());
    let log_prior = input.log_prior.as_ref().map(contiguous);
    let weight = contiguous(&input.weight);
    let bias = input.bias.as_ref().map(contiguous);
    let params = input.map_params.as_ref().map(contiguous);
    let upstream = upstream.as_ref().map(contiguous);
    let words: Vec<usize> = words.into_data().iter::<i64>().map(|word| word as usize).collect();
    if let Some((token, word)) = words.iter().enumerate().find(|(_, word)| **word >= vocab) {
        panic!("likelihood: target {} at token {token} is outside the vocabulary 0..{vocab}", *word as i64);
    }

    let (given, latent) = match &input.contexts {
        ContextSource::Given(contexts) => (Some(contiguous(contexts)), None),
        ContextSource::Latent(args) => (None, Some(latent::Inputs::new(args))),
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
            hidden: Some(Floats::new(gradient.into_tensor([tokens * components, d]))),
            weight: None,
            bias: None,
        },
        sweep::ContextGradient::Layer(gradients) => {
            latent.as_ref().expect("the layer that made the contexts").finish(gradients)
        }
    };
    let vector = |values: Buffer<T>| {
        let len = values.len();
        Floats::new(values.into_tensor([len]))
    };
    let gradients = Gradients {
        contexts: layer.hidden,
        latent_weight: layer.weight,
        latent_bias: layer.bias,
        log_prior: output.log_prior.map(|values| Floats::new(values.into_tensor([tokens, components]))),
        weight: output.weight.map(|values| Floats::new(values.into_tensor([vocab, d]))),
        bias: output.bias.map(vector),
        map_params: output.params.filter(|_| wanted.map_params).map(vector),
    };
    (Floats::new(cpu::tensor(output.nll, [tokens])), gradients)
}
