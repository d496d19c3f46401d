//! Native CPU kernel of the likelihood on Burn's Flex backend.
//!
//! A chunk of tokens: one matrix product into a buffer, then every token's rows in one visit while they are in cache
//! (bias, map, maximum, exponentials and their sum, responsibilities, gradient in place), then two products out of the
//! buffer, each at the [precision](Precision) that is asked for. Straight on the tensors' memory; f32 and f64 by the same
//! code, f16 and bf16 in f32. Factors of products that are bf16 enter them as they are, without a widened copy.
//!
//! Under a decoder of few dimensions [`few_dimensions`] scores without chunks: each thread makes the products of a few tokens,
//! visits their rows and takes their gradients back.
//!
//! A call's contexts and products are made in one [sweep]; what becomes of a chunk's rows is for a
//! [visitor](sweep::Visitor) to say, of which there are two: [score] and [predict].
//!
//! Logit maps on slices come from [`logit_map`](crate::logit_map), one file a map; exponentials and products from
//! [`highrank_kernels::cpu`].

mod all_words;
mod call;
mod component;
mod contexts;
mod few_dimensions;
mod gate_rows;
mod gated;
mod gradient_form;
mod latent;
mod mapped_logits;
mod mix;
mod predict;
mod product;
mod row;
mod score;
mod sweep;
mod target;
mod teacher;
mod tensors;
#[cfg(test)]
mod tests;
mod token;
mod workers;

use burn::backend::Flex;
use highrank_kernels::{Floats, Ints, Precision};

use crate::likelihood::LikelihoodKernels;
use crate::ops::{
    Gradients, Kernels, LatentArgs, LatentGradients, LatentWanted, Likelihood, MixGradients, MixWanted,
    Objective, Prediction, Scores, Wanted,
};

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
        gradient: Option<(Floats<Self>, Wanted)>,
    ) -> (Scores<Floats<Self>>, Gradients<Floats<Self>>) {
        score::score(input, objective, gradient)
    }

    fn predict(input: Likelihood<Floats<Self>>, prediction: Prediction<'_>) -> Option<Floats<Self>> {
        predict::predict(input, prediction)
    }
}
