//! The studies: what heads can represent, what the papers prove, and what a mixture costs.
//!
//! ```text
//! cargo run --release -p highrank-studies -- synthetic            five heads, or --heads, on distributions that are known
//! cargo run --release -p highrank-studies -- synthetic repeated   a language of repeated symbols
//! cargo run --release -p highrank-studies -- theorems             what the papers prove, measured
//! cargo run --release -p highrank-studies -- slowdown             a mixture's training time over a softmax's
//! cargo run --release -p highrank-studies -- references           more references for responses in dialogues
//! ```

mod references;
mod slowdown;
mod synthetic;
mod theorems;

use std::process::ExitCode;

use clap::Parser;

use crate::references::ReferencesArgs;
use crate::slowdown::SlowdownArgs;
use crate::synthetic::SyntheticArgs;
use crate::theorems::TheoremsArgs;

/// Studies of high-rank output layers.
#[derive(Debug, Parser)]
#[command(version)]
enum Study {
    Synthetic(Box<SyntheticArgs>),
    Theorems(TheoremsArgs),
    Slowdown(SlowdownArgs),
    References(ReferencesArgs),
}

fn main() -> ExitCode {
    program::start("studies", |study: Study, _| match study {
        Study::Synthetic(args) => synthetic::run(&args),
        Study::Theorems(args) => theorems::run(&args),
        Study::Slowdown(args) => slowdown::run(&args),
        Study::References(args) => references::run(&args),
    })
}

#[test]
fn the_command_line_is_consistent() {
    use clap::CommandFactory;
    Study::command().debug_assert();
}
