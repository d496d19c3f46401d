//! The fused likelihood: `−log P(y | c)` and its gradients without ever storing the logits.
//!
//! For contexts `h_k`, log-priors `log π_k`, decoder `W, b` and logit map `f`, with `z_k = h_k·Wᵀ + b`:
//!
//! ```text
//! nll = −logsumexp_k( log π_k + f(z_k[y]) − LSE(f(z_k)) )
//! ∂nll/∂f(z_k) = γ_k (softmax(f(z_k)) − onehot_y)      γ_k = π_k p_k(y) / Σ_j π_j p_j(y)
//! ∂nll/∂log π_k = −γ_k
//! ```
//!
//! It equals the naive program `−log_probs(hidden).gather(targets)`, which holds `[N, K, V]` tensors. Here the tokens
//! are worked through in chunks: product, map, log-sum-exp, responsibilities, gradient, two products, next chunk. Flex has
//! no chunks under a decoder of few dimensions: each of its threads goes through tokens of its own, a few at a time.
//!
//! # Cost
//! * An untracked [`loss`], or the forward pass of one by token: one matrix product, `2·N·K·d·V` operations.
//! * A weighted sum when tracked: three products. Its token weights are known in the forward pass, so the gradients are
//!   made there and the backward pass only scales them.
//! * By token when tracked: four, because any upstream gradient may come; the backward pass recomputes each chunk.
//! * Memory beyond inputs and gradients: a few chunks of at most [`chunk_bytes`](LikelihoodInput::chunk_bytes) bytes each,
//!   whatever `N` and `K`, but never less than one token (`K·V` logits). The contexts of a mixture are made from the
//!   hidden states a block of tokens at a time ([`ContextSource::Latent`](crate::ops::ContextSource::Latent)) and made
//!   again where a backward pass comes later, so they are not stored either.
//!
//! # Gates
//! Words may mix several contexts into their logit, each by [gates](crate::ops::GatedArgs) of its own: one component, of whose
//! logits the first have an offset before the map. A chunk's three rows of products a token, over the words with gates, stand
//! beside its logits.
//!
//! # Numerics
//! Log space throughout: no epsilon, and no exponential from which a number near its maximum has not been subtracted.
//!
//! # Backends
//! A call runs on the device of its tensors. Flex, WebGPU and CUDA have native kernels, NdArray the [portable]
//! bodies, and on all four the backward pass is written by hand. On any other backend that Burn was built with, the portable
//! bodies are composed of Burn's differentiable operations; autodiff then keeps the logits of all tokens.

mod budget;
mod divergence;
mod draw;
pub(crate) mod gated;
mod kernels;
mod mask;
mod output_ops;
pub(crate) mod parts;
pub mod portable;
mod shares;
mod sparse_targets;

pub(crate) use budget::{DEFAULT_MEMORY_BUDGET, default_memory_budget, memory_budget};
pub use kernels::LikelihoodKernels;
pub use output_ops::{GradientSum, OutputOps, has_kernels};

pub(crate) use draw::draw_in_order;
pub(crate) use mask::Vocabulary;
pub(crate) use shares::Shares;
pub(crate) use sparse_targets::SparseTargets;

use burn::backend::{Dispatch, TensorMetadata};
use burn::tensor::Tensor;
use highrank_kernels::{Bools, Floats, Ints};

use crate::ops::{LikelihoodInput, LossCall, Objective, Prediction, Scores, Targets, is_cpu};

/// The loss of an objective in nats, differentiable: with weights `Σ_n w_n loss_n`, `[1]`, and otherwise the loss of each token,
/// `[N]`; and its statistics. Results are in f32, or f64 if the inputs are.
///
/// The gradient of a weighted sum also reaches tracked weights.
///
/// # Panics
/// If tensors do not fit each other. On CPU backends, if a word is outside of the vocabulary; on others such a token's loss
/// is NaN. If target distributions or a teacher's probabilities are tracked: they are constants of the loss.
pub fn loss(input: LikelihoodInput, mut objective: Objective, weights: Option<Tensor<1>>) -> Scores {
    let mut weights = weights.map(Floats::from);
    let outside = match is_cpu::<Dispatch>(&input.weight.device()) {
        true => None,
        false => Some(outside(&input, &objective.targets)),
    };
    if let Some(outside) = &outside {
        let last = input.vocab() as i64 - 1;
        objective = objective.map(|probs| probs, |words| words.clamp(0, last));
        weights = weights.map(|weights| weights.fill_where(outside.clone(), f64::NAN));
    }
    let is_sum = weights.is_some();
    let scores = scores(input, objective, weights);
    match outside {
        Some(outside) if !is_sum => Scores { loss: scores.loss.fill_where(outside, f64::NAN), ..scores },
        _ => scores,
    }
}

/// What is asked for beside the log-probabilities of [listed] words.
#[derive(Debug, Clone, Copy, Default)]
pub struct Beside {
    /// `H_n`.
    pub entropy: bool,
    /// `L_n`.
    pub normaliser: bool,
}

/// The log-probabilities of words `[N, m]` in nats, differentiable, and after them a column for each number that is asked for
/// [beside](Beside) them. No word may be masked, unless all are.
///
/// # Panics
/// If tensors do not fit each other, or on CPU backends, if a word is outside of the vocabulary.
pub fn listed(input: LikelihoodInput, ids: Ints, beside: Beside) -> Floats {
    let (device, dtype) = (input.weight.device(), input.wide());
    let factors = Floats::zeros(ids.dims::<2>(), &device, dtype);
    let factor = |is_asked: bool| is_asked.then(|| Floats::zeros([input.tokens()], &device, dtype));
    let objective = Objective {
        entropy: factor(beside.entropy),
        normaliser: factor(beside.normaliser),
        ..Objective::new(Targets::Listed { ids, factors })
    };
    scores(input, objective, None).listed.expect("listed words are scored")
}

/// The scores, [weighted](Scores::weighted), by the device's native operations where it has them.
fn scores(input: LikelihoodInput, objective: Objective, weights: Option<Floats>) -> Scores {
    match has_kernels(&input.weight.primitive().device()) {
        true => {
            let parts = objective.parts();
            let made = Dispatch::loss(LossCall { input, objective, weights });
            Scores::from_parts(&mut made.into_iter().map(Floats::new), parts)
        }
        false => portable::score(&input, &objective, None).0.weighted(weights),
    }
}

/// What is predicted of every token, by the device's native operations where it has them; a tensor, if one was asked for. No
/// gradient flows through it: what is to be differentiated is [composed](portable::log_probs).
pub(crate) fn predict(input: LikelihoodInput, prediction: Prediction<'_>) -> Option<Floats> {
    match has_kernels(&input.weight.device()) {
        true => <Dispatch as OutputOps>::predict(input, prediction).map(Floats::new),
        false => portable::predict(&input, prediction),
    }
}

/// The tokens that name a word outside of the vocabulary, `[N]`, found without reading anything back.
fn outside(input: &LikelihoodInput, targets: &Targets) -> Bools {
    let vocab = input.vocab() as i64;
    let is_outside = |words: &Ints| words.below(0).or(words.at_least(vocab));
    let words = is_outside(targets.words());
    match targets {
        Targets::Teacher { ids, .. } => {
            let listed = ids.clone().float(input.wide()).zeros_like().fill_where(is_outside(ids), 1.0);
            let any = listed.max_dim(1).reshape([input.tokens()]).at_least(0.5);
            words.or(any)
        }
        _ => words,
    }
}
