//! The output head: context, logit map and decoder behind one interface.

mod bound;
mod config;
mod output;
mod owned;
mod sampling;

pub use bound::{BoundHead, TopK, validate_targets};
pub use config::HeadConfig;
pub use output::OutputHead;
pub use sampling::Sampling;
