//! The token loss of PPO and GRPO.

use burn::tensor::{Bool, Tensor};

use super::sequences::{counted, fits, lengths, means, weight};
use crate::checks::TensorChecks;
use crate::error::{HeadError, OrPanic, expect_shape, in_range};
use crate::parameters;

/// How the losses of tokens become one value.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub enum Aggregation {
    /// `Σ_bt m_bt loss_bt / Σ_bt m_bt`: all tokens count alike (DAPO, Yu et al. 2025). 0 where nothing counts.
    #[default]
    TokenMean,
    /// `(1/B) Σ_b (Σ_t m_bt loss_bt / L_b)`: all sequences count alike (GRPO, Shao et al. 2024). A sequence without tokens adds 0.
    SequenceMean,
    /// `Σ_bt m_bt loss_bt / n` for a given n above 0: a number of tokens that does not depend on the lengths of the answers (Liu et al.
    /// 2025, "Dr. GRPO"), or that of a whole batch which is computed in parts.
    Divisor(f64),
}

/// The options of [`grpo_loss`]. By default ratios are clipped to `[0.8, 1.2]`, without penalty or bonus, and the mean is over tokens.
///
/// ```
/// use highrank::policy::{Aggregation, GrpoOptions};
///
/// let options = GrpoOptions { clip_low: 0.2, clip_high: 0.28, aggregation: Aggregation::SequenceMean, ..Default::default() };
/// # let _ = options;
/// ```
#[derive(Debug, Clone)]
pub struct GrpoOptions {
    /// Ratios count from 1 less this: in `[0, 1]`. 1 clips nothing.
    pub clip_low: f64,
    /// Ratios count to 1 and this: 0 or more. ∞ clips nothing.
    pub clip_high: f64,
    /// `β`, 0 or more, whose product with an estimate of the divergence from a reference is added, and the reference's
    /// log-probabilities of the same tokens, `[B, L]`.
    pub kl_penalty: Option<(f64, Tensor<2>)>,
    /// `λ`, 0 or more, whose product with the entropy of each token's distribution is subtracted, and that entropy, `[B, L]`. The
    /// gradient reaches the entropy.
    pub entropy_bonus: Option<(f64, Tensor<2>)>,
    /// What becomes of the losses of tokens.
    pub aggregation: Aggregation,
}

impl Default for GrpoOptions {
    fn default() -> Self {
        Self {
            clip_low: 0.2,
            clip_high: 0.2,
            kl_penalty: None,
            entropy_bonus: None,
            aggregation: Aggregation::default(),
        }
    }
}

impl GrpoOptions {
    /// Checks all numbers, and the shapes of all tensors.
    fn check(&self, log_probs: &Tensor<2>) -> Result<(), HeadError> {
        in_range("clip_low", self.clip_low, "a number in [0, 1]", 0.0..=1.0)?;
        in_range("clip_high", self.clip_high, "a number of at least 0", 0.0..)?;
        if let Some((beta, reference)) = &self.kl_penalty {
            weight("kl_penalty", *beta, log_probs)?;
            fits("ref_log_probs", reference.dims(), log_probs)?;
        }
        if let Some((lambda, entropy)) = &self.entropy_bonus {
            weight("entropy_bonus", *lambda, log_probs)?;
            fits("entropy", entropy.dims(), log_probs)?;
        }
        match self.aggregation {
            Aggregation::Divisor(n) => {
                in_range("divisor", n, "a finite number above 0", f64::MIN_POSITIVE..=f64::MAX)?;
                TensorChecks::of(log_probs).scale("divisor", n)
            }
            _ => Ok(()),
        }
    }
}

