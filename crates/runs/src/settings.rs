//! What defines a run: the content of its `config.json`.

use std::fmt::Debug;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::data::Fingerprint;
use crate::difference::unchanged;
use crate::error::{Error, Result};
use crate::metrics::EndReason;
use crate::state::TrainerState;

/// What the parts of a configuration have in common.
pub trait Plain: Clone + Debug + PartialEq + Serialize + DeserializeOwned {}

impl<T: Clone + Debug + PartialEq + Serialize + DeserializeOwned> Plain for T {}

/// A kind of run: which settings it has.
pub trait Settings: Clone + Debug + PartialEq + 'static {
    /// Its name in `config.json`.
    const KIND: &'static str;

    /// What it trains, in words.
    const TRAINS: &'static str;

    /// How the data is read.
    type Text: Plain;

    /// The model's shape.
    type Model: Plain;

    /// The training procedure.
    type Train: Procedure;

    /// Checks how the data is read, and the model.
    ///
    /// # Errors
    /// Names the first setting that is out of range.
    fn validate(text: &Self::Text, model: &Self::Model) -> Result<()>;

    /// Number of words of the model.
    fn vocab(model: &Self::Model) -> usize;
}

/// A training procedure, as far as every trainer needs to know it.
pub trait Procedure: Plain {
    /// What a checkpoint keeps of the procedure besides tensors.
    type State: Plain;

    /// The paths in `config.json` of what an [`Extension`] can change, besides the device.
    const CHANGEABLE: &'static [&'static str];

    /// Checks every setting.
    ///
    /// # Errors
    /// [`Error::InvalidSetting`] names the first setting that is out of range.
    fn validate(&self) -> Result<()>;

    /// The settings that every procedure has.
    fn common(&self) -> Common;

    /// Whether the validations so far end training, and why; asked after a validation.
    fn rule(&self, state: &TrainerState<Self::State>) -> Option<EndReason>;

    /// Sets what `change` sets, but for the device.
    ///
    /// # Errors
    /// Names a setting that such a run lacks, or that cannot be changed so.
    fn extend(&mut self, change: &Extension) -> Result<(), String>;

    /// Why there is nothing to train for a run that its [`rule`](Self::rule) ended, and what would do.
    fn over(&self, state: &TrainerState<Self::State>) -> String;
}

/// The settings that every procedure has.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Common {
    /// The most epochs.
    pub epochs: usize,
    /// Seed of everything random.
    pub seed: u64,
    /// The largest norm of a gradient.
    pub clip: f64,
    /// Steps of an epoch between two validations; `None`: only at its end.
    pub validate_every: Option<usize>,
    /// The most minutes of the whole run, if there is a limit.
    pub max_minutes: Option<f64>,
    /// Whether the best model is scored on the test text at the end.
    pub test: bool,
}

/// Everything that defines a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, bound = "")]
pub struct RunConfig<S: Settings> {
    /// The programs that made it, and the kind of the run.
    pub versions: Versions<S>,
    /// The preset it started from.
    pub preset: String,
    /// The device it was started on.
    pub device: String,
    /// The data folder; empty if the text was generated.
    pub data: PathBuf,
    /// Hashes of the text in it. It must not change while the run lasts.
    pub corpus: Fingerprint,
    /// The run whose best model training starts from, if this is finetuning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finetunes: Option<PathBuf>,
    /// How the data is read.
    pub text: S::Text,
    /// Where its encoded text is kept, if that was said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<KeptTokens>,
    /// The model.
    pub model: S::Model,
    /// The training procedure, with the seed.
    pub train: S::Train,
    /// What was changed since the run was started, oldest first: see [`Folder::extend`](crate::Folder::extend).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extensions: Vec<Extended>,
}

impl<S: Settings> RunConfig<S> {
    /// The data folder; `None` if the text was generated.
    pub fn data_folder(&self) -> Option<&Path> {
        Some(self.data.as_path()).filter(|data| !data.as_os_str().is_empty())
    }
}

