//! `sweep`: heads by values of settings by seeds, with one table and pictures; `ablation` is a sweep with other defaults.
//!
//! * [`args`], [`grid`], [`per_head`]: the command line;
//! * [`plan`]: which runs there are, and [`found`], where they are;
//! * [`stages`], [`rank`]: a run to its end;
//! * [`outcome`], [`cells`], [`table`], [`pictures`], [`marks`]: what came of it.

mod args;
mod cells;
mod command;
mod found;
mod grid;
mod listing;
mod marks;
mod outcome;
mod per_head;
mod pictures;
mod plan;
mod rank;
mod stages;
mod table;

pub use args::{AblationArgs, SweepArgs};
pub use command::run;
