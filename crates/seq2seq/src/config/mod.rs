//! Configurations of the model and of its training, and the presets.

mod model;
mod preset;
mod stopping;
mod train;

pub use model::{ModelConfig, head_params, largest_latent};
pub use preset::Preset;
pub use stopping::{EarlyStop, StopConfig};
pub use train::TrainConfig;

#[cfg(test)]
mod tests;
