//! Rewards made advantages.

use burn::tensor::Tensor;

use crate::error::{OrPanic, in_range};
use crate::ops::wide;
use crate::parameters::constant;

/// What the rewards of a group are divided by, once their mean is subtracted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum GroupScale {
    /// Their standard deviation, of `G − 1` degrees of freedom, and 1e-4 more: a group of equal rewards has advantages of 0.
    #[default]
    Deviation,
    /// Nothing: a group whose answers differ little then counts little (Liu et al. 2025, "Dr. GRPO").
    One,
}

/// Keeps the advantages of nearly equal rewards finite.
const LEAST_DEVIATION: f64 = 1e-4;

/// Advantages of G answers to each of P prompts: how much better each is than the group (GRPO; Shao et al. 2024, section 4.1).
///
/// ```text
/// A_pi = (r_pi − mean_j r_pj) / (deviation_j r_pj + 1e-4)
/// ```
///
/// # Shapes
/// - rewards: `[P, G]`
/// - output: `[P, G]`, in f32 at least, constants; reshaped to `[P·G, 1]`, what [`grpo_loss`](super::grpo_loss) takes
///
/// # Panics
/// If a group has fewer than two answers.
///
/// # Example
/// ```
/// use burn::tensor::{Device, Tensor};
/// use highrank::policy::{GroupScale, group_advantages};
///
/// let rewards = Tensor::<2>::from_floats([[0.0, 1.0, 2.0], [5.0, 5.0, 5.0]], &Device::default());
/// let advantages = group_advantages(rewards, GroupScale::One).into_data();
/// assert_eq!(advantages.to_vec::<f32>().unwrap(), [-1.0, 0.0, 1.0, 0.0, 0.0, 0.0]);
/// ```
#[track_caller]
pub fn group_advantages(rewards: Tensor<2>, scale: GroupScale) -> Tensor<2> {
    let [_, answers] = rewards.dims();
    in_range("the number of answers to a prompt", answers as f64, "at least 2", 2.0..)
        .or_panic("group_advantages");
    let dtype = wide(rewards.dtype());
    let rewards = constant(rewards).cast(dtype);
    // Beside one of them, the mean of equal rewards is 0; that of the rewards themselves may round.
    let rewards = rewards.clone() - rewards.narrow(1, 0, 1);
    let centred = rewards.clone() - rewards.mean_dim(1);
    match scale {
        GroupScale::One => centred,
        GroupScale::Deviation => {
            let variance = (centred.clone() * centred.clone()).sum_dim(1) / (answers - 1) as f64;
            centred / (variance.sqrt() + LEAST_DEVIATION)
        }
    }
}
