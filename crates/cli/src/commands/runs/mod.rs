//! `runs`: the runs below a folder, with their settings and results.

mod command;
mod listed;

pub use command::{RunsArgs, run};
