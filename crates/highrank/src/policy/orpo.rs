//! Odds ratio preference optimisation.

use burn::tensor::{Bool, Tensor};

use super::pairs::{self, Pairs};
use super::sequences::{counted, fits, lengths, mean, sums, weight};
use crate::error::{HeadError, OrPanic};

/// The options of [`orpo_loss`]. By default the weights are 0.1 for the odds and 1 for the nll.
#[derive(Debug, Clone, PartialEq)]
pub struct OrpoOptions {
    /// `λ`, 0 or more: the weight of the term of the odds.
    pub odds_weight: f64,
    /// `w`, 0 or more: the weight of the chosen answers' nll. The paper has 1.
    pub nll_weight: f64,
}

impl Default for OrpoOptions {
    fn default() -> Self {
        Self { odds_weight: 0.1, nll_weight: 1.0 }
    }
}

/// The loss of [`orpo_loss`], and what it is made of.
#[derive(Debug, Clone)]
pub struct OrpoLoss {
    /// What is minimised, `[1]`.
    pub value: Tensor<1>,
    /// The term of the odds of each pair, `[Q]`, without its weight.
    pub per_pair: Tensor<1>,
    /// The log-odds of each sequence, `[B]`. Constants: no gradient flows through them.
    pub log_odds: Tensor<1>,
    /// The mean nll of the chosen sequences' tokens in nats, `[1]`, without its weight.
    pub chosen_nll: Tensor<1>,
}

/// Odds ratio preference optimisation: supervised tuning on the chosen answers that keeps the odds of the rejected ones low
/// (Hong et al., EMNLP 2024, eqs. 6 and 7).
///
/// ```text
/// a_b        = S_b / L_b                        the mean log-probability of the tokens that count
/// log_odds_b = a_b − log(1 − e^{a_b})
/// nll        = −Σ_q S_chosen / Σ_q L_chosen
/// loss       = w nll + λ mean_q [ −log σ(log_odds_chosen − log_odds_rejected) ]
/// ```
///
/// An answer without tokens that count has a mean of 0, as if it were certain. Leave its pair out.
///
/// # Numerical behaviour
/// The log-odds keep all digits where a probability is near 1, and do not overflow where it is near 0. A mean log-probability
/// that rounding has made 0 or more counts as the rounding unit below 0; the gradient flows through.
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
/// use highrank::policy::{OrpoOptions, Pairs, orpo_loss};
///
/// let device = Device::default().autodiff();
/// let log_probs = Tensor::<2>::from_floats([[-1.0, -2.0], [-3.0, -0.5]], &device).require_grad();
/// let mask = Tensor::<2, burn::tensor::Bool>::full([2, 2], true, &device);
/// let options = OrpoOptions { odds_weight: 0.25, ..Default::default() };
/// let loss = orpo_loss(log_probs, mask, &Pairs::halves(2, &device), &options);
/// assert_eq!(loss.chosen_nll.into_scalar::<f32>(), 1.5);
/// ```
#[track_caller]
pub fn orpo_loss(
    log_probs: Tensor<2>,
    mask: Tensor<2, Bool>,
    pairs: &Pairs,
    options: &OrpoOptions,
) -> OrpoLoss {
    let make = || -> Result<OrpoLoss, HeadError> {
        let OrpoOptions { odds_weight, nll_weight } = *options;
        weight("odds_weight", odds_weight, &log_probs)?;
        weight("nll_weight", nll_weight, &log_probs)?;
        fits("mask", mask.dims(), &log_probs)?;
        let lengths = lengths(&log_probs, &mask);
        let sums = sums(counted(log_probs, &mask));
        let of_chosen = |values: &Tensor<1>| values.clone().select(0, pairs.chosen.clone()).sum();
        let chosen_nll = -of_chosen(&sums) / of_chosen(&lengths).clamp_min(1.0);
        let log_odds = log_odds(sums / lengths.clamp_min(1.0));
        let per_pair = pairs::losses(pairs.try_differences(log_odds.clone())?, 0.0);
        let value = chosen_nll.clone() * nll_weight + mean(per_pair.clone()) * odds_weight;
        Ok(OrpoLoss { value, per_pair, log_odds: log_odds.detach(), chosen_nll })
    };
    make().or_panic("orpo_loss")
}

/// Terms of `sinh(x)/x` that reach the rounding unit of f64 for `x ≤ log(2)/2`.
const SINH_TERMS: u32 = 8;

/// `a − log(1 − e^a) = −log(e^x − 1)` for `x = −a`.
///
/// Near 0 it is `−x/2 − log(2 sinh(x/2))`, by the series of the hyperbolic sine: `e^x − 1` would lose the digits of x. Elsewhere it is
/// `−x − log(1 − e^{−x})`, where nothing overflows. Each branch is computed at a harmless x where the other one holds, as the
/// derivative of what is not taken is multiplied by 0.
fn log_odds(log_probs: Tensor<1>) -> Tensor<1> {
    let x = above_zero(-log_probs);
    let is_near = x.clone().lower_elem(2f64.ln());
    let half = x.clone().mask_fill(is_near.clone().bool_not(), 1.0) * 0.5;
    let square = half.clone() * half.clone();
    // Σ_k x^{2k} / (2k + 1)!, innermost first.
    let sinh_ratio = (1..SINH_TERMS)
        .rev()
        .fold(half.ones_like(), |sum, k| sum * square.clone() * (1.0 / f64::from(2 * k * (2 * k + 1))) + 1.0);
    let near = -half.clone() - (half * 2.0).log() - sinh_ratio.log();
    let far = x.mask_fill(is_near.clone(), 1.0);
    let far = -far.clone() - (-(-far).exp()).log1p();
    far.mask_where(is_near, near)
}

/// `x`, or the rounding unit of its type where it is not above 0, with the gradient of `x`.
fn above_zero(x: Tensor<1>) -> Tensor<1> {
    let (least, unit) =
        x.dtype().finfo().map_or((f64::MIN_POSITIVE, f64::EPSILON), |info| (info.min_positive, info.epsilon));
    let constant = x.clone().detach();
    // Of a smaller number the inverse is infinite.
    let lifted = constant.clone().mask_fill(constant.clone().lower_elem(least), unit);
    x + (lifted - constant)
}
