//! Analyses that show what a head can express, on log-probabilities of any model.
//!
//! | question | answer | paper |
//! |---|---|---|
//! | What rank has the matrix of log-probabilities? | [`Spectrum`], [`SpectrumBuilder`] | Yang et al. 2018, section 3.2, figure 1 |
//! | How much do next-word distributions differ between contexts? | [`PairwiseKl`] | Yang et al. 2018, table 11 |
//! | How close is a model to a known truth? | [`AgainstTruth`] | Ganea et al. 2019, section 5.1 |
//! | Where does one model beat another? | [`Comparison`] | Yang et al. 2018, table 14 |
//! | How much of the logits' gradient is lost in the decoder? | [`GradientLoss`] | Godey and Artzi 2026 |
//! | What did a PLIF learn? | [`SlopeStatistics`], [`LogitRange`], [`curve`] | Ganea et al. 2019, section 5 |
//!
//! All but those of a PLIF take rows block by block and never hold the `[T, V]` matrix: see [`RowAnalysis`]. `finish` then gives what
//! was found, as plain data. The rows come from [`OutputHead::log_prob_blocks`](crate::OutputHead::log_prob_blocks) or from any other model,
//! gradients from a head. Everything is in nats and computed in f64, but for the function of
//! [`curve`], which has the device's float type.
//!
//! # Masked words
//! A log-probability of −∞ says that the word is masked: its probability is 0, as that of a word whose decoder bias is
//! −∞. Every analysis gives what it gives for the same model without these words. Where rows mask different words:
//!
//! | analysis | result |
//! |---|---|
//! | [`Spectrum`], [`SpectrumBuilder`] | an error: the matrix over the common words would have another rank |
//! | [`kl_divergence`], [`PairwiseKl`], [`AgainstTruth`] | +∞ if a word is possible under `P` and masked under `Q`; `0 log 0 = 0` |
//! | [`Comparison`] | gain of −∞ or +∞ if one model masks the target, 0 if both do |
//! | [`LogitRange`] | logits of −∞ are not counted |
//! | [`GradientLoss`] | a gradient of 0 is a number like any other: words are masked for all rows, by the head |
//!
//! A row of nothing but masked words is no distribution, and an error everywhere.

mod column_space;
mod comparison;
mod divergence;
mod error;
mod gradient_loss;
mod logit_map;
mod rank;
mod rows;
mod triangle;
mod truth;

#[cfg(test)]
mod masked_tests;

pub use comparison::{ComparedModels, Comparison, Prediction, TokenGain};
pub use divergence::{PairwiseKl, kl_divergence};
pub use error::AnalysisError;
pub use gradient_loss::{GradientLoss, GradientShares};
pub use logit_map::{LogitRange, SlopeStatistics, curve};
pub use rank::{Spectrum, SpectrumBuilder};
pub use rows::RowAnalysis;
pub use truth::{AgainstTruth, TruthFit};
