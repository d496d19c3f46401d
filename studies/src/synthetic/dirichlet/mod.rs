//! How well each head represents distributions drawn from a Dirichlet law (Ganea et al., ICML 2019, section 5.1).

mod command;
mod grid;
mod heat_map;
mod model;
mod truth;

pub use command::run;
