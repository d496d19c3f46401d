//! Finetuning: training that starts from a run's best model, with averaged weights from the first step.

use awd_lstm::{Preset, TrainConfig};
use program::failure::Failure;

use crate::args::Overrides;

/// The procedure that finetunes after the procedure `origin` of a run that began with the preset `preset`, checked.
///
/// It is the run's own with averaging from the first step and the preset's learning rate for finetuning, which does not decay,
/// and `overrides`.
pub fn finetuning(preset: &str, origin: &TrainConfig, overrides: &Overrides) -> Result<TrainConfig, Failure> {
    let preset: Option<Preset> = preset.parse().ok();
    let mut train = origin.clone();
    train.lr = preset.map_or(train.lr, Preset::finetune_lr);
    train.lr_decay = None;
    train.average_from_start = true;
    let train = overrides.procedure(train)?;
    train.validate()?;
    if !train.average_from_start {
        return Err("finetune averages from the start: leave --average-from-start out".into());
    }
    Ok(train)
}
