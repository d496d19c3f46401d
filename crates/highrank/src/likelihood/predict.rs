//! Predictions, by the device's native operations where it has them.

use burn::backend::Dispatch;
use highrank_kernels::Floats;

use super::portable;
use crate::ops::{Likelihood, OutputOps, Prediction, has_kernels};

/// What is predicted of every token; a tensor, if one was asked for. No gradient flows through it: what is to be differentiated
/// is [composed](portable::log_probs).
pub(crate) fn predict(input: Likelihood, prediction: Prediction<'_>) -> Option<Floats> {
    match has_kernels(&input.weight.device()) {
        true => {
            let made = <Dispatch as OutputOps>::predict(input, prediction);
            made.map(Floats::new)
        }
        false => portable::predict(&input, prediction),
    }
}
