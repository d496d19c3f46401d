//! `sweep`: heads by values of settings by seeds, with one table and pictures.
//!
//! * [`args`], [`grid`]: the command line;
//! * [`plan`]: which runs there are, with sizes solved for; [`found`]: where they are;
//! * [`stages`]: a run to its end;
//! * [`outcome`], [`merged`], [`cells`], [`table`], [`pictures`], [`marks`]: what came of it.

mod args;
mod cells;
mod command;
mod found;
mod grid;
mod marks;
mod merged;
mod outcome;
mod pictures;
mod plan;
mod stages;
mod table;

pub use args::SweepArgs;
pub use command::run;
