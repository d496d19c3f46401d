//! The commands, one file or folder each.

pub mod analysis;
pub mod curves;
pub mod dialog;
pub mod dynamic_eval;
pub mod eval;
pub mod export;
pub mod generate;
pub mod import;
pub mod runs;
pub mod scores;
pub mod sweep;
pub mod train;
pub mod transformer;
