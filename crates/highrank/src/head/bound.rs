//! A head together with its decoder matrix: what every method works on.

use burn::tensor::Tensor;
use highrank_kernels::Floats;

use super::output::OutputHead;
use crate::context::{Contexts, Tokens};
use crate::error::{HeadError, OrPanic};
use crate::likelihood::{default_memory_budget, memory_budget};
use crate::loss::validate_temperature;
use crate::ops::{Likelihood, wide};

/// An [`OutputHead`] bound to its decoder matrix, its own or the caller's.
///
/// Returned by [`OutputHead::tied_to`]; lives as long as the borrow of the head.
#[derive(Debug, Clone)]
pub struct BoundHead<'a> {
    pub(super) head: &'a OutputHead,
    pub(super) weight: Tensor<2>,
    pub(super) temperature: f64,
    latent_mask: Option<Tensor<2>>,
    /// Whether this is only the head cluster of a head with clusters.
    head_cluster: bool,
}

impl<'a> BoundHead<'a> {
    pub(super) fn new(head: &'a OutputHead, weight: Tensor<2>) -> Self {
        Self { head, weight, temperature: 1.0, latent_mask: None, head_cluster: false }
    }

    /// The same head at temperature τ: every component's mapped logits are divided by it before their softmax, priors stay
    /// as they are. Acts on everything that the result computes, losses and predictions.
    ///
    /// A [`Sampling`](crate::Sampling) has a temperature of its own, which divides the mixed log-probabilities.
    ///
    /// # Panics
    /// If τ is not a finite number above 0.
    #[track_caller]
    pub fn at_temperature(&self, temperature: f64) -> Self {
        self.try_at_temperature(temperature).or_panic("at_temperature")
    }

    /// [`at_temperature`](Self::at_temperature) with an error in place of a panic.
    ///
    /// # Errors
    /// [`HeadError::LossOption`].
    pub fn try_at_temperature(&self, temperature: f64) -> Result<Self, HeadError> {
        validate_temperature(temperature)?;
        Ok(Self { temperature, ..self.clone() })
    }

    /// The same head with a given mask for its latent dropout in place of drawn ones, in training or not. A constant: no gradient
    /// flows to it.
    ///
    /// # Shapes
    /// - mask: `[sequences, K·d]`, 0 where a feature of a sequence's contexts is dropped and `1/(1 − p)` where it is kept, p the
    ///   head's own probability; which dimension of a hidden state is time says [`TimeAxis`](crate::TimeAxis). A direct output
    ///   connection draws masks that are alike for all components, but takes any
    ///
    /// # Panics
    /// If the head has no latent dropout or its contexts another width; and what the result computes, if hidden states have
    /// another number of sequences.
    #[track_caller]
    pub fn with_latent_mask(&self, mask: Tensor<2>) -> Self {
        let Some(features) = self.head.context.dropped_features() else {
            panic!("with_latent_mask: the head has no latent dropout")
        };
        let width = mask.dims()[1];
        assert!(
            width == features,
            "with_latent_mask: the mask has {width} features, but the latent contexts {features}"
        );
        Self { latent_mask: Some(mask), ..self.clone() }
    }

    /// Draws a mask for [`with_latent_mask`](Self::with_latent_mask): the one that the next loss would draw for hidden states of
    /// so many sequences. `None` where nothing would be dropped: outside of training, and in a head without latent dropout.
    ///
    /// With it a batch can be computed in parts whose masks are those of the whole.
    ///
    /// # Shapes
    /// - returns `[sequences, K·d]`, on the plain device
    pub fn draw_latent_mask(&self, sequences: usize) -> Option<Tensor<2>> {
        self.head.context.draw_mask(sequences).map(Tensor::inner)
    }

    /// The same head with the mask that its next loss would draw for its latent dropout, if any, for several calls of one loss.
    pub(super) fn with_drawn_mask(&self, leading: &[usize]) -> Self {
        let drawn = || self.draw_latent_mask(self.head.context.sequences(leading));
        Self { latent_mask: self.latent_mask.clone().or_else(drawn), ..self.clone() }
    }

    /// The head cluster of a head with clusters, as a head of its own; none if this is one or the head has no clusters.
    pub(super) fn head_cluster(&self) -> Option<Self> {
        let has_clusters = self.head.clusters.is_some() && !self.head_cluster;
        has_clusters.then(|| Self { head_cluster: true, ..self.clone() })
    }

    /// The likelihood's inputs, contexts composed of Burn's operations.
    pub(super) fn composed<const D: usize>(&self, hidden: Tensor<D>) -> Result<Likelihood, HeadError> {
        self.validate_hidden(&hidden.dims())?;
        let budget = default_memory_budget(self.decoder_bytes());
        let tokens = Tokens::all(hidden).with_latent_mask(self.latent_mask.clone());
        Ok(self.likelihood(self.head.context.forward_composed(tokens), budget))
    }

    /// The likelihood's inputs, by the native operations of the device where it has them.
    pub(super) fn native(&self, tokens: Tokens) -> Likelihood {
        self.native_with_prior(tokens).0
    }

    /// As [`native`](Self::native), with `log π` of the latent contexts, `[N, K]`, where there are any.
    pub(super) fn native_with_prior(&self, tokens: Tokens) -> (Likelihood, Option<Tensor<2>>) {
        let budget = memory_budget(self.decoder_bytes(), self.weight.device().as_dispatch());
        let tokens = tokens.with_latent_mask(self.latent_mask.clone());
        let contexts = self.head.context.forward_native(tokens);
        let log_prior = contexts.component_log_prior.clone().map(Floats::tensor);
        (self.likelihood(contexts, budget), log_prior)
    }

