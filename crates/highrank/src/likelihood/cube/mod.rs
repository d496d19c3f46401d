//! Native GPU kernels of the likelihood on Burn's CubeCL backends (WebGPU, CUDA), in f32.
//!
//! A chunk of tokens: one product by tuned kernels ([`gpu::product`]), one visit of the rows for their log-sum-exp and the targets'
//! log-probabilities, a small one for cross-entropies and responsibilities, one that puts the gradient in the product's
//! place, then two products out of it. Bias and logit map are applied on the way, so nothing of a chunk's size exists
//! but the product itself.
//!
//! | file | job |
//! |---|---|
//! | `kernels.rs` | the three visits, and the gradient of a PLIF's table |
//! | `map.rs` | logit maps on the device |
//! | `fixed.rs` | sums of a PLIF's pieces that do not depend on their order |
//! | `fusion.rs` | the same as one operation of Burn's fusion |
//!
//! Soft targets, other float types, and the maps whose few parameters every logit moves (generalised sigsoftmax, the
//! monotonic network) take the portable path.

mod fixed;
mod fusion;
mod kernels;
mod map;
#[cfg(all(test, feature = "wgpu"))]
mod tests;

use burn::tensor::backend::Backend;
use burn::tensor::{DType, Int, Tensor, TensorMetadata};
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use burn_cubecl::{BoolElement, CubeBackend, CubeRuntime, FloatElement, IntElement};
use cubecl::prelude::CubeDim;

use super::portable::{self, Sums};
use super::{Gradients, Likelihood, LikelihoodBackend, Targets, Wanted, runs};
use crate::autodiff::wrap;
use crate::context::latent::{self, LatentArgs, LatentGradients, LatentWanted};
use crate::gpu::{self, contiguous, empty, one_cube_each, one_unit_each};
use crate::operations::Operations;
use crate::precision::Precision;
use kernels::{Form, OUTER_VALUES, ROW_UNITS, ROW_VALUES};
use map::{Map, NumbersLaunch};

impl<R, F, I, BT> LikelihoodBackend for CubeBackend<R, F, I, BT>
where
    R: CubeRuntime,
    F: FloatElement,
    I: IntElement,
    BT: BoolElement,
{
    fn nll(input: Likelihood<Self>, targets: Targets<Self>) -> Tensor<Self, 1> {
        match Sweep::<R, Self>::new(&input, &targets) {
            Some(sweep) => sweep.nll(),
            None => portable::nll(&input, &targets),
        }
    }

    fn nll_and_gradients(
        input: Likelihood<Self>,
        targets: Targets<Self>,
        upstream: Tensor<Self, 1>,
        wanted: Wanted,
    ) -> (Tensor<Self, 1>, Gradients<Self>) {
        match Sweep::<R, Self>::new(&input, &targets) {
            Some(sweep) => sweep.nll_and_gradients(upstream, wanted),
            None => portable::nll_and_gradients(&input, &targets, upstream, wanted),
        }
    }

    fn product(lhs: Tensor<Self, 2>, rhs: Tensor<Self, 2>, precision: Precision) -> Tensor<Self, 2> {
        gpu::product(lhs, rhs, precision)
    }

    fn memory_budget(decoder_bytes: usize, device: &Self::Device) -> usize {
        gpu::memory_budget::<R>(decoder_bytes, device)
    }

    fn latent(args: LatentArgs<Self>) -> Tensor<Self, 2> {
        latent::cube::latent(args)
    }

    fn latent_backward(
        args: LatentArgs<Self>,
        output: Tensor<Self, 2>,
        grad: Tensor<Self, 2>,
        wanted: LatentWanted,
    ) -> LatentGradients<Self> {
        latent::cube::latent_backward(args, output, grad, wanted)
    }
}

/// What all chunks share.
struct Sweep<'a, R: CubeRuntime, B: Backend> {
    input: &'a Likelihood<B>,
    /// The same with the decoder in the form in which products read it: it is rounded once a call.
    rounded: Likelihood<B>,
    words: Tensor<B, 1, Int>,
    form: Form,
    /// The map's numbers that no kernel is compiled for.
    bound_delta: [f32; 2],
    pieces: u32,
    bias: CubeTensor<R>,
    table: CubeTensor<R>,
}

/// A chunk whose rows are known.
struct Scored<R: CubeRuntime, B: Backend> {
    /// `[tokens·K, V]`
    products: CubeTensor<R>,
    /// `[tokens·K, ROW_VALUES]`
    rows: CubeTensor<R>,
    words: CubeTensor<R>,
    nll: Tensor<B, 1>,
}

