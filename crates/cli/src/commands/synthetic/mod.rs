//! `synthetic`: how well each head represents distributions drawn from a Dirichlet law (Ganea et al., ICML 2019,
//! section 5.1).

mod args;
mod command;
mod fit;
mod grid;
mod head;
mod heat_map;
mod truth;

pub use args::SyntheticArgs;
pub use command::run;
