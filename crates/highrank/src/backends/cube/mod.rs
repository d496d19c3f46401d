//! Native GPU kernels of the likelihood on Burn's CubeCL backend (WebGPU, CUDA), in f32.
//!
//! A chunk of tokens takes one product by tuned kernels ([`gpu::product`]), one visit of the rows for their log-sum-exp and
//! the targets' log-probabilities, a small one for cross-entropies and responsibilities, one that puts the gradient in the
//! product's place, and two products out of it. Bias and logit map are applied during the visits, so nothing of a chunk's
//! size exists but the product itself.
//!
//! | file | job |
//! |---|---|
//! | `kernels.rs` | the three visits, and the gradient of a PLIF's table |
//! | `map.rs` | logit maps on the device |
//! | `latent.rs` | the latent layer of a mixture |
//! | `fusion.rs` | all of it as operations of Burn's fusion |
//!
//! Soft targets, other float types, and the maps whose few parameters every logit moves (generalised sigsoftmax, the
//! monotonic network) take the portable path.

mod fusion;
mod kernels;
mod latent;
mod map;
#[cfg(all(test, feature = "wgpu"))]
mod tests;

use burn::backend::cubecl::dtype_to_elem_type;
use burn::tensor::DType;
use cubecl::prelude::CubeDim;
use highrank_kernels::gpu::{
    self, CubeBackend, CubeDevice, CubeTensor, contiguous, empty, fixed, one_cube_each, one_unit_each,
};
use highrank_kernels::{Floats, Ints, Precision};

use crate::likelihood::default_memory_budget;
use crate::likelihood::portable::{self, Sums};
use crate::ops::{
    Gradients, Kernels, LatentArgs, LatentGradients, LatentWanted, Likelihood, Targets, Wanted, runs,
};
use kernels::{Form, OUTER_VALUES, ROW_UNITS, ROW_VALUES};
use map::{Map, NumbersLaunch};

impl Kernels for CubeBackend {
    fn nll(input: Likelihood<Floats<Self>>, targets: Targets<Floats<Self>, Ints<Self>>) -> Floats<Self> {
        match Sweep::new(&input, &targets) {
            Some(sweep) => sweep.nll(),
            None => portable::nll(&input, &targets),
        }
    }

    fn nll_and_gradients(
        input: Likelihood<Floats<Self>>,
        targets: Targets<Floats<Self>, Ints<Self>>,
        upstream: Floats<Self>,
        wanted: Wanted,
    ) -> (Floats<Self>, Gradients<Floats<Self>>) {
        match Sweep::new(&input, &targets) {
            Some(sweep) => sweep.nll_and_gradients(upstream, wanted),
            None => portable::nll_and_gradients(&input, &targets, upstream, wanted),
        }
    }

    fn product(lhs: Floats<Self>, rhs: Floats<Self>, precision: Precision) -> Floats<Self> {
        gpu::product(lhs, rhs, precision)
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

    fn memory_budget(decoder_bytes: usize, device: &CubeDevice) -> usize {
        gpu::memory_budget(default_memory_budget(decoder_bytes), device)
    }

    fn is_cpu(_device: &CubeDevice) -> bool {
        false
    }
}

/// One call of the likelihood.
struct Sweep<'a> {
    input: &'a Likelihood<Floats<CubeBackend>>,
    /// The same with the weight as products read it: it is rounded once a call.
    rounded: Likelihood<Floats<CubeBackend>>,
    words: Ints<CubeBackend>,
    form: Form,
    /// The map's numbers that no kernel is compiled for.
    bound_delta: [f32; 2],
    pieces: u32,
    bias: CubeTensor,
    table: CubeTensor,
}

/// A chunk whose rows are known.
struct VisitedChunk {
    /// `[tokens·K, V]`
    products: CubeTensor,
    /// `[tokens·K, ROW_VALUES]`
    rows: CubeTensor,
    words: CubeTensor,
    nll: Floats<CubeBackend>,
}