    pub(super) fn validate_hidden(&self, dims: &[usize]) -> Result<(), HeadError> {
        let expected = self.d_hidden();
        match dims.len() < 2 || dims.last() != Some(&expected) || dims.contains(&0) {
            false => Ok(()),
            true => Err(HeadError::Shape {
                what: "hidden",
                got: dims.to_vec(),
                expected: format!("[.., {expected}] with at least one token"),
            }),
        }
    }

    fn likelihood(&self, contexts: Contexts, default_budget: usize) -> Likelihood {
        Likelihood {
            contexts: contexts.contexts,
            log_prior: contexts.log_prior,
            weight: Floats::from(self.weight.clone()),
            bias: self.bias().map(Floats::from),
            map: self.head.logit_map.function(),
            map_params: self.head.logit_map.packed_params().map(Floats::from),
            temperature: self.temperature,
            chunk_bytes: self.head.memory_budget.unwrap_or(default_budget),
            precision: self.head.precision,
        }
    }

    pub(super) fn bias(&self) -> Option<Tensor<1>> {
        self.head.decoder.masked_bias(&self.weight)
    }

    /// Size of `W` in bytes, or of its gradient, which has the type of sums.
    fn decoder_bytes(&self) -> usize {
        self.weight.shape().num_elements() * wide(self.weight.dtype()).size()
    }

    /// `H`.
    fn d_hidden(&self) -> usize {
        self.head.context.d_hidden().unwrap_or(self.head.decoder.d_embedding)
    }
}

/// The dimensions before the last.
pub(super) fn leading<const D: usize, const T: usize>(hidden: &[usize; D]) -> Result<[usize; T], HeadError> {
    hidden[..D - 1].try_into().map_err(|_| HeadError::Shape {
        what: "hidden",
        got: hidden.to_vec(),
        expected: format!("{} dimensions, one more than the {T} of the targets", T + 1),
    })
}

pub(super) fn with_last<const D: usize>(mut dims: [usize; D], last: usize) -> [usize; D] {
    dims[D - 1] = last;
    dims
}

pub(super) fn same_shape<const D: usize>(
    what: &'static str,
    got: [usize; D],
    want: [usize; D],
) -> Result<(), HeadError> {
    match got == want {
        true => Ok(()),
        false => Err(HeadError::Shape {
            what,
            got: got.to_vec(),
            expected: format!("{want:?}, as the hidden state says"),
        }),
    }
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use super::*;
    use crate::HeadConfig;
    use burn::tensor::{DType, Device, Distribution, Int};

    /// Width 4, K 2, d 3.
    fn head() -> (OutputHead, Tensor<3>, Tensor<2, Int>) {
        let device = Device::flex().autodiff();
        let head = HeadConfig::mos(4, 3, 7, 2).with_latent_dropout(0.5).init(&device);
        let hidden = Tensor::random([5, 2, 4], Distribution::Uniform(-1.0, 1.0), &device);
        (head, hidden, Tensor::from_ints([[0, 6], [1, 5], [2, 4], [3, 3], [6, 0]], &device))
    }

    fn mask(sequences: usize) -> Tensor<2> {
        let mask = Tensor::<2>::from_floats(
            [[2.0, 0.0, 2.0, 0.0, 2.0, 2.0], [0.0, 2.0, 2.0, 2.0, 0.0, 2.0]],
            &Device::flex(),
        );
        mask.narrow(0, 0, sequences)
    }

    #[test]
    fn a_given_latent_mask_acts_alike_in_losses_and_predictions() {
        let (head, hidden, targets) = head();
        let masked = head.at_temperature(1.0).with_latent_mask(mask(2));
        let values =
            |nll: Tensor<2>| nll.into_data().convert_dtype(DType::F64).iter::<f64>().collect::<Vec<_>>();
        let fused = values(masked.nll(hidden.clone(), targets.clone()));
        let picked = masked.log_probs(hidden.clone()).gather(2, targets.clone().unsqueeze_dim(2)).neg();
        let composed = values(picked.squeeze_dim(2));
        assert!(fused.iter().zip(&composed).all(|(a, b)| (a - b).abs() < 1e-5), "{fused:?} {composed:?}");
        assert_eq!(fused, values(masked.nll(hidden.clone(), targets.clone())));
        // In the layer of a sequence whose contexts are dropped whole, the bias alone is left.
        let none = head.at_temperature(1.0).with_latent_mask(mask(2) * 0.0).log_probs(hidden);
        let [first, last] = [0, 4].map(|step| none.clone().narrow(0, step, 1).into_data());
        assert!(first.iter::<f64>().zip(last.iter::<f64>()).all(|(a, b)| (a - b).abs() < 1e-6));
    }

    #[test]
    #[should_panic(expected = "latent dropout: the mask is for 1 sequences, but there are 2")]
    fn a_mask_for_another_number_of_sequences_is_refused() {
        let (head, hidden, targets) = head();
        head.at_temperature(1.0).with_latent_mask(mask(1)).nll(hidden, targets);
    }

    #[test]
    #[should_panic(expected = "with_latent_mask: the mask has 5 features, but the latent contexts 6")]
    fn a_mask_of_another_width_is_refused() {
        head().0.at_temperature(1.0).with_latent_mask(mask(2).narrow(1, 0, 5));
    }

    #[test]
    #[should_panic(expected = "with_latent_mask: the head has no latent dropout")]
    fn a_mask_for_a_head_without_latent_dropout_is_refused() {
        let device = Device::flex();
        HeadConfig::softmax(4, 7).init(&device).at_temperature(1.0).with_latent_mask(mask(2));
    }
}
