//! When training is over.

use super::state::TrainerState;
use crate::config::{DecayWhen, LrDecay, TrainConfig};
use crate::train::observer::EndReason;

/// How far an epoch under way is.
#[derive(Debug, Clone, Copy)]
pub(in crate::train) struct Reached {
    /// Number of steps that are done.
    pub(in crate::train) step: usize,
    /// The step after which the validation text was scored last.
    pub(in crate::train) validated: usize,
    /// Wall-clock time of the epoch so far, in seconds.
    pub(in crate::train) seconds: f64,
}

/// Why training is over, if it is. It never is between a step and the validation that sees it.
///
/// This depends on the state and the settings alone: a run that ended goes on if a setting is changed that ended it.
pub(in crate::train) fn end_of(
    config: &TrainConfig,
    state: &TrainerState,
    reached: Option<Reached>,
) -> Option<EndReason> {
    if reached.is_some_and(|reached| reached.step > reached.validated) {
        return None;
    }
    if state.epoch >= config.epochs {
        Some(EndReason::Epochs)
    } else if state.ended {
        Some(EndReason::FinetuningRule)
    } else if config.patience.is_some_and(|patience| state.unimproved >= patience) {
        Some(EndReason::Patience)
    } else if state.best.is_some() && is_time_over(config, state, reached) {
        Some(EndReason::Time)
    } else {
        None
    }
}

/// Whether the run's time is over.
pub(super) fn is_time_over(config: &TrainConfig, state: &TrainerState, reached: Option<Reached>) -> bool {
    let seconds = state.seconds + reached.map_or(0.0, |reached| reached.seconds);
    config.max_minutes.is_some_and(|minutes| seconds >= minutes * 60.0)
}

/// The learning rate in the epoch under way, of a step of `bptt` time steps.
pub(super) fn learning_rate(config: &TrainConfig, state: &TrainerState) -> f64 {
    let Some(LrDecay { factor, when }) = config.lr_decay else { return config.lr };
    let times = match when {
        // The epoch under way is `state.epoch + 1`.
        DecayWhen::From { epoch } => (state.epoch + 2).saturating_sub(epoch),
        DecayWhen::Plateau => state.decays,
    };
    config.lr * factor.powi(i32::try_from(times).unwrap_or(i32::MAX))
}
