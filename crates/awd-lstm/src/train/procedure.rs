//! The procedure as a trainer knows it: what ends training, what falls and what is averaged.

use runs::error::Result;
use runs::optim::NonMonotone;
use runs::{Common, EndReason, Extension, Procedure, TrainerState};
use serde::{Deserialize, Serialize};

use crate::config::{DecayWhen, LrDecay, TrainConfig};

/// What a checkpoint keeps of the procedure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcedureState {
    /// Whether averaging has begun.
    pub averaging: bool,
    /// Number of iterates in the averages.
    pub iterates: usize,
    /// The rule that starts averaging, or ends finetuning, with the validation losses that it has seen.
    pub rule: NonMonotone,
    /// Whether the rule has ended finetuning.
    pub ended: bool,
    /// Number of validations without a new best, each of which lowers the learning rate if it is to fall so.
    pub decays: usize,
}

/// The state of a language model's trainer.
pub type LmTrainerState = TrainerState<ProcedureState>;

impl ProcedureState {
    /// The state before the first step.
    pub(super) fn new(config: &TrainConfig) -> Self {
        let (averaging, rule) = (config.average_from_start, NonMonotone::new(config.nonmono));
        Self { averaging, iterates: 0, rule, ended: false, decays: 0 }
    }

    /// Sees a validation loss, a new best or not. Returns what that begins or ends.
    pub(super) fn validated(&mut self, config: &TrainConfig, nll: f64, best: bool) -> Option<&'static str> {
        if let (false, Some(LrDecay { when: DecayWhen::Plateau, .. })) = (best, config.lr_decay) {
            self.decays += 1;
        }
        if config.average_from_start {
            self.ended |= self.rule.observe(nll);
            return self.ended.then_some("finetuning ends");
        }
        let begins = !self.averaging && self.rule.observe(nll);
        self.averaging |= begins;
        begins.then_some("averaging begins")
    }
}

/// The learning rate in the epoch under way, of a step of `bptt` time steps.
pub(super) fn learning_rate(config: &TrainConfig, state: &LmTrainerState) -> f64 {
    let Some(LrDecay { factor, when }) = config.lr_decay else { return config.lr };
    let times = match when {
        // The epoch under way is `state.epoch + 1`.
        DecayWhen::From { epoch } => (state.epoch + 2).saturating_sub(epoch),
        DecayWhen::Plateau => state.task.decays,
    };
    config.lr * factor.powi(i32::try_from(times).unwrap_or(i32::MAX))
}

impl Procedure for TrainConfig {
    type State = ProcedureState;

    const CHANGEABLE: &'static [&'static str] = &["train.epochs", "train.max_minutes", "train.patience"];

    fn validate(&self) -> Result<()> {
        Self::validate(self)
    }

    fn common(&self) -> Common {
        let Self { epochs, seed, clip, validate_every, max_minutes, test, .. } = *self;
        Common { epochs, seed, clip, validate_every, max_minutes, test }
    }

    fn rule(&self, state: &LmTrainerState) -> Option<EndReason> {
        if state.task.ended {
            return Some(EndReason::FinetuningRule);
        }
        let patience = self.patience.is_some_and(|patience| state.unimproved >= patience);
        patience.then_some(EndReason::Patience)
    }

    fn extend(&mut self, change: &Extension) -> Result<(), String> {
        self.epochs = change.epochs.unwrap_or(self.epochs);
        self.max_minutes = change.max_minutes.or(self.max_minutes);
        self.patience = change.patience.or(self.patience);
        Ok(())
    }

    fn over(&self, state: &LmTrainerState) -> String {
        match state.task.ended {
            true => {
                "it is a finetuning that its validation losses ended; finetune its best model in a new run"
                    .into()
            }
            false => format!(
                "its last {} validations made no new best model, and its patience is {}: give a larger one",
                state.unimproved,
                self.patience.unwrap_or_default()
            ),
        }
    }
}
