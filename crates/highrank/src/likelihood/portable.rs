//! The likelihood made of Burn's own tensor operations: the definition that native kernels are checked against, and the
//! fallback of every backend without a kernel.

use burn::backend::Backend;
use highrank_kernels::{Floats, Ints};

use crate::math::{log_softmax, log_sum_exp, log_sum_exp_dim};
use crate::ops::{ContextSource, Gradients, Kernels, LatentArgs, Likelihood, Targets, Wanted, runs};

/// Cross-entropy of every token in nats, shape `[N]`; one product.
///
/// Products and latent layer are the backend's.
pub fn nll<B: Kernels>(input: &Likelihood<Floats<B>>, targets: &Targets<Floats<B>, Ints<B>>) -> Floats<B> {
    let mut parts = vec![];
    for block in blocks(input) {
        for chunk in block.chunks() {
            parts.push(match targets.slice(chunk.start..chunk.start + chunk.tokens) {
                Targets::Words(words) => Words::score(&chunk, words).nll,
                Targets::Distributions(rows) => {
                    let log_probs = log_probs_of(&chunk);
                    -(rows * log_probs).sum_dim(1).reshape([chunk.tokens])
                }
            });
        }
    }
    Floats::cat(parts, 0)
}

/// Log-probabilities `[N, V]` by the composed formula, differentiable like any other Burn program.
pub fn log_probs<B: Kernels>(input: &Likelihood<Floats<B>>) -> Floats<B> {
    let mut parts = vec![];
    for block in blocks(input) {
        parts.extend(block.chunks().map(|chunk| log_probs_of(&chunk)));
    }
    Floats::cat(parts, 0)
}

/// Logits `z` of all components, `[N·K, V]`, before the logit map.
pub(crate) fn logits<B: Kernels>(input: &Likelihood<Floats<B>>) -> Floats<B> {
    let mut parts = vec![];
    for block in blocks(input) {
        parts.extend(block.chunks().map(|chunk| chunk.logits));
    }
    Floats::cat(parts, 0)
}

/// Cross-entropy of every token and the gradients of `Σ_n upstream_n · nll_n`; three products.
///
/// Products and latent layer are the backend's.
pub fn nll_and_gradients<B: Kernels>(
    input: &Likelihood<Floats<B>>,
    targets: &Targets<Floats<B>, Ints<B>>,
    upstream: Floats<B>,
    wanted: Wanted,
) -> (Floats<B>, Gradients<Floats<B>>) {
    let mut nll = vec![];
    let mut sums = Sums::default();
    for block in blocks(input) {
        for chunk in block.chunks() {
            let (start, end) = (chunk.start, chunk.start + chunk.tokens);
            let upstream = upstream.clone().rows(start..end);
            let scored = match targets.slice(start..end) {
                Targets::Words(words) => Words::score(&chunk, words).gradients(upstream),
                Targets::Distributions(rows) => distributions(&chunk, rows, upstream),
            };
            nll.push(scored.nll.clone());
            sums.add_chunk(chunk, scored, wanted);
        }
        sums.add_block(block, wanted);
    }
    (Floats::cat(nll, 0), sums.finish(input))
}

/// Weighted mean `Σ_n w_n nll_n / Σ_n w_n`, shape `[1]`; without weights the mean.
///
/// Weights of 0 alone give NaN, a mean over nothing.
pub fn mean_nll<B: Kernels>(
    input: Likelihood<Floats<B>>,
    targets: Targets<Floats<B>, Ints<B>>,
    weights: Option<Floats<B>>,
) -> Floats<B> {
    let token_shares = token_shares(&input, weights);
    (B::nll(input, targets) * token_shares).sum()
}

