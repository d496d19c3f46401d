//! What each backend computes with: one file or folder a backend.
//!
//! | backend | likelihood | of contexts with gates | predictions | latent layer | products |
//! |---|---|---|---|---|---|
//! | Flex | native | native | native | native | native |
//! | CubeCL, in and out of fusion | native | native, gates composed | composed | native | of the stated precision |
//! | NdArray | portable | portable | portable | portable | Burn's |
//! | any other, on the dispatched backend | composed | composed | composed | composed | Burn's |
//!
//! `Autodiff` adds a backward pass written by hand to the first three. An operation goes down through
//!
//! ```text
//! OutputOps of Dispatch      what users' tensors pass through: likelihood/output_ops.rs
//! OutputOps of Autodiff      records the backward pass: autodiff.rs
//! Kernels, LikelihoodKernels of the tensors' backend: flex/mod.rs, cube/mod.rs
//! the portable bodies        where a backend has none of its own: likelihood/portable/, ops/
//! ```

mod autodiff;
#[cfg(feature = "gpu")]
mod cube;
#[cfg(feature = "flex")]
mod flex;
#[cfg(feature = "ndarray")]
mod ndarray;

use burn::backend::Dispatch;

use crate::likelihood::LikelihoodKernels;
use crate::ops::Kernels;

// The portable bodies are differentiable by composition, on whatever backend a device has.
impl Kernels for Dispatch {}

impl LikelihoodKernels for Dispatch {}

#[cfg(all(test, feature = "flex"))]
mod fallback_tests;
#[cfg(all(test, feature = "flex"))]
mod gated_tests;
#[cfg(all(test, feature = "flex"))]
mod latent_tests;
#[cfg(all(test, feature = "flex"))]
mod mix_tests;
#[cfg(all(test, feature = "flex"))]
mod testing;
