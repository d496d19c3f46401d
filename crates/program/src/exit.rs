//! How a program starts and ends: its command line read, and its answer or one line on standard error and the status 2.

use std::ffi::OsString;
use std::fmt::Display;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, Parser};

use crate::failure::{Failure, Incomplete};
use crate::interrupt::Interrupted;
use crate::print::{self, print_note};
use crate::suggestion::{suggest, with_suggestion};

/// Status of a program that was given bad input or could not do its work.
pub const FAILED: u8 = 2;
/// Status of a program that did a part of its work.
const INCOMPLETE: u8 = 1;

/// Turns a program's result into its exit status, with one line on standard error if it failed or was interrupted. Results that could
/// not be printed are a failure, too.
pub fn exit(result: Result<(), Failure>) -> ExitCode {
    match result {
        Ok(()) if print::has_failed() => ExitCode::from(FAILED),
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if let Some(interrupted) = error.downcast_ref::<Interrupted>() {
                print_note(interrupted);
                ExitCode::from(interrupted.status())
            } else if error.is::<Incomplete>() {
                print_note(error);
                ExitCode::from(INCOMPLETE)
            } else {
                print_note(format_args!("error: {}", one_line(&error)));
                ExitCode::from(FAILED)
            }
        }
    }
}

/// Reads a command line of `program`, the words after its name.
///
/// # Errors
/// What is wrong with it, or that help or the version was asked for.
pub fn read<T: Parser>(program: &'static str, words: Vec<OsString>) -> Result<T, clap::Error> {
    let mut command = with_negative_numbers(T::command().name(program));
    let matches = command.try_get_matches_from_mut(std::iter::once(program.into()).chain(words))?;
    T::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

/// The command, to which `-1` is a value everywhere: it is refused as a number, not as an option that there is not.
fn with_negative_numbers(command: Command) -> Command {
    command.allow_negative_numbers(true).mut_subcommands(with_negative_numbers)
}

/// Whether a command line is good, but asked for help or the version, or for nothing, which help answers.
pub fn is_answer(error: &clap::Error) -> bool {
    !error.use_stderr() || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
}

/// What is wrong with a command line, in one line, with what was meant if that can be told.
pub fn line_of(error: &clap::Error) -> String {
    // The first paragraph says what is wrong; usage and hints follow after a blank line.
    let text = error.render().to_string();
    let lines = text.lines().map(str::trim).take_while(|line| !line.is_empty());
    let line = lines.collect::<Vec<_>>().join(" ");
    let line = line.strip_prefix("error: ").unwrap_or(&line);
    // A value may hold the same words as its fault.
    let cause = std::error::Error::source(error).map(ToString::to_string);
    let line = match cause.as_deref().and_then(|cause| Some((line.strip_suffix(cause)?, cause))) {
        Some((before, cause)) => format!("{before}{}", with_example(cause)),
        None => line.to_string(),
    };
    let kinds = [ContextKind::SuggestedSubcommand, ContextKind::SuggestedArg, ContextKind::SuggestedValue];
    match kinds.into_iter().find_map(|kind| error.get(kind)) {
        Some(ContextValue::String(name)) => suggest(&line, name),
        // The last is the nearest.
        Some(ContextValue::Strings(names)) if !names.is_empty() => suggest(&line, &names[names.len() - 1]),
        _ => with_suggestion(line),
    }
}

/// What is wrong with a number, of which the standard library says that alone.
fn with_example(cause: &str) -> String {
    let whole = "it must be a whole number of at least 0, such as 100";
    let real = "it must be a number, such as 0.5";
    cause
        .replace("invalid digit found in string", whole)
        .replace("cannot parse integer from empty string", whole)
        .replace("invalid float literal", real)
        .replace("cannot parse float from empty string", real)
}

/// An error in one line, with what was meant if that can be told.
pub fn one_line(error: &impl Display) -> String {
    with_suggestion(error.to_string().replace('\n', " ").trim().to_string())
}
