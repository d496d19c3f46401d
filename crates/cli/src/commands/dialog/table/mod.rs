//! `dialog table`: saved runs side by side, as in Table 4 of Yang et al. (arXiv 1711.03953).

mod answers;
mod cells;
mod command;
mod outcome;
mod published;
mod side_by_side;
mod tables;

pub use command::{TableArgs, run};
