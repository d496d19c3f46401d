//! Adaptive softmax: words in clusters by frequency, rare ones with fewer features (Grave, Joulin, Cissé, Grangier, Jégou, ICML
//! 2017, arXiv 1609.04309).
//!
//! [`HeadConfig::with_adaptive`](crate::HeadConfig::with_adaptive) has the formula, the cost and what is exact. With the width `H` of
//! a hidden state the projections are
//!
//! ```text
//! P_i [d_i, H],   d_i = max(1, ⌊H / division^i⌋)                           i = 1 … C
//! ```
//!
//! They and the widths are those of PyTorch's `AdaptiveLogSoftmaxWithLoss`; the paper leaves the division open and measures 4.
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
//! # Predictions
//! The most probable words need those clusters alone that a better word can be in: no word of a cluster is more probable than the
//! cluster. A drawn word needs one tail.

mod division;
mod losses;
mod parts;
mod predict;
mod sample;
mod target;
mod words;
