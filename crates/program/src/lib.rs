//! What any program here is made of: a command line read, a device opened by its name, work shown while it goes on, results printed
//! and drawn, and an end with one line and a status.
//!
//! * [`start`](mod@start), [`exit`], [`failure`], [`interrupt`], [`ranks`]: from the command line to the exit status, in one process or several;
//! * [`args`]: values on command lines, options of any training, settings by options and by `--set`; [`suggestion`]: what a mistyped one
//!   may have meant;
//! * [`device`]: devices by name, as command lines and run folders write them;
//! * [`files`], [`print`](mod@print), [`statistics`]: what is written, and how numbers look there;
//! * [`progress`], [`sparkline`]: how a training goes, on a terminal; [`picture`], [`chart`]: the same and results as SVG.
//!
//! # Features
//!
//! `flex` (default), `ndarray`, `wgpu` and `cuda` bring the device of that name; `mpi` lets `mpirun` start programs.

// First: its macros are for all modules below.
#[macro_use]
pub mod print;

pub mod args;
pub mod chart;
pub mod device;
pub mod exit;
pub mod failure;
pub mod files;
pub mod interrupt;
pub mod picture;
pub mod progress;
pub mod ranks;
pub mod sparkline;
pub mod start;
pub mod statistics;
pub mod suggestion;

pub use start::{start, start_among};