impl<'a, R, B> Sweep<'a, R, B>
where
    R: CubeRuntime,
    B: LikelihoodBackend<FloatTensorPrimitive = CubeTensor<R>, IntTensorPrimitive = CubeTensor<R>>,
{
    /// None if there are no kernels for the input.
    fn new(input: &'a Likelihood<B>, targets: &Targets<B>) -> Option<Self> {
        let Targets::Words(words) = targets else { return None };
        let (map, bound_delta, pieces) = Map::of(input.map)?;
        if input.weight.dtype() != DType::F32 {
            return None;
        }
        let absent = || contiguous(Tensor::<B, 1>::zeros([1], (&input.weight.device(), DType::F32)));
        let table = input.map_params.clone().map(|params| input.map.table(params));
        let weight = gpu::rounded(input.weight.clone(), input.precision);
        Some(Self {
            input,
            rounded: Likelihood { weight, ..input.clone() },
            words: words.clone(),
            form: Form { map, bias: input.bias.is_some() },
            bound_delta,
            pieces,
            bias: input.bias.clone().map_or_else(absent, contiguous),
            table: table.map_or_else(absent, contiguous),
        })
    }

    fn numbers(&self) -> NumbersLaunch<R> {
        let [bound, delta] = self.bound_delta;
        NumbersLaunch::new(bound, delta, self.pieces)
    }

    fn nll(&self) -> Tensor<B, 1> {
        let mut parts = vec![];
        for block in portable::blocks(self.input, Operations::NATIVE) {
            for (start, end) in runs(block.end - block.start, self.input.chunk_tokens()) {
                let contexts = block.contexts(start, end);
                parts.push(self.score(contexts, block.start + start, block.start + end, None).nll);
            }
        }
        Tensor::cat(parts, 0)
    }

    fn nll_and_gradients(&self, upstream: Tensor<B, 1>, wanted: Wanted) -> (Tensor<B, 1>, Gradients<B>) {
        let components = self.input.components();
        let mut nll = vec![];
        let mut sums = Sums::default();
        let mut pieces = PieceSums::new(self, &upstream);
        for block in portable::blocks(self.input, Operations::NATIVE) {
            for (start, end) in runs(block.end - block.start, self.input.chunk_tokens()) {
                let contexts = block.contexts(start, end);
                let (start, end) = (block.start + start, block.start + end);
                let upstream = upstream.clone().slice(start..end);
                let scored = self.score(contexts.clone(), start, end, Some(upstream));
                nll.push(scored.nll.clone());
                let weights = wrap::<B, 2>(scored.rows.clone()).slice([0..(end - start) * components, 1..2]);
                let d_log_prior = weights.reshape([end - start, components]).neg();
                let d_logits = self.gradient(scored, &mut pieces);
                sums.add(&self.rounded, contexts, d_logits, d_log_prior, wanted);
            }
            sums.add_block(block, wanted);
        }
        if wanted.map_params && self.form.map == Map::Plif {
            sums.map_table = Some(pieces.finish(self));
        }
        (Tensor::cat(nll, 0), sums.finish(self.input))
    }

    /// The product, rows and cross-entropies of tokens `start .. end`, whose contexts are given.
    fn score(
        &self,
        contexts: Tensor<B, 2>,
        start: usize,
        end: usize,
        upstream: Option<Tensor<B, 1>>,
    ) -> Scored<R, B> {
        let (tokens, components, vocab) = (end - start, self.input.components(), self.input.vocab());
        let count = tokens * components;
        let weight = self.rounded.weight.clone().transpose();
        let products: CubeTensor<R> = contiguous(gpu::product(contexts, weight, self.input.precision));
        let words = into_contiguous(self.words.clone().slice(start..end).into_primitive());
        let rows = empty(&products, [count, ROW_VALUES], DType::F32);
        let nll = empty(&products, [tokens], DType::F32);
        let client = products.client.clone();
        // SAFETY: rows, words of the vocabulary, and what belongs to either, are the shapes of the memory; a target
        // outside of the vocabulary is not read at.
        unsafe {
            kernels::statistics::launch_unchecked::<R>(
                &client,
                one_cube_each(count),
                CubeDim::new_1d(ROW_UNITS),
                products.clone().into_array_arg(),
                self.bias.clone().into_array_arg(),
                self.table.clone().into_array_arg(),
                words.clone().into_array_arg(),
                rows.clone().into_array_arg(),
                count as u32,
                vocab as u32,
                components as u32,
                self.numbers(),
                self.form,
                words.dtype.into(),
            );
        }
        let absent = || empty(&products, [1], DType::F32);
        let has_upstream = upstream.is_some();
        let prior = self.input.log_prior.clone().map(|prior| contiguous(prior.slice(start..end)));
        let (cubes, units) = one_unit_each(tokens, ROW_UNITS);
        // SAFETY: tokens and components are the shapes of the memory.
        unsafe {
            kernels::responsibilities::launch_unchecked::<R>(
                &client,
                cubes,
                units,
                rows.clone().into_array_arg(),
                prior.unwrap_or_else(absent).into_array_arg(),
                upstream.map_or_else(absent, contiguous).into_array_arg(),
                nll.clone().into_array_arg(),
                tokens as u32,
                components as u32,
                self.input.log_prior.is_some(),
                has_upstream,
            );
        }
        Scored { products, rows, words, nll: wrap(nll) }
    }

    /// The gradient of the logits, in the memory of their product.
    fn gradient(&self, scored: Scored<R, B>, pieces: &mut PieceSums<R, B>) -> Tensor<B, 2> {
        let Scored { products, rows, words, .. } = scored;
        let [count, vocab] = products.shape().dims();
        let outer_rows = if self.form.map == Map::Plif { count } else { 1 };
        let outer = empty(&products, [outer_rows, OUTER_VALUES], DType::F32);
        // SAFETY: as above; the product has no other owner, and a piece's number is below that of the pieces.
        unsafe {
            kernels::gradient::launch_unchecked::<R>(
                &products.client,
                one_cube_each(count),
                CubeDim::new_1d(ROW_UNITS),
                products.clone().into_array_arg(),
                self.bias.clone().into_array_arg(),
                self.table.clone().into_array_arg(),
                words.clone().into_array_arg(),
                rows.into_array_arg(),
                pieces.largest.clone().into_array_arg(),
                pieces.inner.clone().into_array_arg(),
                outer.clone().into_array_arg(),
                count as u32,
                vocab as u32,
                self.input.components() as u32,
                self.numbers(),
                self.form,
                words.dtype.into(),
            );
        }
        if self.form.map == Map::Plif {
            let outer = wrap::<B, 2>(outer).sum_dim(0);
            pieces.outer = Some(match pieces.outer.take() {
                Some(sum) => sum + outer,
                None => outer,
            });
        }
        wrap(products)
    }
}

