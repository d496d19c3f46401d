//! What a training loss is made of: options, the tokens that count, and results.
//!
//! With `P` at temperature τ, and all sums over the `V'` words that are not masked:
//!
//! ```text
//! q̃_n      = (1 − ε) q_n + ε/V'        q_n the target: one word, a teacher's words or a distribution
//! z_n      = Σ_k π_k LSE(f(z_k)/τ)²
//! H_n      = −Σ_v P(v) log P(v)
//! loss_n   = −Σ_v w_v q̃_nv log P(v) + λ z_n − λ_H H_n      w_v the class weights, 1 without them
//! ```
//!
//! Under [another head's distribution](LossOptions::with_distillation) a divergence takes the place of the cross-entropy.
//!
//! The loss of a batch may gain [another term](LossOptions::with_prior_cv), the squared coefficient of variation of a mixture's
//! priors.
//!
//! All of it comes out of the same sweep over the logits: no target distribution over the vocabulary is ever stored, and no
//! logits are.

mod counted;
mod distribution;
mod listed;
mod options;
mod reduce;
mod result;
mod rows;

pub use counted::validate_targets;
pub(crate) use counted::{CountedTokens, CountedWords, read, validate_words};
pub use distribution::Distribution;
pub(crate) use listed::{ListedWords, check_words};
pub(crate) use options::TargetDistribution;
pub use options::{LossOptions, Reduction};
pub use reduce::linear_cross_entropy;
pub(crate) use reduce::{check_hidden, check_targets, leading, loss_of_counted, of_targets, reduced};
pub use result::{Loss, TokenStatistics};
pub(crate) use rows::{in_wide_integers, is_cpu, safe_words};
