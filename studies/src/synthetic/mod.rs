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
mod dirichlet;
mod fit_args;
mod fits;
mod kept;
mod repeated;
mod report;
mod tries;

pub use args::SyntheticArgs;

use args::Mode;
use program::failure::Failure;

/// Runs the experiment that was asked for, prints a table and draws pictures.
///
/// # Errors
/// Bad input, a device that is missing, a folder that cannot be written; an interrupt, or the end of the time.
pub fn run(args: &SyntheticArgs) -> Result<(), Failure> {
    match &args.mode {
        None => dirichlet::run(args),
        Some(Mode::Repeated(args)) => repeated::run(args),
    }
}
