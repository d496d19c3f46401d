//! The likelihood made of Burn's own tensor operations: runs on every backend, and is what native kernels are checked
//! against.

use burn::tensor::backend::Backend;
use burn::tensor::{IndexingUpdateOp, Int, Tensor};

use super::{Gradients, Likelihood, LikelihoodBackend, Targets, Wanted, runs};
use crate::context::ContextSource;
use crate::context::latent::LatentArgs;
use crate::math::{log_softmax, log_sum_exp, log_sum_exp_dim};
use crate::operations::Operations;

/// Cross-entropy of every token in nats, shape `[N]`; one product.
///
/// Products and latent layer are the backend's.
pub fn nll<B: LikelihoodBackend>(input: &Likelihood<B>, targets: &Targets<B>) -> Tensor<B, 1> {
    let mut parts = vec![];
    for block in blocks(input, Operations::NATIVE) {
        for chunk in block.chunks() {
            parts.push(match targets.slice(chunk.start, chunk.start + chunk.tokens) {
                Targets::Words(words) => Words::score(&chunk, words).nll,
                Targets::Distributions(rows) => {
                    let log_probs = log_probs_of(&chunk);
                    (rows * log_probs).sum_dim(1).neg().squeeze_dim(1)
                }
            });
        }
    }
    Tensor::cat(parts, 0)
}

/// Log-probabilities `[N, V]` by the composed formula, differentiable like any other Burn program.
pub fn log_probs<B: Backend>(input: &Likelihood<B>) -> Tensor<B, 2> {
    let mut parts = vec![];
    for block in blocks(input, Operations::COMPOSED) {
        parts.extend(block.chunks().map(|chunk| log_probs_of(&chunk)));
    }
    Tensor::cat(parts, 0)
}

/// Logits `z` of all components, `[N·K, V]`, before the logit map.
pub(crate) fn logits<B: Backend>(input: &Likelihood<B>) -> Tensor<B, 2> {
    let mut parts = vec![];
    for block in blocks(input, Operations::COMPOSED) {
        parts.extend(block.chunks().map(|chunk| chunk.logits));
    }
    Tensor::cat(parts, 0)
}

/// Cross-entropy of every token and the gradients of `Σ_n upstream_n · nll_n`; three products.
///
/// Products and latent layer are the backend's.
pub fn nll_and_gradients<B: LikelihoodBackend>(
    input: &Likelihood<B>,
    targets: &Targets<B>,
    upstream: Tensor<B, 1>,
    wanted: Wanted,
) -> (Tensor<B, 1>, Gradients<B>) {
    let mut nll = vec![];
    let mut sums = Sums::default();
    for block in blocks(input, Operations::NATIVE) {
        for chunk in block.chunks() {
            let (start, end) = (chunk.start, chunk.start + chunk.tokens);
            let upstream = upstream.clone().slice(start..end);
            let scored = match targets.slice(start, end) {
                Targets::Words(words) => Words::score(&chunk, words).gradients(upstream),
                Targets::Distributions(rows) => distributions(&chunk, rows, upstream),
            };
            nll.push(scored.nll.clone());
            sums.add_chunk(chunk, scored, wanted);
        }
        sums.add_block(block, wanted);
    }
    (Tensor::cat(nll, 0), sums.finish(input))
}

/// A run of tokens whose contexts exist at a time.
pub(super) struct Block<'a, B: Backend> {
    input: &'a Likelihood<B>,
    operations: Operations<B>,
    /// Of the logit map.
    table: Option<Tensor<B, 1>>,
    pub(super) start: usize,
    pub(super) end: usize,
    /// `h_k`, `[tokens·K, d]`
    contexts: Tensor<B, 2>,
    /// The layer that they came from, if any.
    latent: Option<LatentArgs<B>>,
}

