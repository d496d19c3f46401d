//! What the command line asks for.

use super::args::{DialogArgs, DialogCommand};
use super::{eval, respond, retrieve, study, table, train, weights};
use crate::failure::Failure;

/// Runs the program; `program` is the name that a run which is stopped is continued with.
///
/// # Errors
/// Bad input, or what goes wrong in training. Nothing is written before all input is found to be good.
pub fn run(args: &DialogArgs, program: &'static str) -> Result<(), Failure> {
    match &args.command {
        None => study::run(&args.study),
        Some(DialogCommand::Train(args)) => train::run(args, program),
        Some(DialogCommand::Eval(args)) => eval::run(args),
        Some(DialogCommand::Table(args)) => table::run(args),
        Some(DialogCommand::Respond(args)) => respond::run(args),
        Some(DialogCommand::Retrieve(args)) => retrieve::run(args),
        Some(DialogCommand::Import(args)) => weights::import(args),
        Some(DialogCommand::Export(args)) => weights::export(args),
    }
}
