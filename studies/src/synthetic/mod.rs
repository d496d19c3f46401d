//! `synthetic`: what heads learn where the truth is known.
//!
//! | module | job |
//! |---|---|
//! | [`dirichlet`] | distributions drawn from a Dirichlet law (Ganea et al., ICML 2019, section 5.1) |
//! | [`repeated`] | a language in which each sequence repeats one symbol (Godey and Artzi 2026) |
//! | `fits.rs`, `kept.rs` | training that is saved, stopped and continued; finished fits in a folder |
//! | `report.rs` | table and pictures of outcomes, also of those that were printed before |
//! | `tries.rs` | one head with several learning rates and seeds |

mod args;
mod command;
mod dirichlet;
mod fit_args;
mod fits;
mod kept;
mod repeated;
mod report;
mod tries;

pub use args::SyntheticArgs;
pub use command::run;