/// `w_n / Σ w`, shape `[N]`: the share of each token in the mean.
pub(crate) fn token_shares<B: Backend>(
    input: &Likelihood<Floats<B>>,
    weights: Option<Floats<B>>,
) -> Floats<B> {
    match weights {
        Some(weights) => weights.clone() / weights.sum(),
        None => {
            let tokens = input.tokens();
            Floats::full([tokens], 1.0 / tokens as f64, &input.weight.device(), input.weight.dtype())
        }
    }
}

/// The contexts as a tensor `[N·K, d]`, by the backend's latent layer.
pub(crate) fn context_tensor<B: Kernels>(source: ContextSource<Floats<B>>, d: usize) -> Floats<B> {
    match source {
        ContextSource::Given(contexts) => contexts,
        ContextSource::Latent(args) => {
            let latent = B::latent(args);
            let elements = latent.num_elements();
            latent.reshape([elements / d, d])
        }
    }
}

/// A run of tokens whose contexts exist at a time.
pub(crate) struct Block<'a, B: Kernels> {
    input: &'a Likelihood<Floats<B>>,
    /// Of the logit map.
    table: Option<Floats<B>>,
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// `h_k`, `[tokens·K, d]`
    contexts: Floats<B>,
    /// The layer that they came from, if any.
    latent: Option<LatentArgs<Floats<B>>>,
}

pub(crate) fn blocks<B: Kernels>(input: &Likelihood<Floats<B>>) -> impl Iterator<Item = Block<'_, B>> {
    let d = input.weight.shape()[1];
    let table = input.map_params.clone().map(|params| input.map.table(params));
    runs(input.tokens(), input.block_tokens()).map(move |(start, end)| {
        let source = input.slice(start, end).contexts;
        let latent = match &source {
            ContextSource::Given(_) => None,
            ContextSource::Latent(args) => Some(args.clone()),
        };
        let contexts = context_tensor(source, d);
        Block { input, table: table.clone(), start, end, contexts, latent }
    })
}

impl<'a, B: Kernels> Block<'a, B> {
    fn chunks(&self) -> impl Iterator<Item = Chunk<'a, B>> {
        let step = self.input.chunk_tokens();
        runs(self.end - self.start, step).map(|(start, end)| Chunk::new(self, start, end))
    }

    /// Contexts of the block's tokens `start .. end`, `[tokens·K, d]`.
    pub(crate) fn contexts(&self, start: usize, end: usize) -> Floats<B> {
        let components = self.input.components();
        self.contexts.clone().rows(start * components..end * components)
    }
}

/// A run of tokens that is worked on at a time, with its logits.
struct Chunk<'a, B: Kernels> {
    input: &'a Likelihood<Floats<B>>,
    table: Option<Floats<B>>,
    /// The first token.
    start: usize,
    tokens: usize,
    components: usize,
    /// `[tokens·K, d]`
    contexts: Floats<B>,
    /// `[tokens, K]`
    log_prior: Option<Floats<B>>,
    /// `z`, `[tokens·K, V]`
    logits: Floats<B>,
}

impl<'a, B: Kernels> Chunk<'a, B> {
    /// Tokens `start .. end` of a block.
    fn new(block: &Block<'a, B>, start: usize, end: usize) -> Self {
        let input = block.input;
        let components = input.components();
        let contexts = block.contexts(start, end);
        let (start, end) = (block.start + start, block.start + end);
        let product = B::product(contexts.clone(), input.weight.clone().transpose(), input.precision);
        Self {
            input,
            table: block.table.clone(),
            start,
            tokens: end - start,
            components,
            contexts,
            log_prior: input.log_prior.as_ref().map(|prior| prior.clone().rows(start..end)),
            logits: match &input.bias {
                Some(bias) => product + bias.clone().reshape([1, input.vocab()]),
                None => product,
            },
        }
    }

    /// `f(z)`, `[tokens·K, V]`.
    fn mapped(&self) -> Floats<B> {
        self.input.map.apply(self.logits.clone(), self.table.as_ref())
    }

