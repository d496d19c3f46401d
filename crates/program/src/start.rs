//! A program from its command line to its exit status.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;
use runs::ranks::Ranks;

use crate::failure::Failure;
use crate::{exit, ranks};

/// A program in one process: reads the command line, does what it says, and answers with an exit status. `work` is told the
/// program's name.
pub fn start<T: Parser>(
    program: &'static str,
    work: impl FnOnce(T, &'static str) -> Result<(), Failure>,
) -> ExitCode {
    start_among(program, Ok, |args, program, ranks| {
        ranks::refuse(ranks, program)?;
        work(args, program)
    })
}

/// The same, in as many processes as there are; `words` turns the words of the line into those that are read.
pub fn start_among<T: Parser>(
    program: &'static str,
    words: impl FnOnce(Vec<OsString>) -> Result<Vec<OsString>, Failure>,
    work: impl FnOnce(T, &'static str, &Ranks) -> Result<(), Failure>,
) -> ExitCode {
    let ranks = match ranks::join() {
        Ok(ranks) => ranks,
        Err(error) => return exit::exit(Err(error)),
    };
    match ranks::parse(program, words, &ranks) {
        Ok(args) => ranks::exit(&ranks, work(args, program, &ranks)),
        Err(status) => status,
    }
}
