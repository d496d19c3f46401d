//! The likelihood made of Burn's own tensor operations: runs on every backend, and is what native kernels are checked
//! against.

use burn::tensor::backend::Backend;
use burn::tensor::{IndexingUpdateOp, Int, Tensor};

use super::{Gradients, Likelihood, Targets, Wanted};
use crate::math::{log_softmax, log_sum_exp, log_sum_exp_dim};

/// Cross-entropy of every token in nats, shape `[N]`; one product.
pub fn nll<B: Backend>(input: &Likelihood<B>, targets: &Targets<B>) -> Tensor<B, 1> {
    let parts = chunks(input, targets).map(|(chunk, targets)| match targets {
        Targets::Words(words) => Words::score(&chunk, words).nll,
        Targets::Distributions(rows) => {
            let log_probs = log_probs_of(&chunk);
            (rows * log_probs).sum_dim(1).neg().squeeze_dim(1)
        }
    });
    Tensor::cat(parts.collect(), 0)
}

/// Log-probabilities `[N, V]` by the composed formula, differentiable like any other Burn program.
pub fn log_probs<B: Backend>(input: &Likelihood<B>) -> Tensor<B, 2> {
    let parts = bounds(input).map(|(start, end)| log_probs_of(&Chunk::new(input, start, end)));
    Tensor::cat(parts.collect(), 0)
}

/// Logits `z` of all components, `[N·K, V]`, before the logit map.
pub(crate) fn logits<B: Backend>(input: &Likelihood<B>) -> Tensor<B, 2> {
    Chunk::new(input, 0, input.tokens()).logits
}

/// Cross-entropy of every token and the gradients of `Σ_n upstream_n · nll_n`; three products.
pub fn nll_and_gradients<B: Backend>(
    input: &Likelihood<B>,
    targets: &Targets<B>,
    upstream: Tensor<B, 1>,
    wanted: Wanted,
) -> (Tensor<B, 1>, Gradients<B>) {
    let mut nll = vec![];
    let mut sums = Sums::default();
    let mut start = 0;
    for (chunk, targets) in chunks(input, targets) {
        let upstream = upstream.clone().slice(start..start + chunk.tokens);
        start += chunk.tokens;
        let scored = match targets {
            Targets::Words(words) => Words::score(&chunk, words).gradients(upstream),
            Targets::Distributions(rows) => distributions(&chunk, rows, upstream),
        };
        nll.push(scored.nll.clone());
        sums.add(chunk, scored, wanted);
    }
    (Tensor::cat(nll, 0), sums.finish())
}

/// First and last token, exclusive, of each chunk.
fn bounds<B: Backend>(input: &Likelihood<B>) -> impl Iterator<Item = (usize, usize)> + use<B> {
    let (tokens, step) = (input.tokens(), input.chunk_tokens());
    (0..tokens).step_by(step).map(move |start| (start, tokens.min(start + step)))
}

fn chunks<'a, B: Backend>(
    input: &'a Likelihood<B>,
    targets: &'a Targets<B>,
) -> impl Iterator<Item = (Chunk<'a, B>, Targets<B>)> {
    bounds(input).map(move |(start, end)| (Chunk::new(input, start, end), targets.slice(start, end)))
}

/// A run of tokens that is worked on at a time, with its logits.
struct Chunk<'a, B: Backend> {
    input: &'a Likelihood<B>,
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
    fn new(input: &'a Likelihood<B>, start: usize, end: usize) -> Self {
        let components = input.components();
        let contexts = input.contexts.clone().slice(start * components..end * components);
        let product = contexts.clone().matmul(input.weight.clone().transpose());
        Self {
            input,
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
        self.input.map.apply(self.logits.clone(), self.input.map_params.as_ref())
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

/// Gradients summed or joined over the chunks so far.
struct Sums<B: Backend> {
    contexts: Vec<Tensor<B, 2>>,
    log_prior: Vec<Tensor<B, 2>>,
    weight: Option<Tensor<B, 2>>,
    bias: Option<Tensor<B, 1>>,
    map_params: Option<Tensor<B, 1>>,
}

impl<B: Backend> Default for Sums<B> {
    fn default() -> Self {
        Self { contexts: vec![], log_prior: vec![], weight: None, bias: None, map_params: None }
    }
}

impl<B: Backend> Sums<B> {
    fn add(&mut self, chunk: Chunk<'_, B>, scored: Scored<B>, wanted: Wanted) {
        let Chunk { input, contexts, logits, log_prior, .. } = chunk;
        let (d_logits, d_params) = input.map.vjp(logits, input.map_params.as_ref(), scored.d_mapped);
        if wanted.contexts {
            self.contexts.push(d_logits.clone().matmul(input.weight.clone()));
        }
        if wanted.log_prior && log_prior.is_some() {
            self.log_prior.push(scored.d_log_prior);
        }
        if wanted.bias && input.bias.is_some() {
            accumulate(&mut self.bias, d_logits.clone().sum_dim(0).squeeze_dim(0));
        }
        if wanted.weight {
            accumulate(&mut self.weight, d_logits.transpose().matmul(contexts));
        }
        if let (true, Some(d_params)) = (wanted.map_params, d_params) {
            accumulate(&mut self.map_params, d_params);
        }
    }

    fn finish(self) -> Gradients<B> {
        let joined = |parts: Vec<Tensor<B, 2>>| (!parts.is_empty()).then(|| Tensor::cat(parts, 0));
        Gradients {
            contexts: joined(self.contexts),
            log_prior: joined(self.log_prior),
            weight: self.weight,
            bias: self.bias,
            map_params: self.map_params,
        }
    }
}

fn accumulate<B: Backend, const D: usize>(sum: &mut Option<Tensor<B, D>>, part: Tensor<B, D>) {
    *sum = Some(match sum.take() {
        Some(sum) => sum + part,
        None => part,
    });
}
