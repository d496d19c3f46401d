//! The command itself.

use crate::synthetic::args::{Mode, SyntheticArgs};
use crate::synthetic::{dirichlet, repeated};
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