/// Where the encoded text of a run is kept, as far as it was said: see [`TokenCache`](crate::data::TokenCache).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeptTokens {
    /// The folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<PathBuf>,
    /// Size of a text, in MiB, from which on it is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_mib: Option<u64>,
}

/// The kind of a run, and the versions of the programs that made it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, bound = "")]
pub struct Versions<S> {
    /// The kind: [`Settings::KIND`].
    kind: String,
    /// This crate.
    highrank: String,
    /// Burn.
    burn: String,
    /// The layout of the run folder.
    format: u32,
    #[serde(skip)]
    of: PhantomData<S>,
}

/// The layout of run folders that this version of the crate writes and reads.
pub const FORMAT: u32 = 4;

/// The version of Burn that this crate is built with.
pub const BURN: &str = "0.22.1";

impl<S: Settings> Versions<S> {
    /// The versions of the running program.
    pub fn current() -> Self {
        Self {
            kind: S::KIND.to_string(),
            highrank: env!("CARGO_PKG_VERSION").to_string(),
            burn: BURN.to_string(),
            format: FORMAT,
            of: PhantomData,
        }
    }
}

/// The kind of the run that a `config.json` with this content is of; `None` if it is of none.
///
/// # Errors
/// [`Error::RunFormat`] for a run of another layout.
pub fn kind_of(path: &Path, content: &Value) -> Result<Option<String>> {
    let versions = &content["versions"];
    if let Some(found) = versions["format"].as_u64().filter(|found| *found != u64::from(FORMAT)) {
        let reader = match found {
            ..FORMAT_0_2 => "highrank 0.1, for Burn 0.21,",
            FORMAT_0_2 => "an earlier build of highrank 0.2",
            _ => "a newer version of highrank",
        };
        return Err(Error::RunFormat { path: path.to_path_buf(), found, expected: FORMAT, reader });
    }
    Ok(versions["kind"].as_str().map(str::to_string))
}

/// The layout before the present one.
const FORMAT_0_2: u64 = 3;

impl<S: Settings> RunConfig<S> {
    /// Reads the content of the file `path`, and checks it.
    ///
    /// # Errors
    /// [`Error::RunFormat`], [`Error::OtherKind`], [`Error::Damaged`], or a setting out of range.
    pub(crate) fn read(path: &Path, content: Value) -> Result<Self> {
        // The format first: another one may have other fields.
        if let Some(found) = kind_of(path, &content)?.filter(|kind| kind != S::KIND) {
            let path = path.parent().unwrap_or(path).to_path_buf();
            return Err(Error::OtherKind { path, found, expected: S::TRAINS });
        }
        let config: Self = serde_json::from_value(content).map_err(|error| Error::damaged(path, error))?;
        config.validate()?;
        Ok(config)
    }

    /// Checks all settings.
    ///
    /// # Errors
    /// Names the first setting that is out of range.
    pub fn validate(&self) -> Result<()> {
        S::validate(&self.text, &self.model)?;
        self.train.validate()
    }

    /// Whether a run with this configuration can be resumed with the configuration `now`.
    ///
    /// # Errors
    /// [`Error::ConfigChanged`] names the first setting of the device, the text, the model or the procedure that differs.
    pub fn check(&self, now: &Self) -> Result<()> {
        unchanged("device", &self.device, &now.device)?;
        unchanged("text", &self.text, &now.text)?;
        unchanged("model", &self.model, &now.model)?;
        unchanged("train", &self.train, &now.train)
    }

    /// This configuration with `change`, and a record of what that changes.
    ///
    /// # Errors
    /// [`Error::CannotExtend`] of the run in `path` if there would be nothing to train; what is wrong with the new settings.
    pub(crate) fn extended(
        &self,
        path: &Path,
        change: &Extension,
        state: Option<&TrainerState<<S::Train as Procedure>::State>>,
    ) -> Result<(Self, bool)> {
        let refused = |reason| Error::CannotExtend { path: path.to_path_buf(), reason };
        let mut now = self.clone();
        now.train.extend(change).map_err(refused)?;
        now.device = change.device.clone().unwrap_or(now.device);
        now.validate()?;
        let [before, after] = [json!(self), json!(now)];
        let after_epoch = state.map_or(0, |state| state.epoch);
        let changes = S::Train::CHANGEABLE.iter().chain(&["device"]).filter_map(|setting| {
            let [from, to] = [&before, &after]
                .map(|config| setting.split('.').fold(config, |value, name| &value[name]).clone());
            (from != to).then(|| Extended { after_epoch, setting: setting.to_string(), from, to })
        });
        let goes_on = match state {
            Some(state) if self.train != now.train => {
                goes_on(&self.train, &now.train, state).map_err(refused)?
            }
            _ => false,
        };
        now.extensions.extend(changes);
        Ok((now, goes_on))
    }
}

