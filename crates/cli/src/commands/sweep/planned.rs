//! Runs before they are trained.

use awd_lstm::train::RunConfig;
use awd_lstm::{HeadKind, ModelConfig, TrainConfig};
use program::failure::Failure;
use serde::Serialize;

use crate::commands::sweep::grid::Axis;

/// The name of the axis of numbers of parameters.
pub const PARAMETERS: &str = "parameters";

/// Settings that vary, with their values as they were given.
pub type Varying = Vec<(String, String)>;

/// A run of a sweep.
#[derive(Debug, Clone)]
pub struct Planned {
    /// Name of its folder: the head, the settings that vary, and the seed.
    pub name: String,
    /// The settings that vary for its head.
    pub settings: Varying,
    /// Everything that defines it.
    pub config: RunConfig,
    /// The procedure of finetuning after it, if there is any.
    pub finetuning: Option<TrainConfig>,
}

/// The runs of a sweep.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The runs, in their order.
    pub runs: Vec<Planned>,
    /// The settings that vary, numbers of parameters among them.
    pub axes: Vec<Axis>,
    /// What was left out, and why, a line each.
    pub notes: Vec<String>,
}

/// A setting and a value chosen for it, as it was written.
pub type Choice<'a> = (&'a str, &'a str);

/// A run's model and procedure, but for its seed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Settings {
    /// The model.
    pub model: ModelConfig,
    /// The procedure.
    pub train: TrainConfig,
    /// The procedure of finetuning after it, if there is any.
    pub finetuning: Option<TrainConfig>,
}

impl Settings {
    /// A text that is the same for equal settings.
    pub fn key(&self) -> String {
        serde_json::to_string(self).expect("settings are plain numbers and names")
    }
}

/// An error that says of which run it is.
pub fn at(head: HeadKind, chosen: &[Choice], error: &Failure) -> Failure {
    let settings = chosen.iter().map(|(flag, value)| format!(", {flag} {value}"));
    format!("{head}{}: {error}", settings.collect::<String>()).into()
}
