//! `synthetic`: what heads learn where the truth is known.
//!
//! | module | job |
//! |---|---|
//! | [`dirichlet`] | distributions drawn from a Dirichlet law (Ganea et al., ICML 2019, section 5.1) |
//! | [`repeated`] | a language in which each sequence repeats one symbol (Godey and Artzi 2026) |
//! | `fits.rs`, `kept.rs` | training that is saved, stopped and continued; finished fits in a folder |
//! | `found.rs` | outcomes that were printed before |
//! | `tries.rs` | one head with several learning rates and seeds |

mod args;
mod command;
mod dirichlet;
mod fit_args;
mod fits;
mod found;
mod kept;
mod repeated;
mod tries;

pub use args::SyntheticArgs;
pub use command::run;