/// What is changed of a run that was begun. `None` leaves a setting as it is.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Extension {
    /// Epochs of the whole run.
    pub epochs: Option<usize>,
    /// Minutes of the whole run.
    pub max_minutes: Option<f64>,
    /// What the run's rule of early stopping calls patience: of a language model, the validations in a row without a new best after
    /// which training ends.
    pub patience: Option<usize>,
    /// Name of the device that the run goes on with. Results on another device differ by rounding and by dropout masks.
    pub device: Option<String>,
}

/// A setting of a run that was changed after its start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Extended {
    /// Number of epochs that were done.
    pub after_epoch: usize,
    /// The setting, as a path in `config.json`: `train.epochs`, `device`.
    pub setting: String,
    /// Its value before; null if there was none.
    pub from: Value,
    /// Its value since.
    pub to: Value,
}

/// Why training is over, if it is. It never is between a step and the validation that sees it.
///
/// This depends on the state and the settings alone: a run that ended goes on if a setting is changed that ended it.
pub(crate) fn end_of<P: Procedure>(procedure: &P, state: &TrainerState<P::State>) -> Option<EndReason> {
    if state.position.as_ref().is_some_and(|position| position.step > position.validated) {
        return None;
    }
    if state.epoch >= procedure.common().epochs {
        return Some(EndReason::Epochs);
    }
    let time = || (state.best.is_some() && is_time_over(procedure, state)).then_some(EndReason::Time);
    procedure.rule(state).or_else(time)
}

/// Whether the run's time is over.
pub(crate) fn is_time_over<P: Procedure>(procedure: &P, state: &TrainerState<P::State>) -> bool {
    procedure.common().max_minutes.is_some_and(|minutes| state.seconds_in_all() >= minutes * 60.0)
}

/// Whether a run has more to train by the procedure `now`, and had not `before`.
fn goes_on<P: Procedure>(before: &P, now: &P, state: &TrainerState<P::State>) -> Result<bool, String> {
    let (Common { epochs, max_minutes, .. }, done) = (now.common(), state.epoch);
    Err(match end_of(now, state) {
        // Also between a step and its validation, when no run is over.
        _ if epochs <= done && epochs == before.common().epochs => {
            format!("epoch {done} of {epochs} is done: give more epochs")
        }
        _ if epochs <= done => format!("epochs is {epochs}, but epoch {done} is done: give more"),
        None | Some(EndReason::Epochs) => return Ok(end_of(before, state).is_some()),
        Some(EndReason::Time) => format!(
            "--max-time is {}, and {} have passed: give more",
            time(max_minutes.unwrap_or_default() * 60.0),
            time(state.seconds_in_all())
        ),
        Some(_) => now.over(state),
    })
}

/// A time in its largest unit, such as `2.4 s` or `1.5 h`.
fn time(seconds: f64) -> String {
    let (value, unit) = match seconds {
        ..60.0 => (seconds, "s"),
        60.0..3600.0 => (seconds / 60.0, "min"),
        _ => (seconds / 3600.0, "h"),
    };
    format!("{} {unit}", (value * 100.0).round() / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_a_unit_and_no_long_fractions() {
        let times = [1.0 / 60.0 * 60.0, 2.412, 90.0, 5400.0, 172_800.0].map(time);
        assert_eq!(times, ["1 s", "2.41 s", "1.5 min", "1.5 h", "48 h"]);
    }
}
