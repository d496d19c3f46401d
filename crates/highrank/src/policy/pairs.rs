//! Pairs of answers, one of which is preferred.

use burn::tensor::{Device, Int, Tensor};
use highrank_kernels::Floats;

use super::sequences::mean;
use crate::error::{HeadError, OrPanic, expect_shape};
use crate::math::log_sigmoid;

/// Which sequences of a batch are answers to one prompt, and which of the two is preferred.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use highrank::policy::Pairs;
///
/// let device = Device::default();
/// let [chosen, rejected] = [[0, 0], [1, 2]].map(|numbers| Tensor::from_ints(numbers, &device));
/// let pairs = Pairs { chosen, rejected };
/// let rewards = Tensor::<1>::from_floats([3.0, 1.0, 4.0], &device);
/// assert_eq!(pairs.differences(rewards).into_data().to_vec::<f32>().unwrap(), [2.0, -1.0]);
/// ```
#[derive(Debug, Clone)]
pub struct Pairs {
    /// The numbers of the preferred sequences, `[Q]`. A sequence may be in several pairs.
    pub chosen: Tensor<1, Int>,
    /// The numbers of the others, `[Q]`.
    pub rejected: Tensor<1, Int>,
}

impl Pairs {
    /// The first half of the sequences is chosen, the second half rejected, in the same order.
    ///
    /// # Panics
    /// If the number of sequences is odd.
    #[track_caller]
    pub fn halves(sequences: usize, device: &Device) -> Self {
        assert!(
            sequences.is_multiple_of(2),
            "Pairs::halves: {sequences} sequences, expected two for each pair"
        );
        let half = (sequences / 2) as i64;
        Self { chosen: Tensor::arange(0..half, device), rejected: Tensor::arange(half..2 * half, device) }
    }

    /// What the chosen sequence of each pair has more than the rejected one, `[Q]`; of rewards, the margin.
    ///
    /// # Shapes
    /// - values: `[B]`
    ///
    /// # Panics
    /// As a loss of the pairs: if there are not as many chosen as rejected sequences (the message has both shapes); on CPU backends,
    /// if a number is none of a sequence.
    #[track_caller]
    pub fn differences(&self, values: Tensor<1>) -> Tensor<1> {
        self.try_differences(values).or_panic("Pairs::differences")
    }

    pub(super) fn try_differences(&self, values: Tensor<1>) -> Result<Tensor<1>, HeadError> {
        let Self { chosen, rejected } = self.clone();
        expect_shape("rejected", &rejected.dims(), &chosen.dims(), "one for each chosen sequence")?;
        Ok(values.clone().select(0, chosen) - values.select(0, rejected))
    }
}

/// A loss of pairs, and what else is worth watching.
///
/// ```
/// # use burn::tensor::{Device, Tensor};
/// # use highrank::policy::{Pairs, PreferenceLoss};
/// fn accuracy(loss: &PreferenceLoss, pairs: &Pairs) -> Tensor<1> {
///     pairs.differences(loss.rewards.clone()).greater_elem(0.0).float().mean()
/// }
/// ```
#[derive(Debug, Clone)]
pub struct PreferenceLoss {
    /// What is minimised: the mean over the pairs, `[1]`.
    pub value: Tensor<1>,
    /// The loss of each pair, `[Q]`.
    pub per_pair: Tensor<1>,
    /// The implicit reward of each sequence, `[B]`. Constants: no gradient flows through them.
    pub rewards: Tensor<1>,
}

impl PreferenceLoss {
    /// That rewards should differ by more than a margin.
    pub(super) fn of(
        rewards: Tensor<1>,
        pairs: &Pairs,
        margin: f64,
        label_smoothing: f64,
    ) -> Result<Self, HeadError> {
        let per_pair = losses(pairs.try_differences(rewards.clone())? - margin, label_smoothing);
        Ok(Self { value: mean(per_pair.clone()), per_pair, rewards: rewards.detach() })
    }
}

/// `−(1 − ε) log σ(g) − ε log σ(−g)`, of which the second part is `ε (g − log σ(g))`.
pub(super) fn losses(differences: Tensor<1>, label_smoothing: f64) -> Tensor<1> {
    let log_sigmoid: Tensor<1> = log_sigmoid(Floats::from(differences.clone())).tensor();
    differences * label_smoothing - log_sigmoid
}