/// The loss of [`grpo_loss`], and what it is made of. All but the value and the losses of tokens are constants: no gradient flows
/// through them.
#[derive(Debug, Clone)]
pub struct GrpoLoss {
    /// What is minimised, `[1]`.
    pub value: Tensor<1>,
    /// The loss of each token, `[B, L]`; 0 where a token does not count.
    pub per_token: Tensor<2>,
    /// The clipped ratio times the advantage, with a minus, `[B, L]`.
    pub policy_term: Tensor<2>,
    /// The estimate of the divergence, without its weight, `[B, L]`, if there is a penalty.
    pub kl_term: Option<Tensor<2>>,
    /// Where the clip holds and the policy term has no gradient, `[B, L]`.
    pub clipped: Tensor<2, Bool>,
}

/// The token loss of a policy gradient: PPO's clipped ratios (Schulman et al. 2017, eq. 7) with the penalty of GRPO (Shao et al.
/// 2024, eqs. 3 and 4) and an entropy bonus.
///
/// ```text
/// r_t    = exp(l_t − old_t)
/// loss_t = −min(r_t A_t, clip(r_t, 1 − low, 1 + high) A_t)
///          + β [ exp(ref_t − l_t) − (ref_t − l_t) − 1 ]      with a penalty; the estimator k3 of Schulman (2020)
///          − λ H_t                                           with a bonus
/// ```
///
/// and the [aggregation](GrpoOptions::aggregation) of the tokens that count, 0 where there are none. In the first step after the rollouts
/// `old_log_probs` is `log_probs` itself: the ratio is 1, and the gradient that of the log-probability times the advantage.
///
/// # Numerical behaviour
/// Ratios are clipped before they are exponentials: those that are clipped do not overflow. The penalty keeps its digits near the
/// reference. It overflows where the model makes a token less probable than the reference by the range of the float type.
///
/// # Shapes
/// - log_probs: `[B, L]`, of the tokens that were drawn
/// - old_log_probs: `[B, L]`, from the model that drew them
/// - advantages: `[B, L]`, or `[B, 1]` where all tokens of a sequence have the same
/// - mask: `[B, L]`, true where a token counts
///
/// # Panics
/// If two shapes do not fit (the message has both), or an option is out of range.
///
/// # Example
/// ```
/// use burn::tensor::{Device, Tensor};
/// use highrank::policy::{GroupScale, GrpoOptions, group_advantages, grpo_loss};
///
/// let device = Device::default().autodiff();
/// // Two answers to one prompt, the first of which is right.
/// let advantages = group_advantages(Tensor::from_floats([[1.0, 0.0]], &device), GroupScale::Deviation);
/// let log_probs = Tensor::<2>::from_floats([[-1.0, -2.0], [-3.0, -0.5]], &device).require_grad();
/// let drawn_by = log_probs.clone().detach();
/// let mask = Tensor::<2, burn::tensor::Bool>::full([2, 2], true, &device);
/// let options = GrpoOptions { kl_penalty: Some((0.04, drawn_by.clone())), ..Default::default() };
/// let loss = grpo_loss(log_probs.clone(), drawn_by, advantages.reshape([2, 1]), mask, &options);
/// let gradient = log_probs.grad(&loss.value.backward()).unwrap();
/// assert!(gradient.slice([0..1, 0..1]).into_scalar::<f32>() < 0.0); // likelier, please
/// ```
#[track_caller]
pub fn grpo_loss(
    log_probs: Tensor<2>,
    old_log_probs: Tensor<2>,
    advantages: Tensor<2>,
    mask: Tensor<2, Bool>,
    options: &GrpoOptions,
) -> GrpoLoss {
    let check = || {
        fits("old_log_probs", old_log_probs.dims(), &log_probs)?;
        fits("mask", mask.dims(), &log_probs)?;
        let [sequences, length] = log_probs.dims();
        let columns = if advantages.dims()[1] == 1 { 1 } else { length };
        let because = "of the log-probabilities, or with one column";
        expect_shape("advantages", &advantages.dims(), &[sequences, columns], because)?;
        options.check(&log_probs)
    };
    check().or_panic("grpo_loss");

    let log_probs = counted(log_probs, &mask);
    if log_probs.shape().num_elements() == 0 {
        let nothing = log_probs.clone().detach();
        let kl_term = options.kl_penalty.as_ref().map(|_| nothing.clone());
        return GrpoLoss {
            value: log_probs.clone().sum(),
            per_token: log_probs,
            policy_term: nothing,
            kl_term,
            clipped: mask,
        };
    }
    let constant = |values: Tensor<2>| counted(parameters::constant(values), &mask);
    let advantages = constant(advantages.expand(log_probs.dims()));
    let log_ratio = log_probs.clone() - constant(old_log_probs);
    let (policy_term, clipped) = clip(log_ratio, advantages, options);
    let mut per_token = policy_term.clone();
    let kl_term = options.kl_penalty.clone().map(|(beta, reference)| {
        let log_ratio = constant(reference) - log_probs;
        let term = exponential_rest(log_ratio);
        // A term that overflows would make NaN of a weight of 0.
        if beta > 0.0 {
            per_token = per_token.clone() + term.clone() * beta;
        }
        term.detach()
    });
    if let Some((lambda, entropy)) = options.entropy_bonus.clone() {
        per_token = per_token - counted(entropy, &mask) * lambda;
    }
    let value = match options.aggregation {
        Aggregation::TokenMean => {
            let tokens = lengths(&per_token, &mask).sum();
            per_token.clone().sum() / tokens.clamp_min(1.0)
        }
        Aggregation::SequenceMean => means(per_token.clone(), &mask).mean(),
        // Burn differentiates a division by a number in f32.
        Aggregation::Divisor(n) => per_token.clone().sum() * n.recip(),
    };
    GrpoLoss { value, per_token, policy_term: policy_term.detach(), kl_term, clipped }
}

