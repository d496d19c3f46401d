//! Building blocks of the native kernels of [highrank](https://docs.rs/highrank) and of its example models.
//!
//! For crates that bring operations of their own to [Burn](https://burn.dev): an application has no use for it. Nothing here
//! is a Burn module.
//!
//! | module | contents |
//! |---|---|
//! | [`tensor`] | a backend's tensor primitives with operators: what portable formulas are written in |
//! | [`node`] | an operation with a hand-written backward pass, as one node of the autodiff graph |
//! | [`precision`] | matrix products whose inputs are rounded to a stated precision |
//! | `cpu` (feature `flex`) | matrix products on slices, vectorised elementary functions, buffers whose memory is kept |
//! | `gpu` (features `wgpu`, `cuda`) | products of a stated precision, launch sizes, sums in a fixed order, operations inside of fusion |

#[cfg(feature = "flex")]
pub mod cpu;
#[cfg(feature = "gpu")]
pub mod gpu;
mod listed_backends;
pub mod node;
pub mod precision;
mod rounding;
pub mod tensor;

#[cfg(feature = "gpu")]
#[doc(hidden)]
pub use listed_backends::is_tested;
pub use precision::Precision;
pub use rounding::Rounding;
pub use tensor::{Bools, Floats, Ints};