pub(super) fn blocks<B: Backend>(
    input: &Likelihood<B>,
    operations: Operations<B>,
) -> impl Iterator<Item = Block<'_, B>> {
    let d = input.weight.dims()[1];
    let table = input.map_params.clone().map(|params| input.map.table(params));
    runs(input.tokens(), input.block_tokens()).map(move |(start, end)| {
        let source = input.slice(start, end).contexts;
        let latent = match &source {
            ContextSource::Given(_) => None,
            ContextSource::Latent(args) => Some(args.clone()),
        };
        let contexts = source.tensor_by(d, operations.latent);
        Block { input, operations, table: table.clone(), start, end, contexts, latent }
    })
}

impl<'a, B: Backend> Block<'a, B> {
    fn chunks(&self) -> impl Iterator<Item = Chunk<'a, B>> {
        let step = self.input.chunk_tokens();
        runs(self.end - self.start, step).map(|(start, end)| Chunk::new(self, start, end))
    }

    /// Contexts of the block's tokens `start .. end`, `[tokens·K, d]`.
    pub(super) fn contexts(&self, start: usize, end: usize) -> Tensor<B, 2> {
        let components = self.input.components();
        self.contexts.clone().slice(start * components..end * components)
    }
}

/// A run of tokens that is worked on at a time, with its logits.
struct Chunk<'a, B: Backend> {
    input: &'a Likelihood<B>,
    table: Option<Tensor<B, 1>>,
    /// The first token.
    start: usize,
    tokens: usize,
    components: usize,
    /// `[tokens·K, d]`
    contexts: Tensor<B, 2>,
    /// `[tokens, K]`
    log_prior: Option<Tensor<B, 2>>,
    /// `z`, `[tokens·K, V]`
    logits: Tensor<B, 2>,
}

impl<'a, B: Backend> Chunk<'a, B> {
    /// Tokens `start .. end` of a block.
    fn new(block: &Block<'a, B>, start: usize, end: usize) -> Self {
        let input = block.input;
        let components = input.components();
        let contexts = block.contexts(start, end);
        let (start, end) = (block.start + start, block.start + end);
        let multiply = block.operations.product;
        let product = multiply(contexts.clone(), input.weight.clone().transpose(), input.precision);
        Self {
            input,
            table: block.table.clone(),
            start,
            tokens: end - start,
            components,
            contexts,
            log_prior: input.log_prior.as_ref().map(|prior| prior.clone().slice(start..end)),
            logits: match &input.bias {
                Some(bias) => product + bias.clone().unsqueeze(),
                None => product,
            },
        }
    }

    /// `f(z)`, `[tokens·K, V]`.
    fn mapped(&self) -> Tensor<B, 2> {
        self.input.map.apply(self.logits.clone(), self.table.as_ref())
    }

    /// `log π_k + x_k` for a value a component, `[tokens, K]`.
    fn with_prior(&self, x: Tensor<B, 2>) -> Tensor<B, 2> {
        let x = x.reshape([self.tokens, self.components]);
        match &self.log_prior {
            Some(prior) => x + prior.clone(),
            None => x,
        }
    }

    /// `log π_k + log p_k(v)`, `[tokens, K, V]`.
    fn joint(&self, component_log_probs: Tensor<B, 2>) -> Tensor<B, 3> {
        let [_, vocab] = component_log_probs.dims();
        let x = component_log_probs.reshape([self.tokens, self.components, vocab]);
        match &self.log_prior {
            Some(prior) => x + prior.clone().reshape([self.tokens, self.components, 1]),
            None => x,
        }
    }
}

fn log_probs_of<B: Backend>(chunk: &Chunk<'_, B>) -> Tensor<B, 2> {
    let component = log_softmax(chunk.mapped());
    match chunk.log_prior {
        Some(_) => log_sum_exp_dim(chunk.joint(component), 1).squeeze_dim(1),
        None => component,
    }
}

