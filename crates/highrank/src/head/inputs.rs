//! What a head's predictions read, and who makes them.

use burn::backend::Dispatch;
use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{DType, Tensor};
use highrank_kernels::Floats;

use super::bound::BoundHead;
use crate::context::Tokens;
use crate::error::HeadError;
use crate::likelihood::{self, portable};
use crate::ops::{Likelihood, Prediction, is_cpu};

/// The likelihood's inputs for a prediction.
pub(super) struct Inputs {
    input: Likelihood,
    /// Whether the device's own operations predict, through which no gradient flows.
    native: bool,
}

impl BoundHead<'_> {
    /// The inputs of predictions that are differentiable where a tensor is tracked: then they are composed of Burn's
    /// operations. So they are on a GPU, which has no others for predictions.
    pub(super) fn differentiable<const D: usize>(&self, hidden: Tensor<D>) -> Result<Inputs, HeadError> {
        self.inputs(hidden, true)
    }

    /// The inputs of predictions that are constants.
    pub(super) fn constant<const D: usize>(&self, hidden: Tensor<D>) -> Result<Inputs, HeadError> {
        self.inputs(hidden, false)
    }

    fn inputs<const D: usize>(&self, hidden: Tensor<D>, differentiable: bool) -> Result<Inputs, HeadError> {
        self.validate_hidden(&hidden.dims())?;
        let on_host = is_cpu::<Dispatch>(self.weight.device().as_dispatch());
        let native = on_host && !(differentiable && self.is_tracked(&hidden));
        Ok(match native {
            true => Inputs { input: self.native(Tokens::all(hidden)), native },
            false => Inputs { input: self.composed(hidden)?, native },
        })
    }

    /// Whether the hidden states or anything that the head reads is tracked by autodiff.
    fn is_tracked<const D: usize>(&self, hidden: &Tensor<D>) -> bool {
        struct Tracked(bool);
        impl ModuleVisitor for Tracked {
            fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
                self.0 |= param.val().is_tracked();
            }
        }
        let mut tracked = Tracked(hidden.is_tracked() || self.weight.is_tracked());
        self.head.visit(&mut tracked);
        tracked.0
    }
}

impl Inputs {
    /// Whether the device's own operations predict.
    pub(super) fn are_native(&self) -> bool {
        self.native
    }

    /// `N`.
    pub(super) fn tokens(&self) -> usize {
        self.input.tokens()
    }

    /// The type of log-probabilities.
    pub(super) fn wide(&self) -> DType {
        self.input.wide()
    }

    /// `log π_k`, `[N, K]`, where there are components.
    pub(super) fn log_prior(&self) -> Option<Floats> {
        self.input.log_prior.clone()
    }

    /// The same tokens in runs that fit the memory budget.
    pub(super) fn into_chunks(self) -> impl Iterator<Item = Self> {
        let native = self.native;
        self.input.into_chunks().map(move |input| Self { input, native })
    }

    /// `[N, V]`
    pub(super) fn log_probs(self) -> Floats {
        match self.native {
            true => tensor(likelihood::predict(self.input, Prediction::LogProbs)),
            false => portable::log_probs(&self.input),
        }
    }

    /// `[N·K, V]`
    pub(super) fn logits(self) -> Floats {
        match self.native {
            true => tensor(likelihood::predict(self.input, Prediction::Logits)),
            false => portable::logits(&self.input),
        }
    }

    /// Does what a prediction says that makes no tensor.
    pub(super) fn predict(self, prediction: Prediction<'_>) {
        let made = match self.native {
            true => likelihood::predict(self.input, prediction),
            false => portable::predict(&self.input, prediction),
        };
        debug_assert!(made.is_none(), "tensors have functions of their own");
    }
}

fn tensor(made: Option<Floats>) -> Floats {
    made.expect("a tensor was asked for")
}
