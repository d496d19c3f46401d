//! `theorems`: what the papers prove about softmax, mixtures and logit maps, measured.

mod args;
mod command;
mod entropy;
mod evidence;
mod floor;
mod matrix;
mod minimise;
mod plif;
mod powers;
mod rank;
mod square;

pub use args::TheoremsArgs;
pub use command::run;
