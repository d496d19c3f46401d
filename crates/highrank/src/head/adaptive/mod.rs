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
//! of every cluster is the fused one, so nothing of size `[N, V]` exists. Targets are read back.
//!
//! # Losses against distributions
//! With the distribution `q` that a token is scored against, and its share `Q_i` of cluster i:
//!
//! ```text
//! −Σ_v q_v log P(v) = −Σ_x q_x log P_head(x) − Σ_i Q_i log P_head(cluster i) − Σ_i Q_i Σ_v (q_v/Q_i) log softmax(W_i · P_i g)_v
//! Q_i = Σ_v q_v                                                                                    v in cluster i
//! ```
//!
//! so each part has a cross-entropy of its own words: the head cluster against the `q_x` and `Q_i`, and tail i against `q_v/Q_i`,
//! weighted by `Q_i`. A word alone has a share in its own cluster only. A teacher has one in the clusters of the words that it lists,
//! and in all of them if the others share a rest; label smoothing has `ε V'_i/V'` in each with `V'_i` unmasked words, so both then sweep
//! *every tail for every token*, as the mean over all words needs every tail's: `2·3·N·Σ_i d_i·(H + c_{i+1} − c_i)` operations. A
//! teacher's words and probabilities are read back, and which words are masked.
//!
//! The z-loss is of the softmaxes that a token is scored by, those of tails by their shares: `z = z_head + Σ_i Q_i LSE(W_i · P_i g)²`.
//!
//! # Predictions
//! The most probable words need those clusters alone that a better word can be in: no word of a cluster is more probable than the
//! cluster. A drawn word needs one tail.

mod division;
mod linears;
mod losses;
mod parts;
mod predict;
mod sample;
mod target;
#[cfg(all(test, feature = "flex"))]
mod tests;
mod words;
