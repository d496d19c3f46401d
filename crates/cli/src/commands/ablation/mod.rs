//! `ablation`: heads of equal size on the same text and seeds.

mod command;
mod outcome;
mod plan;
mod report;

pub use command::{AblationArgs, run};
