//! From a name to a device.

use burn::tensor::Device;

#[cfg(feature = "cuda")]
use crate::device::cuda;
use crate::device::name::{DeviceChoice, DeviceName};
#[cfg(feature = "wgpu")]
use crate::device::wgpu;
use crate::failure::Failure;

/// The device that a command line asks for; of `auto`, the fastest one that is there.
pub fn resolve(choice: DeviceChoice) -> DeviceName {
    match choice {
        DeviceChoice::Auto => fastest(),
        DeviceChoice::Named(device) => device,
    }
}

/// A CPU if this program was built with one, else the fastest device: for small work, such as to count weights.
pub fn cpu_or_fastest() -> DeviceName {
    [DeviceName::Flex, DeviceName::Ndarray]
        .into_iter()
        .find(|device| device.is_built_in())
        .unwrap_or_else(fastest)
}

/// CUDA with a GPU, else WebGPU or Vulkan with a GPU (a software adapter is slower than the CPU devices), else Flex,
/// else NdArray.
fn fastest() -> DeviceName {
    [DeviceName::Cuda, DeviceName::Wgpu, DeviceName::Flex, DeviceName::Ndarray]
        .into_iter()
        .find(|device| device.is_built_in() && is_there(*device))
        // Built for GPUs alone: opening such a device says what this machine lacks.
        .or_else(|| DeviceName::ALL.into_iter().find(|device| device.is_built_in()))
        .unwrap_or(DeviceName::Flex)
}

/// Whether this machine has a device, of those that this program was built with.
fn is_there(device: DeviceName) -> bool {
    match device {
        DeviceName::Flex | DeviceName::Ndarray => true,
        #[cfg(feature = "wgpu")]
        DeviceName::Wgpu => wgpu::has_gpu(),
        #[cfg(feature = "cuda")]
        DeviceName::Cuda => cuda::probe().is_ok(),
        #[cfg(not(all(feature = "wgpu", feature = "cuda")))]
        _ => false,
    }
}

/// Opens the device called `name`; training wants it with [`Device::autodiff`].
///
/// # Errors
/// If the program was built without that device, or if the machine lacks it.
pub fn open(name: DeviceName) -> Result<Device, Failure> {
    open_at(name, 0)
}

/// As [`open`] for process `local_rank` of several on this machine, each of which has a CUDA GPU of its own as far as there are enough.
///
/// # Errors
/// As [`open`].
// CPUs and adapters of WebGPU are shared.
#[cfg_attr(not(feature = "cuda"), allow(unused_variables))]
pub fn open_at(name: DeviceName, local_rank: usize) -> Result<Device, Failure> {
    match name {
        #[cfg(feature = "flex")]
        DeviceName::Flex => Ok(Device::flex()),
        #[cfg(feature = "ndarray")]
        DeviceName::Ndarray => {
            #[allow(deprecated, reason = "Burn has this backend until 0.23, and so have the programs")]
            let device = Device::ndarray();
            Ok(device)
        }
        #[cfg(feature = "wgpu")]
        DeviceName::Wgpu => wgpu::open(),
        #[cfg(feature = "cuda")]
        DeviceName::Cuda => cuda::open(local_rank),
        #[cfg(not(all(feature = "flex", feature = "ndarray", feature = "wgpu", feature = "cuda")))]
        _ => Err(format!(
            "this program was built without the device `{name}`; build it with `--features {name}`"
        )
        .into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_is_named_is_taken_as_it_is() {
        for device in DeviceName::ALL {
            assert_eq!(resolve(DeviceChoice::Named(device)), device);
        }
    }

    #[test]
    fn without_a_gpu_runtime_auto_is_a_cpu() {
        if !DeviceName::Wgpu.is_built_in() && !DeviceName::Cuda.is_built_in() {
            assert_eq!(resolve(DeviceChoice::Auto), cpu_or_fastest());
        }
        // Whatever is chosen can be opened.
        open(resolve(DeviceChoice::Auto)).unwrap();
    }

    #[test]
    fn a_device_that_is_not_built_in_names_its_feature() {
        for device in DeviceName::ALL.into_iter().filter(|device| !device.is_built_in()) {
            let message = open(device).unwrap_err().to_string();
            assert!(message.contains(&format!("`--features {device}`")), "{message}");
        }
    }
}
