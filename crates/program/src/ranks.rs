//! Programs that `mpirun` started several times, as the ranks of one job.

use std::ffi::OsString;
use std::fmt;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Command, Parser};
use runs::ranks::Ranks;
use runs::{BURN, Error};

use crate::exit::{self, FAILED};
use crate::failure::{Failure, Incomplete};
use crate::interrupt::{Interrupt, Interrupted};
use crate::print::{print_note, print_out};

/// Joins the other processes, if this one was started by `mpirun` or the like.
///
/// # Errors
/// If there are others but the program was built without MPI, or if MPI refuses.
#[cfg(feature = "mpi")]
pub fn join() -> Result<Ranks, Failure> {
    use runs::ranks::{Communicator, Mpi, started_as_one_of};

    if started_as_one_of().is_none() {
        return Ok(Ranks::alone());
    }
    let mut job = Mpi::join()?;
    if job.size() > 1 {
        let (interrupt, rank) = (Interrupt::install()?, job.rank());
        let last_words = move |reason: &str| print_note(format_args!("error: rank {rank}: {reason}"));
        job = job.until(move || interrupt.is_noted(), last_words);
    }
    Ok(Ranks::new(job))
}

/// Checks that this process was started by itself.
///
/// # Errors
/// If there are others, which this program cannot join.
#[cfg(not(feature = "mpi"))]
pub fn join() -> Result<Ranks, Failure> {
    match runs::ranks::started_as_one_of() {
        Some(size) if size > 1 => Err(format!(
            "this program was built without MPI, but was started {size} times over; build it with `--features mpi`"
        )
        .into()),
        _ => Ok(Ranks::alone()),
    }
}

/// How long rank 0 may take to say what every rank has to say.
const PATIENCE: Duration = Duration::from_secs(5);

/// An error that every rank has.
#[derive(Debug)]
struct Everywhere(Failure);

impl fmt::Display for Everywhere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Everywhere {}

/// `own` if no rank failed; with several ranks, all of them ask this at the same point.
///
/// # Errors
/// The same at every rank.
pub fn agree<T>(ranks: &Ranks, own: Result<T, Failure>) -> Result<T, Failure> {
    if !ranks.are_several() {
        return own;
    }
    ranks.all_good(own).map_err(|error| match error.downcast_ref() {
        Some(Error::Communication { .. }) => error,
        _ => Box::new(Everywhere(error)),
    })
}

/// What `load` returns, if no rank failed. The first rank on each machine loads before the others, who may find what it kept there.
///
/// # Errors
/// The same at every rank.
pub fn load_in_turn<T>(ranks: &Ranks, load: impl Fn() -> Result<T, Failure>) -> Result<T, Failure> {
    let first = (ranks.local_rank() == 0).then(&load);
    ranks.wait()?;
    agree(ranks, first.unwrap_or_else(load))
}

/// Refuses several processes for the command `name`, which works in one.
///
/// # Errors
/// If there are several.
pub fn refuse(ranks: &Ranks, name: &str) -> Result<(), Failure> {
    match ranks.size() {
        1 => Ok(()),
        size => {
            let line =
                format!("{name} works in one process, but mpirun started {size}: start it without mpirun");
            Err(Box::new(Everywhere(line.into())))
        }
    }
}

/// Reads the command line of `program`, whose words `words` prepares. All ranks must have the same command. Help and version are
/// printed to standard output, by rank 0, and an error is one line.
///
/// # Errors
/// The exit status, once all is said.
pub fn parse<T: Parser>(
    program: &'static str,
    words: impl FnOnce(Vec<OsString>) -> Result<Vec<OsString>, Failure>,
    ranks: &Ranks,
) -> Result<T, ExitCode> {
    let words = agree(ranks, words(std::env::args_os().skip(1).collect()));
    let words = words.map_err(|error| exit(ranks, Err(error)))?;
    let mut command = command_of(&T::command(), &words);
    let parsed = match exit::read(program, words) {
        Err(asked) if exit::is_answer(&asked) => {
            command = "help or version".into();
            Ok(Err(asked.render().to_string()))
        }
        Ok(args) => Ok(Ok(args)),
        Err(error) => Err(exit::line_of(&error).into()),
    };
    let parsed = agree(ranks, parsed).map_err(|error| exit(ranks, Err(error)))?;
    // What another program computes may differ in bits.
    let versions = [env!("CARGO_PKG_VERSION"), BURN];
    ranks.check_same("versions", &versions).map_err(|error| exit(ranks, Err(error.into())))?;
    // Ranks with different commands would wait for each other at different points.
    ranks.check_same("command", &command).map_err(|error| exit(ranks, Err(error.into())))?;
    parsed.map_err(|answer| {
        if ranks.is_first() {
            print_out(&answer);
        }
        exit::exit(Ok(()))
    })
}

/// What a command line asks for, without its values: the commands, and whether a run goes on or another is started from.
fn command_of(commands: &Command, words: &[OsString]) -> String {
    let (mut command, mut names) = (commands, vec![]);
    for word in words {
        let Some(found) = command.find_subcommand(word) else { break };
        names.push(found.get_name());
        command = found;
    }
    for option in ["--resume", "--from"] {
        let joined = format!("{option}=");
        if words.iter().any(|word| word == option || word.to_string_lossy().starts_with(&joined)) {
            names.push(option);
        }
    }
    names.join(" ")
}

/// Turns a program's result into its exit status, as [`exit::exit`] does. What every rank has to say, rank 0 says. An error of this
/// rank alone ends all of them at once.
pub fn exit(ranks: &Ranks, result: Result<(), Failure>) -> ExitCode {
    let error = match result {
        Err(error) if ranks.are_several() => error,
        result => return exit::exit(result),
    };
    if let Some(interrupted) = error.downcast_ref::<Interrupted>() {
        let status = ExitCode::from(interrupted.status());
        return if ranks.is_first() { exit::exit(Err(error)) } else { status };
    }
    if error.is::<Incomplete>() {
        // Rank 0 has done all it could, and the others are done.
        return exit::exit(Err(error));
    }
    let everywhere = error.is::<Everywhere>() || error.downcast_ref().is_some_and(Error::is_everywhere);
    if everywhere && !ranks.is_first() {
        wait_for_the_end();
    }
    // What MPI says names the rank already, and what all have to say is nobody's.
    let named = everywhere || matches!(error.downcast_ref(), Some(Error::Communication { .. }));
    let rank = if named { String::new() } else { format!("rank {}: ", ranks.rank()) };
    print_note(format_args!("error: {rank}{}", exit::one_line(&error)));
    ranks.abort(i32::from(FAILED))
}

/// Gives rank 0 some time to say what every rank has to say, and to end this process.
fn wait_for_the_end() {
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        if Interrupt::install().is_ok_and(|interrupt| interrupt.is_noted()) {
            // Without a word, and without waiting for the others.
            std::process::exit(i32::from(FAILED));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_told_from_its_values() {
        let train = Command::new("train").alias("learn");
        let commands = Command::new("program")
            .subcommand(train)
            .subcommand(Command::new("do").subcommand(Command::new("it")));
        let of = |line: &str| {
            let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
            command_of(&commands, &words)
        };
        for (line, expected) in [
            ("train --data do", "train"),
            ("learn --resume=run --lr 2", "train --resume"),
            ("train --from run", "train --from"),
            ("do it --resume it", "do it --resume"),
            ("--version", ""),
        ] {
            assert_eq!(of(line), expected);
        }
    }
}
