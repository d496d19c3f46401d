//! Commands that look into saved runs: rank and spectrum, divergence, lost gradient, comparison of two models, learned functions.

pub mod compare;
mod frame;
pub mod gradient_loss;
pub mod kl;
pub mod model;
pub mod plif;
pub mod rank;
mod runs;
pub mod text;
