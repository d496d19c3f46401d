//! A head whose vocabulary is shared out: each of p ranks holds the decoder's rows of some words.
//!
//! ```text
//! LSE^r_nk   = logsumexp over the words v of rank r of f(z_nk,v)/τ          on rank r
//! LSE_nk     = logsumexp_r LSE^r_nk                                         exchanged
//! log P(y|n) = logsumexp_k [ log π_nk + f(z_nk,y)/τ − LSE_nk ]              the logit of y: of the rank that holds it
//! ```
//!
//! Each rank makes the logits of its own words for all tokens, in chunks that are never stored, and what ranks exchange are two
//! numbers for each token and component. An `LSE^r` below −10³⁰ is taken as −10³⁰, that of a rank whose words are all masked. Contexts, priors and the logit map's parameters are the same on all ranks, and so are
//! the hidden states and targets that they are given.
//!
//! # Gradients
//! Every rank makes the same loss, bit for bit. Its gradient by the rows of the decoder is the rank's own. That of the contexts
//! `h_k` and of the map's parameters is a sum over ranks, which one exchange of the backward pass makes; from there on everything
//! is the same on all ranks again. A backward pass is therefore a step that all ranks take together.
//!
//! Let `g_nk` be the gradient of the loss by `LSE_nk`. On rank r
//!
//! ```text
//! ∂/∂(f(z_nk,v)/τ) = g_nk e^{f(z_nk,v)/τ − LSE_nk} − [v = y] γ_nk ∂loss/∂nll_n
//! ```
//!
//! # Where all words count
//! With the priors `log π^r_nk = log π_nk + LSE^r_nk − LSE_nk` the mixture of the softmaxes over a rank's own words has the
//! probabilities of the whole vocabulary. So label smoothing, entropies, statistics and predictions are those of a head over these
//! words, at the cost of a second sweep, and their sums are exchanged. Of a single component that prior is a factor of all probabilities,
//! which the sweep leaves out.
//!
//! # Cost
//! A loss takes four matrix products with the rank's rows, as one by token does; label smoothing takes four more, statistics one.
//! The contexts of all tokens, `[N·K, d]`, are stored.
//!
//! On Flex both sweeps are native. On WebGPU, CUDA and NdArray the first is composed of Burn's operations, with a backward pass
//! written by hand; on other devices a backward pass has no exchange, so [`OutputHead::shard`](crate::OutputHead::shard) refuses
//! them.
//!
//! # Which ranks
//! [`ShardGroup`] says what ranks must be able to do: to gather numbers. [`on_threads`] makes ranks of threads, for tests and
//! small machines.
//!
//! # Models
//! A model that holds all parameters itself, under the same names with and without a shared vocabulary, keeps the
//! [`head`](ShardedHead::head) over its rank's words and beside it a [`SharedVocabulary`]. [`Share`] looks words up in any matrix
//! with a row for each.

mod exchange;
mod group;
mod head;
mod predict;
mod score;
mod share;
mod sweep;
mod threads;

pub use group::{GroupHandle, ShardError, ShardGroup};
pub use head::{ShardedHead, SharedVocabulary};
pub use share::Share;
pub use threads::on_threads;
