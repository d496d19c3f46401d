//! The commands, one file or folder each.

pub mod analysis;
pub mod bench_report;
pub mod curves;
pub mod dialog;
pub mod dynamic_eval;
pub mod eval;
pub mod export;
pub mod finetune;
pub mod generate;
pub mod head_throughput;
pub mod import;
pub mod runs;
pub mod slowdown;
pub mod step_throughput;
pub mod study;
pub mod sweep;
pub mod synthetic;
pub mod theorems;
pub mod train;
pub mod transformer;