impl<'a> Sweep<'a> {
    /// None if there are no kernels for the input.
    fn new(
        input: &'a Likelihood<Floats<CubeBackend>>,
        targets: &Targets<Floats<CubeBackend>, Ints<CubeBackend>>,
    ) -> Option<Self> {
        let Targets::Words(words) = targets else { return None };
        let (map, bound_delta, pieces) = Map::of(input.map)?;
        if input.weight.dtype() != DType::F32 {
            return None;
        }
        let absent = || contiguous(Floats::zeros([1], &input.weight.device(), DType::F32));
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

    fn numbers(&self) -> NumbersLaunch {
        let [bound, delta] = self.bound_delta;
        NumbersLaunch::new(bound, delta, self.pieces)
    }

    fn nll(&self) -> Floats<CubeBackend> {
        let mut parts = vec![];
        for block in portable::blocks(self.input) {
            for (start, end) in runs(block.end - block.start, self.input.chunk_tokens()) {
                let contexts = block.contexts(start, end);
                parts.push(self.visit(contexts, block.start + start, block.start + end, None).nll);
            }
        }
        Floats::cat(parts, 0)
    }

    fn nll_and_gradients(
        &self,
        upstream: Floats<CubeBackend>,
        wanted: Wanted,
    ) -> (Floats<CubeBackend>, Gradients<Floats<CubeBackend>>) {
        let components = self.input.components();
        let mut nll = vec![];
        let mut sums = Sums::default();
        let mut pieces = PieceSums::new(self, &upstream);
        for block in portable::blocks(self.input) {
            for (start, end) in runs(block.end - block.start, self.input.chunk_tokens()) {
                let contexts = block.contexts(start, end);
                let (start, end) = (block.start + start, block.start + end);
                let upstream = upstream.clone().rows(start..end);
                let chunk = self.visit(contexts.clone(), start, end, Some(upstream));
                nll.push(chunk.nll.clone());
                let weights = Floats::new(chunk.rows.clone()).narrow(1, 1..2);
                let d_log_prior = -weights.reshape([end - start, components]);
                let d_logits = self.gradient(chunk, &mut pieces);
                sums.add(&self.rounded, contexts, d_logits, d_log_prior, wanted);
            }
            sums.add_block(block, wanted);
        }
        if wanted.map_params && self.form.map == Map::Plif {
            sums.map_table = Some(pieces.finish(self));
        }
        (Floats::cat(nll, 0), sums.finish(self.input))
    }

    /// The product, rows and cross-entropies of tokens `start .. end`, whose contexts are given.
    fn visit(
        &self,
        contexts: Floats<CubeBackend>,
        start: usize,
        end: usize,
        upstream: Option<Floats<CubeBackend>>,
    ) -> VisitedChunk {
        let (tokens, components, vocab) = (end - start, self.input.components(), self.input.vocab());
        let count = tokens * components;
        let weight = self.rounded.weight.clone().transpose();
        let products = contiguous(gpu::product(contexts, weight, self.input.precision));
        let words = gpu::contiguous_ints(self.words.clone().rows(start..end));
        let rows = empty(&products, [count, ROW_VALUES], DType::F32);
        let nll = empty(&products, [tokens], DType::F32);
        let client = products.client.clone();
        // SAFETY: rows, words of the vocabulary, and what belongs to either, are the shapes of the memory; a target
        // outside of the vocabulary is not read at.
        unsafe {
            kernels::statistics::launch_unchecked(
                &client,
                one_cube_each(count),
                CubeDim::new_1d(ROW_UNITS),
                products.clone().into_buffer_arg(),
                self.bias.clone().into_buffer_arg(),
                self.table.clone().into_buffer_arg(),
                words.clone().into_buffer_arg(),
                rows.clone().into_buffer_arg(),
                count as u32,
                vocab as u32,
                components as u32,
                self.numbers(),
                self.form,
                dtype_to_elem_type(words.dtype),
            );
        }
        let absent = || empty(&products, [1], DType::F32);
        let has_upstream = upstream.is_some();
        let prior = self.input.log_prior.clone().map(|prior| contiguous(prior.rows(start..end)));
        let (cubes, units) = one_unit_each(tokens, ROW_UNITS);
        // SAFETY: tokens and components are the shapes of the memory.
        unsafe {
            kernels::responsibilities::launch_unchecked(
                &client,
                cubes,
                units,
                rows.clone().into_buffer_arg(),
                prior.unwrap_or_else(absent).into_buffer_arg(),
                upstream.map_or_else(absent, contiguous).into_buffer_arg(),
                nll.clone().into_buffer_arg(),
                tokens as u32,
                components as u32,
                self.input.log_prior.is_some(),
                has_upstream,
            );
        }
        VisitedChunk { products, rows, words, nll: Floats::new(nll) }
    }

    /// The gradient of the logits, in the memory of their product.
    fn gradient(&self, chunk: VisitedChunk, pieces: &mut PieceSums) -> Floats<CubeBackend> {
        let VisitedChunk { products, rows, words, .. } = chunk;
        let [count, vocab] = products.meta.shape().dims();
        let outer_rows = if self.form.map == Map::Plif { count } else { 1 };
        let outer = empty(&products, [outer_rows, OUTER_VALUES], DType::F32);
        // SAFETY: as above; the product has no other owner, and a piece's number is below that of the pieces.
        unsafe {
            kernels::gradient::launch_unchecked(
                &products.client,
                one_cube_each(count),
                CubeDim::new_1d(ROW_UNITS),
                products.clone().into_buffer_arg(),
                self.bias.clone().into_buffer_arg(),
                self.table.clone().into_buffer_arg(),
                words.clone().into_buffer_arg(),
                rows.into_buffer_arg(),
                pieces.largest.clone().into_buffer_arg(),
                pieces.inner.clone().into_buffer_arg(),
                outer.clone().into_buffer_arg(),
                count as u32,
                vocab as u32,
                self.input.components() as u32,
                self.numbers(),
                self.form,
                dtype_to_elem_type(words.dtype),
            );
        }
        if self.form.map == Map::Plif {
            let outer = Floats::new(outer).sum_dim(0);
            pieces.outer = Some(match pieces.outer.take() {
                Some(sum) => sum + outer,
                None => outer,
            });
        }
        Floats::new(products)
    }
}

/// Sums of a PLIF's gradients by piece, over the chunks so far.
struct PieceSums {
    /// The largest upstream gradient, `[1]`: the unit of the inner sums.
    largest: CubeTensor,
    /// Whole numbers, two of two words for each piece.
    inner: CubeTensor,
    /// `[1, OUTER_VALUES]`
    outer: Option<Floats<CubeBackend>>,
}

impl PieceSums {
    fn new(sweep: &Sweep<'_>, upstream: &Floats<CubeBackend>) -> Self {
        let device = upstream.device();
        let words = 2 * fixed::WORDS * sweep.pieces.max(1) as usize;
        let inner = Ints::zeros([words], &device, DType::I32);
        let largest = match sweep.form.map {
            Map::Plif => upstream.clone().abs().max(),
            _ => Floats::zeros([1], &device, DType::F32),
        };
        Self { largest: contiguous(largest), inner: gpu::contiguous_ints(inner), outer: None }
    }

    /// The gradient of the table.
    fn finish(self, sweep: &Sweep<'_>) -> Floats<CubeBackend> {
        let pieces = sweep.pieces as usize;
        let d_table = empty(&self.largest, [2 * pieces], DType::F32);
        let outer = contiguous(self.outer.expect("a call has at least one token"));
        let (cubes, units) = one_unit_each(pieces, ROW_UNITS);
        // SAFETY: every array has its number of values for each piece.
        unsafe {
            kernels::table_gradient::launch_unchecked(
                &d_table.client,
                cubes,
                units,
                self.inner.into_buffer_arg(),
                outer.into_buffer_arg(),
                self.largest.into_buffer_arg(),
                d_table.clone().into_buffer_arg(),
                sweep.numbers(),
            );
        }
        Floats::new(d_table)
    }
}