    /// `log π_k + x_k` for a value a component, `[tokens, K]`.
    fn with_prior(&self, x: Floats<B>) -> Floats<B> {
        let x = x.reshape([self.tokens, self.components]);
        match &self.log_prior {
            Some(prior) => x + prior.clone(),
            None => x,
        }
    }

    /// `log π_k + log p_k(v)`, `[tokens, K, V]`.
    fn joint(&self, component_log_probs: Floats<B>) -> Floats<B> {
        let [_, vocab] = component_log_probs.dims();
        let x = component_log_probs.reshape([self.tokens, self.components, vocab]);
        match &self.log_prior {
            Some(prior) => x + prior.clone().reshape([self.tokens, self.components, 1]),
            None => x,
        }
    }
}

fn log_probs_of<B: Kernels>(chunk: &Chunk<'_, B>) -> Floats<B> {
    let component = log_softmax(chunk.mapped());
    match chunk.log_prior {
        Some(_) => {
            let shape = [chunk.tokens, chunk.input.vocab()];
            log_sum_exp_dim(chunk.joint(component), 1).reshape(shape)
        }
        None => component,
    }
}

/// A chunk's cross-entropies and the gradients of its mapped logits and log-priors.
struct Scored<B: Kernels> {
    /// `[tokens]`
    nll: Floats<B>,
    /// `∂/∂f(z)`, `[tokens·K, V]`
    d_mapped: Floats<B>,
    /// `[tokens, K]`
    d_log_prior: Floats<B>,
}

/// A chunk scored against one word a token.
struct Words<B: Kernels> {
    /// `[tokens]`
    nll: Floats<B>,
    /// `log π_k + log p_k(y)`, `[tokens, K]`
    joint: Floats<B>,
    /// Target of each row, `[tokens·K, 1]`
    word: Ints<B>,
    /// `e^{f(z) − max}`, `[tokens·K, V]`, and its row sums `[tokens·K, 1]`
    exp: Floats<B>,
    sum: Floats<B>,
}

impl<B: Kernels> Words<B> {
    fn score(chunk: &Chunk<'_, B>, words: Ints<B>) -> Self {
        let word = words.reshape([chunk.tokens, 1]).repeat_dim(1, chunk.components);
        let word = word.reshape([chunk.tokens * chunk.components, 1]);
        let mapped = chunk.mapped();
        // A constant of the gradient, where this is differentiated by composition.
        let max = mapped.clone().detach().max_dim(1);
        let at_target = mapped.clone().gather(1, word.clone()) - max.clone();
        let exp = (mapped - max).exp();
        let sum = exp.clone().sum_dim(1);
        let joint = chunk.with_prior(at_target - sum.clone().log());
        let nll = -log_sum_exp(joint.clone()).reshape([chunk.tokens]);
        Self { nll, joint, word, exp, sum }
    }

    /// `∂/∂f(z_k) = u γ_k (softmax − onehot)`, `∂/∂log π_k = −u γ_k` for an upstream gradient `u [tokens]`.
    fn gradients(self, upstream: Floats<B>) -> Scored<B> {
        let tokens = self.nll.num_elements();
        let responsibility = (self.joint + self.nll.clone().reshape([tokens, 1])).exp();
        let weight = responsibility * upstream.reshape([tokens, 1]);
        let row_weight = weight.clone().reshape(self.sum.shape());
        let d_mapped = self.exp * (row_weight.clone() / self.sum);
        Scored {
            nll: self.nll,
            d_mapped: d_mapped.scatter_add(1, self.word, -row_weight),
            d_log_prior: -weight,
        }
    }
}

