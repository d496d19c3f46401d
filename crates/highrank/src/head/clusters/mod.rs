//! The clusters of an adaptive softmax: which words are in which, and the parameters of their tails.

mod config;
mod tails;

pub use config::AdaptiveConfig;
pub use tails::{Clusters, Tail};