/// Terms of the series of `e^x − 1 − x` that reach the rounding unit of f64 for `|x| ≤ 0.1`.
const REST_TERMS: u32 = 12;

/// `e^x − 1 − x`, 0 or more. Near 0 by its series: the exponential has rounded away what is left of it. Each branch is computed at 0
/// where the other one holds.
fn exponential_rest(x: Tensor<2>) -> Tensor<2> {
    let is_near = x.clone().abs().lower_elem(0.1);
    let near = x.clone().mask_fill(is_near.clone().bool_not(), 0.0);
    let far = x.mask_fill(is_near, 0.0);
    // x²/2 (1 + x/3 (1 + x/4 (…))), innermost first.
    let series = (3..=REST_TERMS)
        .rev()
        .fold(near.ones_like(), |sum, k| sum * near.clone() * (1.0 / f64::from(k)) + 1.0);
    near.clone() * near * series * 0.5 + (far.clone().exp() - 1.0 - far)
}

/// The policy term of each token, and where the clip holds.
///
/// The term is `−min(r A, clip(r) A)`, written as `−A exp(min(log r, log(1 + high)))` for `A > 0` and
/// `−A exp(max(log r, log(1 − low)))` for `A < 0`, which holds where r overflows.
fn clip(log_ratio: Tensor<2>, advantages: Tensor<2>, options: &GrpoOptions) -> (Tensor<2>, Tensor<2, Bool>) {
    let [low, high] = [(-options.clip_low).ln_1p(), options.clip_high.ln_1p()];
    let nothing = advantages.clone().equal_elem(0.0);
    let too_high = log_ratio.clone().greater_elem(high).bool_and(advantages.clone().greater_elem(0.0));
    let too_low = log_ratio.clone().lower_elem(low).bool_and(advantages.clone().lower_elem(0.0));
    let clipped = too_high.clone().bool_or(too_low.clone());
    // A ratio that overflows would make NaN of an advantage of 0.
    let log_ratio = log_ratio.mask_fill(too_high, high).mask_fill(too_low, low).mask_fill(nothing, 0.0);
    (-(advantages * log_ratio.exp()), clipped)
}
