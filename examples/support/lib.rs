//! What the example programs share: choosing a device, reporting progress, and the commands behind `ptb_mos`.

pub mod ablation;
pub mod analysis;
pub mod args;
pub mod bench_report;
pub mod curves;
pub mod device;
pub mod dynamic_eval;
pub mod eval;
pub mod exit;
pub mod export;
pub mod files;
pub mod finetune;
pub mod generate;
pub mod import;
pub mod interrupt;
pub mod picture;
pub mod progress;
pub mod sizes;
pub mod step_throughput;
pub mod study;
pub mod synthetic;
pub mod text;
pub mod throughput;
pub mod train;
pub mod workload;
