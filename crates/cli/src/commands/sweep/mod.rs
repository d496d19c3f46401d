//! `sweep`: heads by values of settings by seeds, with one table and pictures.
//!
//! * [`args`], [`grid`], [`per_head`]: the command line;
//! * [`planned`]: runs before they are trained; [`plan`]: which there are; [`planner`]: their settings, with sizes solved for;
//!   [`found`], where they are;
//! * [`stages`], [`rank`]: a run to its end;
//! * [`outcome`], [`merged`], [`cells`], [`table`], [`pictures`], [`marks`]: what came of it.

mod args;
mod cells;
mod command;
mod found;
mod grid;
mod listing;
mod marks;
mod merged;
mod outcome;
mod per_head;
mod pictures;
mod plan;
mod planned;
mod planner;
mod rank;
mod stages;
mod table;

pub use args::SweepArgs;
pub use command::run;
