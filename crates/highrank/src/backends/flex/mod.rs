//! Native CPU kernel of the likelihood on Burn's Flex backend.
//!
//! A chunk of tokens: one matrix product into a buffer, then every token's rows in one visit while they are in cache
//! (bias, map, maximum, exponentials and their sum, responsibilities, gradient in place), then two products out of the
//! buffer, each at the [precision](Precision) that is asked for. Straight on the tensors' memory; f32 and f64 by the same
//! code, f16 and bf16 in f32. Factors of products that are bf16 enter them as they are, without a widened copy.
//!
//! | file | job |
//! |---|---|
//! | `goal.rs` | targets and options of each token |
//! | `vocabulary.rs` | bias and masked words |
//! | `call.rs` | what a call reads and makes, on slices |
//! | `factor.rs` | factors of products, f32, f64 or bf16 |
//! | `sweep.rs` | chunks and products |
//! | `deal.rs` | a chunk's tokens, dealt to threads |
//! | `words.rs` | what logits become before their softmax |
//! | `token.rs` | one token's rows |
//! | `component.rs` | one of a token's rows as part of its distribution |
//! | `visit.rs` | what smoothing and statistics need of all words |
//! | `row.rs` | maximum, exponentials and sums of one row |
//! | `latent.rs` | the latent layer of a mixture |
//! | `mix.rs` | the mixed context of a Mixture of Contexts |
//! | `gated.rs`, `gated_rows.rs` | the contexts of a Mixtape, and the gates of its words |
//! | `product.rs` | products of tensors |
//! | `predict/` | predictions |
//!
//! Logit maps on slices come from [`logit_map`](crate::logit_map), one file a map; exponentials and products from
//! [`highrank_kernels::cpu`].

mod call;
mod component;
mod deal;
mod factor;
mod gated;
mod gated_rows;
mod goal;
mod latent;
mod mix;
mod predict;
mod product;
mod row;
mod slices;
mod sweep;
#[cfg(test)]
mod tests;
mod token;
mod visit;
mod vocabulary;
mod words;

use burn::backend::Flex;
use burn::tensor::DType;
use highrank_kernels::cpu::{self, Buffer, Real, contiguous, in_pool, slice};
use highrank_kernels::{Floats, Ints, Precision};

use crate::likelihood::LikelihoodKernels;
use crate::logit_map::CpuMap;
use crate::ops::{
    Gradients, Kernels, LatentArgs, LatentGradients, LatentWanted, Likelihood, MixGradients, MixWanted,
    Objective, Prediction, Scores, Statistic, Wanted,
};
use call::{ContextGradient, Contexts, Input, Output, contexts_as_read};
use factor::{Stored, as_factor};
use goal::Goal;
use slices::assert_length;
use vocabulary::Vocabulary;
use words::Words;

dispatch_to_kernels!(Flex);

impl Kernels for Flex {
    fn product(lhs: Floats<Self>, rhs: Floats<Self>, precision: Precision) -> Floats<Self> {
        product::product(lhs, rhs, precision)
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

    fn mix(prior: Floats<Self>, latent: Floats<Self>) -> Floats<Self> {
        mix::mix(prior, latent)
    }

    fn mix_backward(
        prior: Floats<Self>,
        latent: Floats<Self>,
        grad: Floats<Self>,
        wanted: MixWanted,
    ) -> MixGradients<Floats<Self>> {
        mix::mix_backward(prior, latent, grad, wanted)
    }
}

impl LikelihoodKernels for Flex {
    fn score(
        input: Likelihood<Floats<Self>>,
        objective: Objective<Floats<Self>, Ints<Self>>,
    ) -> Scores<Floats<Self>> {
        score(input, objective, None, Wanted::ALL).0
    }

    fn score_and_gradients(
        input: Likelihood<Floats<Self>>,
        objective: Objective<Floats<Self>, Ints<Self>>,
        upstream: Floats<Self>,
        wanted: Wanted,
    ) -> (Scores<Floats<Self>>, Gradients<Floats<Self>>) {
        score(input, objective, Some(upstream), wanted)
    }