/// A chunk's cross-entropies and the gradients of its mapped logits and log-priors.
struct Scored<B: Backend> {
    /// `[tokens]`
    nll: Tensor<B, 1>,
    /// `∂/∂f(z)`, `[tokens·K, V]`
    d_mapped: Tensor<B, 2>,
    /// `[tokens, K]`
    d_log_prior: Tensor<B, 2>,
}

/// A chunk scored against one word a token.
struct Words<B: Backend> {
    /// `[tokens]`
    nll: Tensor<B, 1>,
    /// `log π_k + log p_k(y)`, `[tokens, K]`
    joint: Tensor<B, 2>,
    /// Target of each row, `[tokens·K, 1]`
    word: Tensor<B, 2, Int>,
    /// `e^{f(z) − max}`, `[tokens·K, V]`, and its row sums `[tokens·K, 1]`
    exp: Tensor<B, 2>,
    sum: Tensor<B, 2>,
}

impl<B: Backend> Words<B> {
    fn score(chunk: &Chunk<'_, B>, words: Tensor<B, 1, Int>) -> Self {
        let word = words.reshape([chunk.tokens, 1]).repeat_dim(1, chunk.components);
        let word = word.reshape([chunk.tokens * chunk.components, 1]);
        let mapped = chunk.mapped();
        let max = mapped.clone().max_dim(1);
        let at_target = mapped.clone().gather(1, word.clone()) - max.clone();
        let exp = (mapped - max).exp();
        let sum = exp.clone().sum_dim(1);
        let joint = chunk.with_prior(at_target - sum.clone().log());
        let nll = log_sum_exp(joint.clone()).neg().squeeze_dim(1);
        Self { nll, joint, word, exp, sum }
    }

    /// `∂/∂f(z_k) = u γ_k (softmax − onehot)`, `∂/∂log π_k = −u γ_k` for an upstream gradient `u [tokens]`.
    fn gradients(self, upstream: Tensor<B, 1>) -> Scored<B> {
        let responsibility = (self.joint + self.nll.clone().unsqueeze_dim(1)).exp();
        let weight = responsibility * upstream.unsqueeze_dim(1);
        let row_weight = weight.clone().reshape(self.sum.shape());
        let d_mapped = (self.exp * (row_weight.clone() / self.sum)).scatter(
            1,
            self.word,
            row_weight.neg(),
            IndexingUpdateOp::Add,
        );
        Scored { nll: self.nll, d_mapped, d_log_prior: weight.neg() }
    }
}

/// Scores a chunk against distributions `q [tokens, V]`. With `r_k(v) = π_k p_k(v) / P(v)` and `s_k = Σ_v q_v r_k(v)`:
/// `∂/∂f(z_k) = u (p_k s_k − q r_k)` and `∂/∂log π_k = −u s_k`.
fn distributions<B: Backend>(chunk: &Chunk<'_, B>, q: Tensor<B, 2>, upstream: Tensor<B, 1>) -> Scored<B> {
    let component = log_softmax(chunk.mapped());
    let shape = component.shape();
    let joint = chunk.joint(component.clone());
    let log_probs = log_sum_exp_dim(joint.clone(), 1);
    let nll = (q.clone() * log_probs.clone().squeeze_dim(1)).sum_dim(1).neg().squeeze_dim(1);
    let q = (q * upstream.unsqueeze_dim(1)).unsqueeze_dim::<3>(1);
    let assigned = (joint - log_probs).exp() * q;
    let total = assigned.clone().sum_dim(2);
    let d_mapped = component.exp() * total.clone().reshape([shape[0], 1]) - assigned.reshape(shape);
    Scored { nll, d_mapped, d_log_prior: total.squeeze_dim(2).neg() }
}

