//! Kahneman-Tversky optimisation.

use burn::tensor::{Bool, Tensor};
use highrank_kernels::Floats;

use super::sequences::{log_ratios, mean, weight};
use crate::error::{HeadError, OrPanic, expect_shape};
use crate::math::sigmoid;
use crate::parameters::constant;

/// The options of [`kto_loss`]. By default β is 0.1, both weights are 1 and the reference point is 0.
#[derive(Debug, Clone)]
pub struct KtoOptions {
    /// `β`, 0 or more: how strongly the model is held to the reference.
    pub beta: f64,
    /// `λ_D`, 0 or more: the weight of desirable answers.
    pub desirable_weight: f64,
    /// `λ_U`, 0 or more: the weight of undesirable answers. The paper recommends weights for which both kinds, times how many there
    /// are, count about alike.
    pub undesirable_weight: f64,
    /// `z_0`, `[1]`, a constant of the loss: what [`kto_reference_point`] estimates.
    pub reference_point: Option<Tensor<1>>,
}

impl Default for KtoOptions {
    fn default() -> Self {
        Self { beta: 0.1, desirable_weight: 1.0, undesirable_weight: 1.0, reference_point: None }
    }
}

/// The loss of [`kto_loss`], and what else is worth watching.
#[derive(Debug, Clone)]
pub struct KtoLoss {
    /// What is minimised: the mean over the sequences, `[1]`.
    pub value: Tensor<1>,
    /// The loss of each sequence, `[B]`.
    pub per_sequence: Tensor<1>,
    /// The implicit reward of each sequence, `β (S_b − R_b)`, `[B]`. Constants: no gradient flows through them.
    pub rewards: Tensor<1>,
}

/// Kahneman-Tversky optimisation: answers that are desirable or not, in no pairs (Ethayarajh et al., ICML 2024, eq. 8).
///
/// ```text
/// gain_b = β (S_b − R_b − z_0)      S_b = Σ_t m_bt l_bt, R_b the same of the reference
/// loss   = mean_b [ λ_D σ(−gain_b) of a desirable answer, λ_U σ(gain_b) of another ]
/// ```
///
/// # Shapes
/// - log_probs, ref_log_probs: `[B, L]`, of the tokens of all answers
/// - mask: `[B, L]`, true where a token counts
/// - desirable: `[B]`
///
/// # Panics
/// If two shapes do not fit (the message has both), or an option is out of range.
///
/// # Example
/// ```
/// use burn::tensor::{Device, Tensor};
/// use highrank::policy::{KtoOptions, kto_loss, kto_reference_point};
///
/// let device = Device::default().autodiff();
/// let log_probs = Tensor::<2>::from_floats([[-1.0, -2.0], [-3.0, -0.5]], &device).require_grad();
/// let reference = log_probs.clone().detach();
/// let mask = Tensor::<2, burn::tensor::Bool>::full([2, 2], true, &device);
/// let desirable = Tensor::<1, burn::tensor::Bool>::from_data([true, false], &device);
/// // In practice, of each prompt with the answer to another one.
/// let point = kto_reference_point(log_probs.clone(), reference.clone(), mask.clone());
/// let options = KtoOptions { undesirable_weight: 1.5, reference_point: Some(point), ..Default::default() };
/// let loss = kto_loss(log_probs, reference, mask, desirable, &options);
/// assert_eq!(loss.per_sequence.into_data().to_vec::<f32>().unwrap(), [0.5, 0.75]);
/// ```
#[track_caller]
pub fn kto_loss(
    log_probs: Tensor<2>,
    ref_log_probs: Tensor<2>,
    mask: Tensor<2, Bool>,
    desirable: Tensor<1, Bool>,
    options: &KtoOptions,
) -> KtoLoss {
    let make = || -> Result<KtoLoss, HeadError> {
        let KtoOptions { beta, desirable_weight, undesirable_weight, ref reference_point } = *options;
        weight("beta", beta, &log_probs)?;
        weight("desirable_weight", desirable_weight, &log_probs)?;
        weight("undesirable_weight", undesirable_weight, &log_probs)?;
        let [sequences, _] = log_probs.dims();
        expect_shape("desirable", &desirable.dims(), &[sequences], "one for each sequence")?;
        let log_ratios = log_ratios(log_probs, ref_log_probs, &mask)?;
        let rewards = log_ratios.clone().detach() * beta;
        let log_ratios = match reference_point {
            Some(point) => {
                expect_shape("reference_point", &point.dims(), &[1], "one for all sequences")?;
                log_ratios.clone() - point.clone().detach().cast(log_ratios.dtype())
            }
            None => log_ratios,
        };
        // +1 of a desirable answer, −1 of another: the loss falls with its product with the gain.
        let sign = log_ratios.zeros_like().add_scalar(-1.0).mask_fill(desirable.clone(), 1.0);
        let weight = sign.zeros_like().add_scalar(undesirable_weight).mask_fill(desirable, desirable_weight);
        let shortfall: Tensor<1> = sigmoid(Floats::from(-(log_ratios * sign * beta))).tensor();
        let per_sequence = shortfall * weight;
        Ok(KtoLoss { value: mean(per_sequence.clone()), per_sequence, rewards })
    };
    make().or_panic("kto_loss")
}

/// The reference point of [`kto_loss`]: an estimate of the divergence of the model from the reference, from prompts with answers
/// to other prompts (Ethayarajh et al., ICML 2024, section 4.1).
///
/// ```text
/// z_0 = max(0, mean_b (S_b − R_b))
/// ```
///
/// # Shapes
/// - log_probs, ref_log_probs, mask: `[B, L]`
/// - output: `[1]`, a constant
///
/// # Panics
/// If two shapes differ; the message has both.
///
/// See [`kto_loss`] for an example.
#[track_caller]
pub fn kto_reference_point(
    log_probs: Tensor<2>,
    ref_log_probs: Tensor<2>,
    mask: Tensor<2, Bool>,
) -> Tensor<1> {
    let ratios = log_ratios(constant(log_probs), ref_log_probs, &mask).or_panic("kto_reference_point");
    mean(ratios).clamp_min(0.0)
}
