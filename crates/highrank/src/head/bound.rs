//! A head together with its decoder matrix: what every method works on.

use burn::backend::Dispatch;
use burn::tensor::Tensor;
use highrank_kernels::Floats;

use super::output::OutputHead;
use crate::context::{Contexts, Tokens};
use crate::error::{HeadError, OrPanic};
use crate::likelihood::default_memory_budget;
use crate::loss::validate_temperature;
use crate::ops::{Kernels, Likelihood, wide};

/// An [`OutputHead`] bound to its decoder matrix, its own or the caller's.
///
/// Returned by [`OutputHead::tied_to`]; lives as long as the borrow of the head.
#[derive(Debug, Clone)]
pub struct BoundHead<'a> {
    pub(super) head: &'a OutputHead,
    pub(super) weight: Tensor<2>,
    pub(super) temperature: f64,
}

impl<'a> BoundHead<'a> {
    pub(super) fn new(head: &'a OutputHead, weight: Tensor<2>) -> Self {
        Self { head, weight, temperature: 1.0 }
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

    /// The likelihood's inputs, contexts composed of Burn's operations.
    pub(super) fn composed<const D: usize>(&self, hidden: Tensor<D>) -> Result<Likelihood, HeadError> {
        self.validate_hidden(&hidden.dims())?;
        let budget = default_memory_budget(self.decoder_bytes());
        Ok(self.likelihood(self.head.context.forward(hidden), budget))
    }

    /// The likelihood's inputs, by the native operations of the device where it has them.
    pub(super) fn native(&self, tokens: Tokens) -> Likelihood {
        let budget = Dispatch::memory_budget(self.decoder_bytes(), self.weight.device().as_dispatch());
        self.likelihood(self.head.context.forward_native(tokens), budget)
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
            weight: self.weight.clone().into(),
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
        use crate::context::Context::*;
        match &self.head.context {
            Direct(_) => self.head.decoder.d_embedding,
            MixtureOfContexts(mixture) | MixtureOfSoftmaxes(mixture) => {
                mixture.prior.weight.shape().dims::<2>()[0]
            }
        }
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
