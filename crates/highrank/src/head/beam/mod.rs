//! Beam search: the most probable sequences of words under any step function, a head's among them.

mod config;
mod hypothesis;
mod search;
mod state;
#[cfg(all(test, feature = "flex"))]
mod tests;

pub use config::{BeamSearch, FinishedHypotheses};
pub use hypothesis::{Hypothesis, LiveHypotheses, LiveHypothesis};
pub(crate) use search::by_top_k;
pub use state::BeamState;
