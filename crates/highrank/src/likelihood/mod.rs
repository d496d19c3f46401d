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
//! are worked through in chunks: product, map, log-sum-exp, responsibilities, gradient, two products, next chunk.
//!
//! # Cost
//! * An untracked call, or the forward pass of the per-token [`nll`]: one matrix product, `2·N·K·d·V` operations.
//! * [`mean_nll`] when tracked: three products. Its token weights are known in the forward pass, so the gradients are
//!   made there and the backward pass only scales them.
//! * [`nll`] when tracked: four, because any upstream gradient may come; the backward pass recomputes each chunk.
//! * Memory beyond inputs and gradients: a few chunks of at most [`chunk_bytes`](Likelihood::chunk_bytes) bytes each,
//!   whatever `N` and `K`, but never less than one token (`K·V` logits). The contexts of a mixture are made from the
//!   hidden states a block of tokens at a time ([`ContextSource::Latent`](crate::ops::ContextSource::Latent)) and made
//!   again where a backward pass comes later, so they are not stored either.
//!
//! # Numerics
//! Log space throughout: no epsilon, and no exponential whose maximum has not been subtracted.
//!
//! # Backends
//! A call runs on the device of its tensors. Flex and the CubeCL backends have native kernels, NdArray the [portable]
//! bodies, and on all three the backward pass is written by hand. On any other backend that Burn was built with, the portable
//! bodies are composed of Burn's differentiable operations; autodiff then keeps the logits of all tokens.

mod budget;
pub mod portable;

pub use budget::{DEFAULT_MEMORY_BUDGET, default_memory_budget};

use burn::backend::{Dispatch, TensorMetadata};
use burn::tensor::Tensor;
use highrank_kernels::Floats;

use crate::ops::{Likelihood, NllCall, OutputOps, Targets, has_kernels};

/// Cross-entropy of every token in nats, shape `[N]`; differentiable.
///
/// # Panics
/// If tensors do not fit each other. On CPU backends, if a word is outside of the vocabulary. If target distributions are
/// tracked: they are constants of the loss.
pub fn nll(input: Likelihood, targets: Targets) -> Tensor<1> {
    let nll = match has_kernels(&input.weight.primitive().device()) {
        true => Floats::new(<Dispatch as OutputOps>::nll(NllCall { input, targets, weights: None })),
        false => portable::nll(&input, &targets),
    };
    nll.tensor()
}

/// Weighted mean `Σ_n w_n nll_n / Σ_n w_n` in nats, shape `[1]`; without weights the mean. Differentiable, also with respect
/// to the weights.
///
/// Weights of 0 alone give NaN, a mean over nothing.
///
/// # Panics
/// As [`nll`].
pub fn mean_nll(input: Likelihood, targets: Targets, weights: Option<Tensor<1>>) -> Tensor<1> {
    let weights = weights.map(Floats::from);
    let mean = match has_kernels(&input.weight.primitive().device()) {
        true => Floats::new(Dispatch::mean_nll(NllCall { input, targets, weights })),
        false => portable::mean_nll(input, targets, weights),
    };
    mean.tensor()
}
