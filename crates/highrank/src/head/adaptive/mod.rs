//! Adaptive softmax: words in clusters by frequency, rare ones with fewer features (Grave, Joulin, Cissé, Grangier, Jégou, ICML
//! 2017, arXiv 1609.04309).
//!
//! Words are numbered by frequency, the most frequent first. With cutoffs `c_1 < … < c_C < V`, the words below `c_1` are the
//! *shortlist*, and cluster i holds the words `c_i .. c_{i+1}`, the last up to `V`. The *head cluster* is any head of this crate
//! over the shortlist and one word for each cluster; a cluster's *tail* is a softmax of its words over a projected hidden state:
//!
//! ```text
//! log P(x | g) = log P_head(x | g)                                         x in the shortlist
//! log P(x | g) = log P_head(cluster i | g) + log softmax(W_i · P_i g)_x    x in cluster i
//! P_i [d_i, H],   d_i = max(1, ⌊H / division^i⌋)                           i = 1 … C
//! ```
//!
//! These are exact probabilities of all `V` words, which sum to 1. The projection and the widths are those of PyTorch's
//! `AdaptiveLogSoftmaxWithLoss`; the paper leaves the division open and measures 4.
//!
//! # Cost
//! A training step makes the logits of `c_1 + C` words for every token, and those of a tail for its own tokens alone: with `n_i`
//! tokens in cluster i, `2·3·(N·d·(c_1 + C) + Σ_i n_i·d_i·(H + c_{i+1} − c_i))` operations in place of `2·3·N·d·V`. The likelihood
//! of every cluster is the fused one, so nothing of size `[N, V]` exists. Targets are read back once a call.
//!
//! The most probable words need those clusters alone that a better word can be in: no word of a cluster is more probable than the
//! cluster. A drawn word needs one tail.

mod clustered;
mod linears;
mod losses;
mod predict;
mod sample;
#[cfg(all(test, feature = "flex"))]
mod tests;
