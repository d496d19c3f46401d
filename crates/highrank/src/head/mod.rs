//! The output head: context, logit map and decoder behind one interface.

mod adaptive;
mod beam;
mod clusters;
mod config;
mod continuation;
mod distillation;
mod input;
mod logits;
mod losses;
mod output;
mod predict;
mod sampling;
mod select;
mod words;

pub use beam::{BeamSearch, BeamState, FinishedHypotheses, Hypothesis, LiveHypotheses, StepLogProbs};
pub use clusters::{AdaptiveConfig, Clusters, Tail};
pub use config::HeadConfig;
#[cfg(all(test, feature = "flex"))]
pub(crate) use config::examples;
pub use output::{OutputHead, TiedMatrix};
pub use predict::TopK;
pub use sampling::Sampling;
#[cfg(feature = "analysis")]
pub(crate) use select::best_pairs;
pub use words::{LogProbOptions, TokenLogProbs};
