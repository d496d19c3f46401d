//! Runs before they are trained.

use awd_lstm::train::RunConfig;
use awd_lstm::{ModelConfig, TrainConfig};
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
    pub settings: Varying,
    pub config: RunConfig,
    pub finetuning: Option<TrainConfig>,
}

/// The runs of a sweep.
#[derive(Debug, Clone)]
pub struct Plan {
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
    pub model: ModelConfig,
    pub train: TrainConfig,
    pub finetuning: Option<TrainConfig>,
}