/// Gradients summed or joined over the chunks and blocks so far.
pub(super) struct Sums<B: Backend> {
    /// Gradients of the contexts of the block's chunks.
    block: Vec<Tensor<B, 2>>,
    contexts: Vec<Tensor<B, 2>>,
    latent_weight: Option<Tensor<B, 2>>,
    latent_bias: Option<Tensor<B, 1>>,
    log_prior: Vec<Tensor<B, 2>>,
    weight: Option<Tensor<B, 2>>,
    bias: Option<Tensor<B, 1>>,
    /// Of the logit map's table.
    pub(super) map_table: Option<Tensor<B, 1>>,
}

impl<B: Backend> Default for Sums<B> {
    fn default() -> Self {
        Self {
            block: vec![],
            contexts: vec![],
            latent_weight: None,
            latent_bias: None,
            log_prior: vec![],
            weight: None,
            bias: None,
            map_table: None,
        }
    }
}

impl<B: LikelihoodBackend> Sums<B> {
    fn add_chunk(&mut self, chunk: Chunk<'_, B>, scored: Scored<B>, wanted: Wanted) {
        let Chunk { input, table, contexts, logits, .. } = chunk;
        let (d_logits, d_table) = input.map.vjp(logits, table.as_ref(), scored.d_mapped);
        self.add(input, contexts, d_logits, scored.d_log_prior, wanted);
        if let (true, Some(d_table)) = (wanted.map_params, d_table) {
            accumulate(&mut self.map_table, d_table);
        }
    }

    /// What the gradients of a chunk's logits and log-priors add to those of the inputs, but for the logit map's.
    pub(super) fn add(
        &mut self,
        input: &Likelihood<B>,
        contexts: Tensor<B, 2>,
        d_logits: Tensor<B, 2>,
        d_log_prior: Tensor<B, 2>,
        wanted: Wanted,
    ) {
        if wanted.context_gradient(&input.contexts) {
            self.block.push(B::product(d_logits.clone(), input.weight.clone(), input.precision));
        }
        if wanted.log_prior && input.log_prior.is_some() {
            self.log_prior.push(d_log_prior);
        }
        if wanted.bias && input.bias.is_some() {
            accumulate(&mut self.bias, d_logits.clone().sum_dim(0).squeeze_dim(0));
        }
        if wanted.weight {
            accumulate(&mut self.weight, B::product(d_logits.transpose(), contexts, input.precision));
        }
    }

    /// Ends a block: its contexts' gradient is joined, or taken back through the layer that made them.
    pub(super) fn add_block(&mut self, block: Block<'_, B>, wanted: Wanted) {
        if self.block.is_empty() {
            return;
        }
        let gradient = Tensor::cat(std::mem::take(&mut self.block), 0);
        let Some(args) = block.latent else {
            return self.contexts.push(gradient);
        };
        let shape = [block.end - block.start, args.weight.dims()[1]];
        let (output, gradient) = (block.contexts.reshape(shape), gradient.reshape(shape));
        let made = B::latent_backward(args, output, gradient, wanted.latent());
        self.contexts.extend(made.hidden);
        if let Some(weight) = made.weight {
            accumulate(&mut self.latent_weight, weight);
        }
        if let Some(bias) = made.bias {
            accumulate(&mut self.latent_bias, bias);
        }
    }

    pub(super) fn finish(self, input: &Likelihood<B>) -> Gradients<B> {
        let joined = |parts: Vec<Tensor<B, 2>>| (!parts.is_empty()).then(|| Tensor::cat(parts, 0));
        Gradients {
            contexts: joined(self.contexts),
            latent_weight: self.latent_weight,
            latent_bias: self.latent_bias,
            log_prior: joined(self.log_prior),
            weight: self.weight,
            bias: self.bias,
            map_params: self
                .map_table
                .zip(input.map_params.as_ref())
                .map(|(d_table, params)| input.map.table_vjp(params, d_table)),
        }
    }
}

fn accumulate<B: Backend, const D: usize>(sum: &mut Option<Tensor<B, D>>, part: Tensor<B, D>) {
    *sum = Some(match sum.take() {
        Some(sum) => sum + part,
        None => part,
    });
}