    fn predict(input: Likelihood<Floats<Self>>, prediction: Prediction<'_>) -> Option<Floats<Self>> {
        predict::predict(input, prediction)
    }
}

/// Losses and gradients, half precision by way of f32.
fn score(
    input: Likelihood<Floats<Flex>>,
    objective: Objective<Floats<Flex>, Ints<Flex>>,
    upstream: Option<Floats<Flex>>,
    wanted: Wanted,
) -> (Scores<Floats<Flex>>, Gradients<Floats<Flex>>) {
    let dtype = input.wide();
    let (input, upstream) = (as_read(input), upstream.map(|upstream| upstream.cast(dtype)));
    match dtype {
        DType::F64 => run::<f64>(&input, &objective, upstream, wanted),
        _ => run::<f32>(&input, &objective, upstream, wanted),
    }
}

/// The likelihood's tensors in the type of sums, but for factors of products that may stay bf16.
fn as_read(input: Likelihood<Floats<Flex>>) -> Likelihood<Floats<Flex>> {
    let dtype = input.wide();
    let weight = as_factor(input.weight, dtype);
    Likelihood {
        contexts: contexts_as_read(input.contexts, dtype),
        log_prior: input.log_prior.map(|prior| prior.cast(dtype)),
        bias: input.bias.map(|bias| bias.cast(dtype)),
        map_params: input.map_params.map(|params| params.cast(dtype)),
        // A chunk's tokens are counted in numbers of the decoder's type, but their logits are sums.
        chunk_bytes: input.chunk_bytes / dtype.size() * weight.dtype().size(),
        weight,
        map: input.map,
        temperature: input.temperature,
        precision: input.precision,
    }
}

/// Where every word is masked, all have probability 0: losses are +∞, and gradients 0.
fn no_word_left(
    input: &Likelihood<Floats<Flex>>,
    objective: &Objective<Floats<Flex>, Ints<Flex>>,
    wanted: Option<Wanted>,
) -> (Scores<Floats<Flex>>, Gradients<Floats<Flex>>) {
    let (tokens, device, dtype) = (input.tokens(), input.weight.device(), input.wide());
    let loss = Floats::full([tokens], f64::INFINITY, &device, dtype);
    let statistics = objective.statistics.then(|| {
        let column = |of: Statistic| match of {
            Statistic::Nll => f64::INFINITY,
            Statistic::MaxLogProb => f64::NEG_INFINITY,
            Statistic::Entropy | Statistic::Argmax | Statistic::ZTerm => 0.0,
        };
        let columns = Statistic::ALL.map(|of| Floats::full([tokens, 1], column(of), &device, dtype));
        Floats::cat(columns.to_vec(), 1)
    });
    let mut wanted = wanted.unwrap_or_default().into_array().into_iter();
    let gradients = input.inputs().into_array().map(|tensor| {
        let is_wanted = wanted.next().expect("as many as there are inputs");
        tensor.filter(|_| is_wanted).map(|tensor| tensor.clone().cast(dtype).zeros_like())
    });
    (Scores { loss, statistics }, Gradients::from_array(gradients))
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
    if vocabulary.masked.len() == vocab {
        return no_word_left(input, objective, upstream.map(|_| wanted));
    }
    let goal = Goal::new(input, objective, vocabulary.masked.len());

    let contexts = Contexts::new(&input.contexts, components, [vocab, d]);
    let mut d_contexts = match upstream {
        Some(_) => contexts.room(wanted),
        None => ContextGradient::Unwanted,
    };
    let weight = Stored::new(&weight);
    let kernel = Input {
        contexts: contexts.source(weight),
        log_prior: log_prior.as_ref().map(slice),
        weight,
        shared: Words {
            vocab,
            bias: vocabulary.bias(),
            masked: &vocabulary.masked,
            map: CpuMap::new(input.map, params.as_ref().map_or(&[][..], slice)),
            temperature: T::of(input.temperature),
        },
        goal: &goal,
        upstream: upstream.as_ref().map(slice),
        components,
        d,
        chunk_tokens: input.chunk_tokens(),
        block_tokens: input.block_tokens(),
        precision: input.precision,
    };
    let mut output = Output::<T>::new(&kernel, wanted);
    in_pool(|| sweep::run(&kernel, &mut d_contexts, &mut output));

    let vector = |values: Buffer<T>| {
        let len = values.len();
        Floats::new(values.into_tensor([len]))
    };
    let gradients = Gradients {
        log_prior: output.log_prior.map(|values| Floats::new(values.into_tensor([tokens, components]))),
        weight: output.weight.map(|values| Floats::new(values.into_tensor([vocab, d]))),
        bias: output.bias.map(vector),
        map_params: output.params.filter(|_| wanted.map_params).map(vector),
        ..contexts.finish(d_contexts)
    };
    let scores = Scores {
        loss: Floats::new(cpu::tensor(output.loss, [tokens])),
        statistics: objective
            .statistics
            .then(|| Floats::new(cpu::tensor(output.statistics, [tokens, Statistic::COUNT]))),
    };
    (scores, gradients)
}
