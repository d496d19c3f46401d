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
pub use train::TrainConfig;

use std::fmt;

use crate::Error;

/// `Ok` if the setting is good, and otherwise the error that says what would be.
fn check(
    good: bool,
    name: &'static str,
    value: impl fmt::Display,
    expected: &'static str,
) -> Result<(), Error> {
    if good { Ok(()) } else { Err(Error::invalid(name, value, expected)) }
}

#[cfg(test)]
mod tests;
