//! Configurations of the model and of its training, and the presets of the papers.

mod dropouts;
mod head;
mod model;
mod preset;
mod train;

pub use dropouts::Dropouts;
pub use head::HeadKind;
pub use model::ModelConfig;
pub use preset::Preset;
pub use train::{DecayWhen, LrDecay, TrainConfig};

#[cfg(test)]
mod tests;
