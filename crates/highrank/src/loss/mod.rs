//! What a training loss is made of: options, the tokens that count, and results.
//!
//! With `P` at temperature τ, and all sums over the `V'` words that are not masked:
//!
//! ```text
//! nll_n    = −log P(y_n)
//! base_n   = nll_n, or with a teacher −Σ_v q_nv log P(v)
//! smooth_n = −(1/V') Σ_v log P(v)
//! z_n      = Σ_k π_k LSE(f(z_k)/τ)²
//! loss_n   = (1 − ε) base_n + ε smooth_n + λ z_n
//! ```
//!
//! The loss of a batch may gain [another term](LossOptions::with_prior_cv), the squared coefficient of variation of a mixture's
//! priors.
//!
//! All of it comes out of the same sweep over the logits: no target distribution over the vocabulary is ever stored, and no
//! logits are.

mod counted;
mod options;
mod prior_cv;
mod result;
mod teacher;

pub use counted::validate_targets;
pub(crate) use counted::{Counted, CountedWords};
pub use options::{LossOptions, Reduction};
pub(crate) use options::{Teacher, validate_temperature};
pub(crate) use prior_cv::prior_cv;
pub use result::{Loss, TokenStatistics};
