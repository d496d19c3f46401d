//! The programs of highrank: training, evaluating, analysing and timing language models with high-rank output layers.
//!
//! * [`programs`]: each program from its command line to its exit status;
//! * [`device`]: devices by name, as command lines and run folders write them.
//!
//! The other modules are what benches and studies share with the programs.
//!
//! # Features
//!
//! `flex`, `ndarray` (both by default), `wgpu` and `cuda` bring the device of that name; `mpi` lets `mpirun` start training.

// First: its macros are for all modules below.
#[macro_use]
pub mod print;

pub mod args;
pub mod chart;
mod commands;
pub mod device;
mod exit;
pub mod failure;
pub mod files;
mod front;
pub mod interrupt;
mod markdown;
pub mod picture;
pub mod programs;
pub mod progress;
mod ranks;
pub mod sizes;
mod sparkline;
pub mod statistics;
mod suggestion;
mod training;
