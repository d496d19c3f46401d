//! Direct preference optimisation.

use burn::tensor::{Bool, Tensor};

use super::pairs::{Pairs, PreferenceLoss};
use super::sequences::{log_ratios, weight};
use crate::error::{HeadError, OrPanic, in_range};

/// The options of [`dpo_loss`]. By default β is 0.1, without label smoothing.
#[derive(Debug, Clone, PartialEq)]
pub struct DpoOptions {
    /// `β`, 0 or more: how strongly the model is held to the reference.
    pub beta: f64,
    /// `ε` in `[0, 0.5]`: how many of the preferences are taken to be wrong (conservative DPO, Mitchell 2023).
    pub label_smoothing: f64,
}

impl Default for DpoOptions {
    fn default() -> Self {
        Self { beta: 0.1, label_smoothing: 0.0 }
    }
}

/// Direct preference optimisation (Rafailov et al., NeurIPS 2023, eq. 7).
///
/// ```text
/// reward_b = β (S_b − R_b)          S_b = Σ_t m_bt l_bt, R_b the same of the reference
/// g_q      = reward_chosen − reward_rejected
/// loss     = mean_q [ −(1 − ε) log σ(g_q) − ε log σ(−g_q) ]
/// ```
///
/// # Shapes
/// - log_probs, ref_log_probs: `[B, L]`, of the tokens of all answers
/// - mask: `[B, L]`, true where a token counts
///
/// # Panics
/// If two shapes differ (the message has both), or an option is out of range; as [`Pairs::differences`].
///
/// # Example
/// ```
/// use burn::tensor::{Device, Tensor};
/// use highrank::policy::{DpoOptions, Pairs, dpo_loss};
///
/// let device = Device::default().autodiff();
/// let log_probs = Tensor::<2>::from_floats([[-1.0, -2.0], [-3.0, -0.5]], &device).require_grad();
/// let mask = Tensor::<2, burn::tensor::Bool>::full([2, 2], true, &device);
/// let pairs = Pairs::halves(2, &device);
/// let options = DpoOptions { beta: 0.1, label_smoothing: 0.05 };
/// let reference = log_probs.clone().detach();
/// let loss = dpo_loss(log_probs, reference, mask, &pairs, &options);
/// // The policy is the reference: no preference yet.
/// assert!((loss.value.into_scalar::<f32>() - 2f32.ln()).abs() < 1e-6);
/// ```
#[track_caller]
pub fn dpo_loss(
    log_probs: Tensor<2>,
    ref_log_probs: Tensor<2>,
    mask: Tensor<2, Bool>,
    pairs: &Pairs,
    options: &DpoOptions,
) -> PreferenceLoss {
    let make = || -> Result<PreferenceLoss, HeadError> {
        let DpoOptions { beta, label_smoothing } = *options;
        weight("beta", beta, &log_probs)?;
        in_range("label_smoothing", label_smoothing, "a number in [0, 0.5]", 0.0..=0.5)?;
        let rewards = log_ratios(log_probs, ref_log_probs, &mask)? * beta;
        PreferenceLoss::of(rewards, pairs, 0.0, label_smoothing)
    };
    make().or_panic("dpo_loss")
}
