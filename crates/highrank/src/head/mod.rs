//! The output head: context, logit map and decoder behind one interface.

mod adaptive;
mod beam;
mod bound;
mod clusters;
mod config;
mod gradients;
mod inputs;
mod losses;
mod output;
mod owned;
mod predict;
mod sampling;
mod select;

pub use beam::{BeamSearch, BeamState, FinishedHypotheses, Hypothesis, LiveHypotheses, StepLogProbs};
pub use bound::BoundHead;
pub use clusters::{AdaptiveConfig, Clusters, Tail};
pub use config::HeadConfig;
pub use output::OutputHead;
pub use predict::TopK;
pub use sampling::Sampling;
