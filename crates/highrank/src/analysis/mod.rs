//! Analyses that show what a head can express, on log-probabilities of any model.
//!
//! | question | answer | paper |
//! |---|---|---|
//! | What rank has the matrix of log-probabilities? | [`Spectrum`], [`SpectrumBuilder`] | Yang et al. 2018, section 3.2, figure 1 |
//! | How much do next-word distributions differ between contexts? | [`PairwiseKl`] | Yang et al. 2018, table 11 |
//! | How close is a model to a known truth? | [`AgainstTruth`] | Ganea et al. 2019, section 5.1 |
//! | Where does one model beat another? | [`Comparison`] | Yang et al. 2018, table 14 |
//! | What did a PLIF learn? | [`SlopeStatistics`], [`LogitRange`], [`curve`] | Ganea et al. 2019, section 5 |
//!
//! All of them take rows block by block and never hold the `[T, V]` matrix: see [`RowAnalysis`]. The rows come from
//! [`BoundHead::log_prob_blocks`](crate::BoundHead::log_prob_blocks) or from any other model. Everything is in nats and
//! computed in f64.

mod comparison;
mod divergence;
mod error;
mod logit_map;
mod rank;
mod rows;
mod triangle;
mod truth;

pub use comparison::{Comparison, Prediction, TokenGain};
pub use divergence::{PairwiseKl, kl_divergence};
pub use error::AnalysisError;
pub use logit_map::{LogitRange, SlopeStatistics, curve};
pub use rank::{Spectrum, SpectrumBuilder};
pub use rows::RowAnalysis;
pub use truth::{AgainstTruth, mode};
