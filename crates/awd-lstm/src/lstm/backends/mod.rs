//! Which implementation of the operation each backend has, a file each.

mod autodiff;
#[cfg(feature = "gpu")]
mod cube;
#[cfg(feature = "flex")]
mod flex;
#[cfg(feature = "ndarray")]
mod ndarray;

use burn::backend::DispatchDevice;

/// Whether the backend of a device, with autodiff or without, is among those of [`LstmOps`](super::LstmOps).
pub(super) fn has_kernels(device: &DispatchDevice) -> bool {
    match device {
        #[cfg(feature = "flex")]
        DispatchDevice::Flex(_) => true,
        #[cfg(feature = "ndarray")]
        DispatchDevice::NdArray(_) => true,
        #[cfg(feature = "gpu")]
        DispatchDevice::Cube(_) => true,
        DispatchDevice::Autodiff(device) => has_kernels(device),
        #[allow(unreachable_patterns)] // Where these are all the backends that Burn was built with.
        _ => false,
    }
}