/// Scores a chunk against distributions `q [tokens, V]`. With `r_k(v) = π_k p_k(v) / P(v)` and `s_k = Σ_v q_v r_k(v)`:
/// `∂/∂f(z_k) = u (p_k s_k − q r_k)` and `∂/∂log π_k = −u s_k`.
fn distributions<B: Kernels>(chunk: &Chunk<'_, B>, q: Floats<B>, upstream: Floats<B>) -> Scored<B> {
    let (tokens, vocab) = (chunk.tokens, chunk.input.vocab());
    let component = log_softmax(chunk.mapped());
    let shape = component.shape();
    let joint = chunk.joint(component.clone());
    let log_probs = log_sum_exp_dim(joint.clone(), 1);
    let nll = -(q.clone() * log_probs.clone().reshape([tokens, vocab])).sum_dim(1).reshape([tokens]);
    let q = (q * upstream.reshape([tokens, 1])).reshape([tokens, 1, vocab]);
    let assigned = (joint - log_probs).exp() * q;
    let total = assigned.clone().sum_dim(2);
    let d_mapped = component.exp() * total.clone().reshape([shape[0], 1]) - assigned.reshape(shape);
    Scored { nll, d_mapped, d_log_prior: -total.reshape([tokens, chunk.components]) }
}

/// Gradients summed or joined over the chunks and blocks so far.
pub(crate) struct Sums<B: Kernels> {
    /// Gradients of the contexts of the block's chunks.
    block: Vec<Floats<B>>,
    contexts: Vec<Floats<B>>,
    latent_weight: Option<Floats<B>>,
    latent_bias: Option<Floats<B>>,
    log_prior: Vec<Floats<B>>,
    weight: Option<Floats<B>>,
    bias: Option<Floats<B>>,
    /// Of the logit map's table.
    pub(crate) map_table: Option<Floats<B>>,
}

impl<B: Kernels> Default for Sums<B> {
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

impl<B: Kernels> Sums<B> {
    fn add_chunk(&mut self, chunk: Chunk<'_, B>, scored: Scored<B>, wanted: Wanted) {
        let Chunk { input, table, contexts, logits, .. } = chunk;
        let (d_logits, d_table) = input.map.vjp(logits, table.as_ref(), scored.d_mapped);
        self.add(input, contexts, d_logits, scored.d_log_prior, wanted);
        if let (true, Some(d_table)) = (wanted.map_params, d_table) {
            accumulate(&mut self.map_table, d_table);
        }
    }

    /// What the gradients of a chunk's logits and log-priors add to those of the inputs, but for the logit map's.
    pub(crate) fn add(
        &mut self,
        input: &Likelihood<Floats<B>>,
        contexts: Floats<B>,
        d_logits: Floats<B>,
        d_log_prior: Floats<B>,
        wanted: Wanted,
    ) {
        if wanted.context_gradient(&input.contexts) {
            self.block.push(B::product(d_logits.clone(), input.weight.clone(), input.precision));
        }
        if wanted.log_prior && input.log_prior.is_some() {
            self.log_prior.push(d_log_prior);
        }
        if wanted.bias && input.bias.is_some() {
            accumulate(&mut self.bias, d_logits.clone().sum_dim(0).reshape([input.vocab()]));
        }
        if wanted.weight {
            accumulate(&mut self.weight, B::product(d_logits.transpose(), contexts, input.precision));
        }
    }

    /// Ends a block: its contexts' gradient is joined, or taken back through the layer that made them.
    pub(crate) fn add_block(&mut self, block: Block<'_, B>, wanted: Wanted) {
        if self.block.is_empty() {
            return;
        }
        let gradient = Floats::cat(std::mem::take(&mut self.block), 0);
        let Some(args) = block.latent else {
            return self.contexts.push(gradient);
        };
        let shape = [block.end - block.start, args.weight.shape()[1]];
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

    pub(crate) fn finish(self, input: &Likelihood<Floats<B>>) -> Gradients<Floats<B>> {
        let joined = |parts: Vec<Floats<B>>| (!parts.is_empty()).then(|| Floats::cat(parts, 0));
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

fn accumulate<B: Kernels>(sum: &mut Option<Floats<B>>, part: Floats<B>) {
    *sum = Some(match sum.take() {
        Some(sum) => sum + part,
        None => part,
    });
}
