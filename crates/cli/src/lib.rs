//! The programs of highrank: training, evaluating, analysing and timing language models with high-rank output layers.
//!
//! [`programs`] has each of them, from its command line to its exit status.
//!
//! # Features
//!
//! `flex` (by default), `ndarray`, `wgpu` and `cuda` bring the device of that name; `mpi` lets `mpirun` start training.

// Its macros are for all modules below.
#[macro_use]
extern crate program;

mod args;
mod commands;
mod front;
pub mod programs;
mod training;
