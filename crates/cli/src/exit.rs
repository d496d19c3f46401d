//! How a program starts and ends: its command line read, and its answer or one line on standard error and the status 2.

use std::fmt::Display;
use std::process::ExitCode;

use clap::Parser;

use crate::failure::Failure;
use crate::interrupt::Interrupted;
use crate::print::print_note;

/// Status of a program that was given bad input or could not do its work.
const FAILED: u8 = 2;

/// Turns a program's result into its exit status, with one line on standard error if it failed or was interrupted.
pub fn exit(result: Result<(), Failure>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => match error.downcast_ref::<Interrupted>() {
            Some(interrupted) => {
                print_note(interrupted);
                ExitCode::from(interrupted.status())
            }
            None => fail(error),
        },
    }
}

/// Reads the command line of `program`. Help and version are printed to standard output, and an error is one line.
pub fn parse<T: Parser>(program: &'static str) -> Result<T, ExitCode> {
    let mut command = T::command().name(program);
    let matches = command.try_get_matches_from_mut(std::env::args_os());
    let parsed =
        matches.and_then(|matches| T::from_arg_matches(&matches).map_err(|error| error.format(&mut command)));
    parsed.map_err(|error| {
        if error.use_stderr() {
            // The first paragraph says what is wrong; usage and hints follow after a blank line.
            let text = error.render().to_string();
            let lines = text.lines().map(str::trim).take_while(|line| !line.is_empty());
            let line = lines.collect::<Vec<_>>().join(" ");
            fail(line.strip_prefix("error: ").unwrap_or(&line))
        } else {
            // Printing help can only fail when nobody reads it.
            let _ = error.print();
            ExitCode::SUCCESS
        }
    })
}

fn fail(error: impl Display) -> ExitCode {
    let line = error.to_string().replace('\n', " ");
    print_note(format_args!("error: {}", line.trim()));
    ExitCode::from(FAILED)
}
