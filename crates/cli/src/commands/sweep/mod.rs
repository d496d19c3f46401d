//! `sweep`: heads by values of settings by seeds, with one table and pictures; `ablation` is a sweep with other defaults.
//!
//! * [`args`], [`grid`], [`range`], [`per_head`]: the command line;
//! * [`planned`]: runs before they are trained; [`plan`]: which there are, [`trials`] of random search, or the [`best_of`] it;
//!   [`planner`]: their settings, with sizes solved for; [`found`], where they are;
//! * [`stages`], [`rank`]: a run to its end;
//! * [`outcome`], [`results`], [`merged`], [`cells`], [`table`], [`trends`], [`pictures`], [`scatter`], [`marks`]: what came of it.

mod args;
mod best_of;
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
mod range;
mod rank;
mod results;
mod scatter;
mod stages;
mod table;
mod trends;
mod trials;

pub use args::{AblationArgs, SweepArgs};
pub use command::run;
