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
use burn::tensor::DType;
use highrank_kernels::precision::{self, product_dtype};
use highrank_kernels::{Floats, Ints, Precision};

use crate::likelihood::{LikelihoodKernels, OutputOps};
use crate::ops::mix as portable;
use crate::ops::{
    Gradients, Kernels, LatentArgs, LatentGradients, LatentWanted, LikelihoodInput, LogProbs, Objective,
    Prediction, Scores, Wanted, wide,
};

impl OutputOps for Flex {}

impl Kernels for Flex {
    fn product(lhs: Floats<Self>, rhs: Floats<Self>, precision: Precision) -> Floats<Self> {
        let types = [lhs.dtype(), rhs.dtype()];
        match product_dtype(types[0], types[1]) {
            // f16 is not rounded, though it has more digits than may be left.
            _ if precision != Precision::Full && types.contains(&DType::F16) => {
                precision::product(lhs, rhs, precision)
            }
            DType::F64 => product::of_matrices::<f64>(lhs, rhs, precision),
            _ => product::of_matrices::<f32>(lhs, rhs, precision),
        }
    }

    fn latent(args: LatentArgs<Floats<Self>>) -> Floats<Self> {
        match wide(args.weight.dtype()) {
            DType::F64 => latent::forward::<f64>(args),
            _ => latent::forward::<f32>(args),
        }
    }

    fn latent_backward(
        args: LatentArgs<Floats<Self>>,
        output: Floats<Self>,
        grad: Floats<Self>,
        wanted: LatentWanted,
    ) -> LatentGradients<Floats<Self>> {
        match wide(args.weight.dtype()) {
            DType::F64 => latent::backward::<f64>(args, output, grad, wanted),
            _ => latent::backward::<f32>(args, output, grad, wanted),
        }
    }

    fn mix(prior: Floats<Self>, latent: Floats<Self>) -> Floats<Self> {
        match (prior.dtype(), latent.dtype()) {
            (DType::F32, DType::F32) => mix::forward::<f32>(prior, latent),
            (DType::F64, DType::F64) => mix::forward::<f64>(prior, latent),
            _ => portable::mix(prior, latent),
        }
    }

    fn mix_backward(
        prior: Floats<Self>,
        latent: Floats<Self>,
        grad: Floats<Self>,
        wanted: [bool; 2],
    ) -> [Option<Floats<Self>>; 2] {
        match (prior.dtype(), latent.dtype(), grad.dtype()) {
            (DType::F32, DType::F32, DType::F32) => mix::backward::<f32>(prior, latent, grad, wanted),
            (DType::F64, DType::F64, DType::F64) => mix::backward::<f64>(prior, latent, grad, wanted),
            _ => portable::mix_backward(prior, latent, grad, wanted),
        }
    }
}

impl LikelihoodKernels for Flex {
    fn score(
        input: LikelihoodInput<Floats<Self>>,
        objective: Objective<Floats<Self>, Ints<Self>>,
        gradient: Option<(Floats<Self>, Wanted)>,
    ) -> (Scores<Floats<Self>>, Gradients<Floats<Self>>) {
        match input.wide() {
            DType::F64 => score::run::<f64>(input, &objective, gradient),
            _ => score::run::<f32>(input, &objective, gradient),
        }
    }

    fn predict(input: LikelihoodInput<Floats<Self>>, prediction: Prediction<'_>) -> Option<Floats<Self>> {
        match input.wide() {
            DType::F64 => predict::run::<f64>(input, prediction, |row| LogProbs::F64(row)),
            _ => predict::run::<f32>(input, prediction, |row| LogProbs::F32(row)),
        }
    }
}
