//! Locked dropout on the latent contexts.

use std::sync::Arc;

use burn::module::{Content, Param};
use burn::tensor::{Distribution, Tensor};
use highrank_kernels::Floats;
use serde::{Deserialize, Serialize};

use super::tokens::Tokens;
use crate::error::{HeadError, in_range};
use crate::ops::{LatentMask, wide};
use crate::parameters::{in_context, value};

/// Which leading dimension of a hidden state is time.
///
/// Latent dropout is *locked*: it draws one mask a sequence, which serves all of its steps. With the wrong axis it is not: the
/// sequences of a batch then share their masks, a mask for each step, and nothing reports the mistake.
///
/// | hidden states | |
/// |---|---|
/// | `[time, batch, H]` | [`First`](Self::First) |
/// | `[batch, time, H]`, as Burn's own modules have them | [`Second`](Self::Second) |
/// | `[tokens, H]` | either: without a time dimension each token has a mask of its own |
///
/// Further dimensions count as those of the batch: each of their entries is a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TimeAxis {
    /// `[time, .., H]`.
    First,
    /// `[batch, time, .., H]`.
    Second,
}

/// Dropout of the latent features of a mixture while training.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LatentDropout {
    /// Probability of dropping a feature, in `[0, 1)`.
    pub probability: f64,
    /// Which leading dimension of the hidden states is time: one mask serves all steps of a sequence.
    pub time_axis: TimeAxis,
}

impl LatentDropout {
    /// Checks that the probability is one.
    pub(crate) fn validate(&self) -> Result<(), HeadError> {
        in_range("latent dropout", self.probability, "a probability in [0, 1)", 0.0..1.0)
    }
}

/// Adds the dropout to a module's display.
pub(super) fn display(content: Content, dropout: Option<LatentDropout>) -> Content {
    match dropout {
        None => content,
        Some(LatentDropout { probability, time_axis }) => {
            content.add("dropout", &probability).add_debug_attribute("time_axis", &time_axis)
        }
    }
}

/// The hidden states of tokens and the mask of their latent features: the one that the tokens come with, in training or not,
/// else a [drawn](Latent::draw) one.
///
/// With two or more dimensions before the features, one mask serves all steps of a sequence (*locked* or variational dropout,
/// Gal and Ghahramani 2016); with one, tokens are independent.
///
/// # Panics
/// If the tokens' own mask is for another number of sequences.
pub(super) fn of_tokens(tokens: Tokens, latent: Option<Latent<'_>>) -> (Floats, Option<LatentMask>) {
    let Tokens { hidden, leading, kept, latent_mask } = tokens;
    let Some((latent, dropout)) = latent.and_then(|latent| Some((latent, latent.dropout?))) else {
        return (hidden, None);
    };
    let (sequences, rows) = sequences(&leading, dropout.time_axis);
    let rows = match kept {
        Some(kept) => kept.iter().map(|token| rows[*token as usize]).collect(),
        None => rows,
    };
    let values = match latent_mask {
        Some(mask) => {
            let count = mask.dims()[0];
            assert!(
                count == sequences,
                "latent dropout: the mask is for {count} sequences, but there are {sequences}"
            );
            Some(in_context(mask.inner(), &latent.like.base().device()))
        }
        None => latent.draw(sequences),
    };
    (hidden, values.map(|values| LatentMask { values: values.into(), rows }))
}

/// The latent features of a context, and their dropout.
#[derive(Clone, Copy)]
pub(super) struct Latent<'a> {
    /// A parameter on their device and of their float type.
    pub(super) like: &'a Param<Tensor<2>>,
    /// How many have a mask of their own, and how many times these stand side by side.
    pub(super) size: [usize; 2],
    pub(super) dropout: Option<LatentDropout>,
}

impl Latent<'_> {
    /// `K·d`, the number of all.
    pub(super) fn width(&self) -> usize {
        self.size[0] * self.size[1]
    }

    /// The values of a mask that drops features and rescales those kept by `1/(1 − p)`, `[sequences, K·d]`; none outside training.
    pub(super) fn draw(&self, sequences: usize) -> Option<Tensor<2>> {
        let probability = self.dropout?.probability;
        if probability == 0.0 || !self.like.base().device().is_autodiff() {
            return None;
        }
        let (keep, like, [features, copies]) = (1.0 - probability, value(self.like), self.size);
        // Of the layer's own type: 1/(1 − p) rounded to half precision would change the mean.
        let on = (&like.device(), wide(like.dtype()));
        let kept = Tensor::<2>::random([sequences, features], Distribution::Bernoulli(keep), on);
        let values = kept.div_scalar(keep);
        Some(if copies == 1 { values } else { Tensor::cat(vec![values; copies], 1) })
    }
}

/// The number of sequences, and which of them each token belongs to.
pub(super) fn sequences(leading: &[usize], time: TimeAxis) -> (usize, Arc<[u32]>) {
    let axis = match time {
        _ if leading.len() < 2 => return (leading[0], (0..leading[0] as u32).collect()),
        TimeAxis::First => 0,
        TimeAxis::Second => 1,
    };
    let size = |dims: &[usize]| dims.iter().product::<usize>();
    let (outer, steps, inner) = (size(&leading[..axis]), leading[axis], size(&leading[axis + 1..]));
    let sequence = |n: usize| (n / (steps * inner) * inner + n % inner) as u32;
    (outer * inner, (0..size(leading)).map(sequence).collect())
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use super::*;
    use burn::tensor::{DType, Device};

    #[test]
    fn the_mean_is_kept_and_inference_drops_nothing() {
        let draw = |device: &Device, dtype| {
            let like = Param::from_tensor(Tensor::<2>::ones([3, 200], (device, dtype)));
            let dropout = Some(LatentDropout { probability: 0.1, time_axis: TimeAxis::First });
            Latent { like: &like, size: [200, 1], dropout }.draw(100)
        };
        for dtype in [DType::F32, DType::BF16] {
            let values = draw(&Device::flex().autodiff(), dtype).expect("a mask in training");
            let values: Vec<f32> = values.into_data().try_to_vec().unwrap();
            assert!(values.iter().all(|&x| x == 0.0 || (x - 1.0 / 0.9).abs() < 1e-6));
            let mean = values.iter().sum::<f32>() / values.len() as f32;
            assert!((mean - 1.0).abs() < 0.02, "{mean}");
            assert!(draw(&Device::flex(), dtype).is_none());
        }
    }
}
