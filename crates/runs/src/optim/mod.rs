//! Optimisation as in AWD-LSTM (arXiv 1708.02182, section 3): clipping to the global gradient norm, SGD with
//! weight decay, and its non-monotonically triggered average; and the update of dynamic evaluation.
//!
//! ```text
//! norm = sqrt(sum of g² over all parameters together)
//! coef = min(1, max_norm / (norm + 1e-6))
//! w_t  = w_{t-1} - lr_t (coef · g + weight_decay · w_{t-1})
//! ```

mod adam;
mod clip;
mod dynamic;
mod moments;
mod non_monotone;
mod nt_asgd;
mod parameter;
#[cfg(all(test, feature = "flex"))]
mod testing;
mod update;

pub use adam::{Adam, adam, load_optimiser, number_parameters, save_optimiser};
pub use clip::{clip_global_norm, global_norm};
pub use dynamic::{DynamicConfig, DynamicForm, DynamicUpdate, GradientStatistics};
pub use moments::HasMoments;
pub use non_monotone::NonMonotone;
pub use nt_asgd::NtAsgd;
