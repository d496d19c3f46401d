//! The programs of highrank: training, evaluating, analysing and timing language models with high-rank output layers.
//!
//! * [`programs`]: each program from its command line to its exit status;
//! * [`device`]: devices by name, as command lines and run folders write them;
//! * [`workload`]: what benches and throughput programs time.
//!
//! # Features
//!
//! `flex`, `ndarray` (both by default), `wgpu` and `cuda` bring the device of that name; `mpi` lets `mpirun` start training.

// First: its macros are for all modules below.
#[macro_use]
mod print;

mod args;
mod chart;
mod commands;
pub mod device;
mod exit;
pub mod failure;
mod files;
mod interrupt;
mod markdown;
mod picture;
pub mod programs;
mod progress;
mod ranks;
mod sizes;
mod sparkline;
mod statistics;
mod suggestion;
mod timing;
mod training;
pub mod workload;
