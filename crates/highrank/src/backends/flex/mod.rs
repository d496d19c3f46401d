//! Native CPU kernel of the likelihood on Burn's Flex backend.
//!
//! A chunk of tokens: one matrix product into a buffer, then every token's rows in one visit while they are in cache
//! (bias, map, maximum, exponentials and their sum, responsibilities, gradient in place), then two products out of the
//! buffer. Straight on the tensors' memory; f32 and f64 by the same code, f16 and bf16 in f32. Targets that are distributions
//! over all words are left to the portable body.
//!
//! | file | job |
//! |---|---|
//! | `goal.rs` | targets and options of each token |
//! | `vocabulary.rs` | bias and masked words |
//! | `sweep.rs` | chunks, products, threads |
//! | `token.rs` | one token's rows |
//! | `component.rs` | one of a token's rows as part of its distribution |
//! | `visit.rs` | what smoothing and statistics need of all words |
//! | `row.rs` | maximum, exponentials and sums of one row |
//! | `latent.rs` | the latent layer of a mixture |
//! | `map.rs` | logit maps on slices |
//! | `plif.rs` | the one with tables |
//!
//! Exponentials and products come from [`highrank_kernels::cpu`].

mod component;
mod goal;
mod latent;
mod map;
mod plif;
mod row;
mod sweep;
#[cfg(test)]
mod tests;
mod token;
mod visit;
mod vocabulary;

use burn::backend::Flex;
use burn::backend::tensor::Device;
use burn::tensor::DType;
use burn_flex::FlexTensor;
use highrank_kernels::cpu::{self, Buffer, Real, contiguous, in_pool, slice};
use highrank_kernels::{Floats, Ints, Precision, precision};

use super::dispatched::dispatch_to_kernels;
use crate::likelihood::{default_memory_budget, portable};
use crate::ops::{
    ContextSource, Gradients, Kernels, LatentArgs, LatentGradients, LatentWanted, Likelihood, Objective,
    Scores, Statistic, Targets, Wanted,
};
use goal::Goal;
use vocabulary::Vocabulary;

dispatch_to_kernels!(Flex);

impl Kernels for Flex {
    fn score(
        input: Likelihood<Floats<Self>>,
        objective: Objective<Floats<Self>, Ints<Self>>,
    ) -> Scores<Floats<Self>> {
        match is_native(&input, &objective) {
            true => score(input, objective, None, Wanted::ALL).0,
            false => portable::score(&input, &objective),
        }
    }

    fn score_and_gradients(
        input: Likelihood<Floats<Self>>,
        objective: Objective<Floats<Self>, Ints<Self>>,
        upstream: Floats<Self>,
        wanted: Wanted,
    ) -> (Scores<Floats<Self>>, Gradients<Floats<Self>>) {
        match is_native(&input, &objective) {
            true => score(input, objective, Some(upstream), wanted),
            false => portable::score_and_gradients(&input, &objective, upstream, wanted),
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

/// Whether the kernel takes a call.
fn is_native(input: &Likelihood<Floats<Flex>>, objective: &Objective<Floats<Flex>, Ints<Flex>>) -> bool {
    input.is_exact() && !matches!(objective.targets, Targets::Distributions(_))
}

/// Losses and gradients, half precision by way of f32.
fn score(
    input: Likelihood<Floats<Flex>>,
    objective: Objective<Floats<Flex>, Ints<Flex>>,
    upstream: Option<Floats<Flex>>,
    wanted: Wanted,
) -> (Scores<Floats<Flex>>, Gradients<Floats<Flex>>) {
    let dtype = input.wide();
    let (input, upstream) = (input.widened(), upstream.map(|upstream| upstream.cast(dtype)));
    match dtype {
        DType::F64 => run::<f64>(&input, &objective, upstream, wanted),
        _ => run::<f32>(&input, &objective, upstream, wanted),
    }
}

/// # Panics
/// If a tensor has more values than the others ask for, or less.
fn assert_length(name: &str, tensor: Option<&FlexTensor>, expected: usize) {
    let Some(tensor) = tensor else { return };
    let shape = tensor.layout().shape().clone();
    assert_eq!(shape.num_elements(), expected, "likelihood: values of {name}, of shape {shape:?}");
}

fn run<T: Real>(
    input: &Likelihood<Floats<Flex>>,
    objective: &Objective<Floats<Flex>, Ints<Flex>>,
    upstream: Option<Floats<Flex>>,
    wanted: Wanted,
) -> (Scores<Floats<Flex>>, Gradients<Floats<Flex>>) {
    let (tokens, components, [vocab, d]) = (input.tokens(), input.components(), input.weight.dims());
    let log_prior = input.log_prior.as_ref().map(contiguous);
    let weight = contiguous(&input.weight);
    let params = input.map_params.as_ref().map(contiguous);
    let upstream = upstream.as_ref().map(contiguous);
    assert_length("log_prior", log_prior.as_ref(), tokens * components);
    assert_length("upstream gradient", upstream.as_ref(), tokens);
    let bias = input.bias.as_ref().map(contiguous);
    assert_length("bias", bias.as_ref(), vocab);
    let vocabulary = Vocabulary::<T>::new(bias);
    let goal = Goal::new(input, objective, vocabulary.masked.len());

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
            bias: vocabulary.bias(),
            masked: &vocabulary.masked,
            map: map::Map::new(input.map, params.as_ref().map_or(&[][..], slice)),
            temperature: T::of(input.temperature),
        },
        goal: &goal,
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
    let scores = Scores {
        loss: Floats::new(cpu::tensor(output.loss, [tokens])),
        statistics: objective
            .statistics
            .then(|| Floats::new(cpu::tensor(output.statistics, [tokens, Statistic::COUNT]))),
    };
    (scores, gradients)
}
