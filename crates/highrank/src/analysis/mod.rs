//! Analyses that show what a head can express, on log-probabilities of any model.

mod rank;

pub use rank::{AnalysisError, Spectrum};
