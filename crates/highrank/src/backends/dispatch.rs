//! The dispatched backend: the portable bodies, composed and differentiable on whatever backend a device brings.

use burn::backend::tensor::Device;
use burn::backend::{Dispatch, DispatchDevice};

use super::portable_kernels::portable_kernels;
use crate::likelihood::default_memory_budget;
use crate::ops::Kernels;

impl Kernels for Dispatch {
    portable_kernels!();

    fn memory_budget(decoder_bytes: usize, device: &Device<Self>) -> usize {
        match device {
            #[cfg(feature = "gpu")]
            DispatchDevice::Cube(device) => {
                <burn::backend::Cube as Kernels>::memory_budget(decoder_bytes, device)
            }
            DispatchDevice::Autodiff(device) => Self::memory_budget(decoder_bytes, device),
            // Without any backend's feature there is no other.
            #[allow(unreachable_patterns)]
            _ => default_memory_budget(decoder_bytes),
        }
    }
}
