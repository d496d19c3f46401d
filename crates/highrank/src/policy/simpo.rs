//! Simple preference optimisation.

use burn::tensor::{Bool, Tensor};

use super::pairs::{Pairs, PreferenceLoss};
use super::sequences::{fits, means, weight};
use crate::error::{HeadError, OrPanic};

/// The options of [`simpo_loss`]. By default β is 2 and γ is 1.
#[derive(Debug, Clone, PartialEq)]
pub struct SimpoOptions {
    /// `β`, 0 or more: what a mean log-probability is multiplied by.
    pub beta: f64,
    /// `γ`, 0 or more: by how much the reward of the chosen answer should be above that of the rejected one.
    pub margin: f64,
}

impl Default for SimpoOptions {
    fn default() -> Self {
        Self { beta: 2.0, margin: 1.0 }
    }
}

/// Simple preference optimisation, which has no reference (Meng et al., NeurIPS 2024, eq. 6).
///
/// ```text
/// reward_b = β a_b                  a_b = S_b / L_b, the mean log-probability of the tokens that count
/// loss     = mean_q [ −log σ(reward_chosen − reward_rejected − γ) ]
/// ```
///
/// An answer without tokens that count has a mean of 0, as if it were certain. Leave its pair out.
///
/// # Shapes
/// - log_probs: `[B, L]`, of the tokens of all answers
/// - mask: `[B, L]`, true where a token counts
///
/// # Panics
/// If two shapes differ (the message has both), or an option is out of range; as [`Pairs::differences`].
///
/// # Example
/// ```
/// use burn::tensor::{Device, Tensor};
/// use highrank::policy::{Pairs, SimpoOptions, simpo_loss};
///
/// let device = Device::default().autodiff();
/// let log_probs = Tensor::<2>::from_floats([[-1.0, -2.0], [-3.0, -0.5]], &device).require_grad();
/// let mask = Tensor::<2, burn::tensor::Bool>::full([2, 2], true, &device);
/// let options = SimpoOptions { beta: 2.0, margin: 0.5 };
/// let loss = simpo_loss(log_probs, mask, &Pairs::halves(2, &device), &options);
/// assert_eq!(loss.rewards.into_data().to_vec::<f32>().unwrap(), [-3.0, -3.5]);
/// ```
#[track_caller]
pub fn simpo_loss(
    log_probs: Tensor<2>,
    mask: Tensor<2, Bool>,
    pairs: &Pairs,
    options: &SimpoOptions,
) -> PreferenceLoss {
    let make = || -> Result<PreferenceLoss, HeadError> {
        let SimpoOptions { beta, margin } = *options;
        weight("beta", beta, &log_probs)?;
        weight("margin", margin, &log_probs)?;
        fits("mask", mask.dims(), &log_probs)?;
        PreferenceLoss::of(means(log_probs, &mask) * beta, pairs, margin, 0.0)
    };
    make().or_panic("simpo_loss")
}
