//! Whether there is a WebGPU or Vulkan adapter, asked so that a machine without any is an answer and not a panic.

use std::sync::OnceLock;

use burn::backend::{CubeDevice, DispatchDevice, WgpuDeviceKind};
use burn::tensor::wgpu::WgpuInitError;
use burn::tensor::{Device, DeviceType};

use crate::failure::Failure;

/// Whether this machine has an adapter that is a GPU, not a software one.
pub fn has_gpu() -> bool {
    Device::enumerate(DeviceType::Wgpu).iter().any(|device| match device.as_dispatch() {
        DispatchDevice::Cube(CubeDevice::Wgpu(adapter)) => adapter.kind != WgpuDeviceKind::Cpu,
        _ => false,
    })
}

/// Opens the default adapter, a software one if there is no other.
///
/// # Errors
/// If there is none, or the one there is refuses.
pub fn open() -> Result<Device, Failure> {
    // The runtime refuses to be set up a second time.
    static OPENED: OnceLock<Result<Device, String>> = OnceLock::new();
    let opened = OPENED.get_or_init(|| {
        Device::wgpu_options().init().map_err(|error| match error {
            WgpuInitError::AdapterUnavailable { .. } => {
                "device `wgpu`: no WebGPU or Vulkan adapter found on this machine".into()
            }
            other => format!("device `wgpu`: {other}"),
        })
    });
    Ok(opened.clone()?)
}
