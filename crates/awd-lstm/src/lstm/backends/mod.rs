//! Which implementation of the operation each backend has, a file each.

mod autodiff;
#[cfg(feature = "gpu")]
mod cube;
#[cfg(feature = "flex")]
mod flex;
#[cfg(feature = "ndarray")]
mod ndarray;

highrank_kernels::listed_backends! {
    /// Whether the backend of a device, with autodiff or without, is among those of [`LstmOps`](super::LstmOps).
    pub(super) fn has_kernels
}