/// Sums of a PLIF's gradients by piece, over the chunks so far.
struct PieceSums<R: CubeRuntime, B: Backend> {
    /// The largest upstream gradient, `[1]`: the unit of the inner sums.
    largest: CubeTensor<R>,
    /// Whole numbers, two of two words for each piece.
    inner: CubeTensor<R>,
    /// `[1, OUTER_VALUES]`
    outer: Option<Tensor<B, 2>>,
}

impl<R, B> PieceSums<R, B>
where
    R: CubeRuntime,
    B: LikelihoodBackend<FloatTensorPrimitive = CubeTensor<R>, IntTensorPrimitive = CubeTensor<R>>,
{
    fn new(sweep: &Sweep<'_, R, B>, upstream: &Tensor<B, 1>) -> Self {
        let device = upstream.device();
        let words = 2 * fixed::WORDS * sweep.pieces.max(1) as usize;
        let inner = Tensor::<B, 1, Int>::zeros([words], (&device, DType::I32)).into_primitive();
        let largest = match sweep.form.map {
            Map::Plif => upstream.clone().abs().max(),
            _ => Tensor::zeros([1], (&device, DType::F32)),
        };
        Self { largest: contiguous(largest), inner: into_contiguous(inner), outer: None }
    }

    /// The gradient of the table.
    fn finish(self, sweep: &Sweep<'_, R, B>) -> Tensor<B, 1> {
        let pieces = sweep.pieces as usize;
        let d_table = empty(&self.largest, [2 * pieces], DType::F32);
        let outer = contiguous(self.outer.expect("a call has at least one token"));
        let (cubes, units) = one_unit_each(pieces, ROW_UNITS);
        // SAFETY: every array has its number of values for each piece.
        unsafe {
            kernels::table_gradient::launch_unchecked::<R>(
                &d_table.client,
                cubes,
                units,
                self.inner.into_array_arg(),
                outer.into_array_arg(),
                self.largest.into_array_arg(),
                d_table.clone().into_array_arg(),
                sweep.numbers(),
            );
        }
        wrap(d_table)
    }
}
