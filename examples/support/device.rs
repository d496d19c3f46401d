//! Devices by name, and running a task on the backend that a name stands for.

use std::fmt;
use std::str::FromStr;

use awd_lstm::{Error, LmBackend};
use burn::tensor::backend::AutodiffBackend;

use crate::exit::Failure;

/// A device that the programs can train on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceName {
    /// The CPU, through Burn's Flex backend.
    Flex,
    /// The CPU, through Burn's NdArray backend.
    Ndarray,
    /// A GPU through WebGPU or Vulkan.
    Wgpu,
    /// An NVIDIA GPU.
    Cuda,
}

impl DeviceName {
    const ALL: [Self; 4] = [Self::Flex, Self::Ndarray, Self::Wgpu, Self::Cuda];

    /// A CPU device that this program was built with, Flex if none was: for work that computes nothing.
    pub fn any_cpu() -> Self {
        if cfg!(all(feature = "ndarray", not(feature = "flex"))) { Self::Ndarray } else { Self::Flex }
    }

    /// The name on command lines, which is also the name of the Cargo feature that brings it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Flex => "flex",
            Self::Ndarray => "ndarray",
            Self::Wgpu => "wgpu",
            Self::Cuda => "cuda",
        }
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for DeviceName {
    type Err = Error;

    /// Parses a device's name; `cpu` is another word for `flex`.
    fn from_str(text: &str) -> Result<Self, Error> {
        if text == "cpu" {
            return Ok(Self::Flex);
        }
        Self::ALL.into_iter().find(|device| device.name() == text).ok_or_else(|| {
            let mut known = Self::ALL.map(Self::name).to_vec();
            known.push("cpu (the same as flex)");
            Error::unknown_name("device", text, &known)
        })
    }
}

/// Work that runs on any backend.
pub trait Task {
    /// What it comes to.
    type Output;

    /// Does the work on `device`.
    ///
    /// # Errors
    /// Whatever goes wrong, as one line.
    fn run<B>(self, device: B::Device) -> Result<Self::Output, Failure>
    where
        B: AutodiffBackend + LmBackend,
        B::InnerBackend: LmBackend;
}

/// Runs `task` on the device called `name`.
///
/// # Errors
/// If the program was built without that device, if the machine lacks it, or whatever the task says.
pub fn on_device<T: Task>(name: DeviceName, task: T) -> Result<T::Output, Failure> {
    match name {
        #[cfg(feature = "flex")]
        DeviceName::Flex => task.run::<burn::backend::Autodiff<burn::backend::Flex>>(Default::default()),
        #[cfg(feature = "ndarray")]
        DeviceName::Ndarray => {
            task.run::<burn::backend::Autodiff<burn::backend::NdArray>>(Default::default())
        }
        #[cfg(feature = "wgpu")]
        DeviceName::Wgpu => {
            probe_wgpu()?;
            task.run::<burn::backend::Autodiff<burn::backend::Wgpu>>(Default::default())
        }
        #[cfg(feature = "cuda")]
        DeviceName::Cuda => {
            probe_cuda()?;
            task.run::<burn::backend::Autodiff<burn::backend::Cuda>>(Default::default())
        }
        #[cfg(not(all(feature = "flex", feature = "ndarray", feature = "wgpu", feature = "cuda")))]
        _ => Err(format!(
            "this program was built without the device `{name}`; build it with `--features {name}`"
        )
        .into()),
    }
}

/// Bytes of memory that the work so far has needed on a device: of a GPU, what is in use and what the runtime has taken; of
/// the CPU, twice the process's largest resident memory. None where it is not known.
pub fn memory_bytes(name: DeviceName) -> Option<(u64, u64)> {
    match name {
        #[cfg(feature = "wgpu")]
        DeviceName::Wgpu => highrank::gpu::memory_bytes::<highrank::gpu::WgpuRuntime>(&Default::default()),
        #[cfg(feature = "cuda")]
        DeviceName::Cuda => highrank::gpu::memory_bytes::<highrank::gpu::CudaRuntime>(&Default::default()),
        _ => resident_peak().map(|bytes| (bytes, bytes)),
    }
}

/// The process's largest resident memory so far in bytes, where the system tells (Linux).
fn resident_peak() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kilobytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kilobytes * 1024)
}

/// Whether there is a WebGPU adapter. The runtime panics without one, on this thread.
#[cfg(feature = "wgpu")]
fn probe_wgpu() -> Result<(), Failure> {
    use burn::backend::wgpu::{WgpuDevice, graphics::AutoGraphicsApi, init_setup};

    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let found = std::panic::catch_unwind(|| {
        init_setup::<AutoGraphicsApi>(&WgpuDevice::default(), Default::default());
    });
    std::panic::set_hook(hook);
    found.map_err(|_| "device `wgpu`: no WebGPU or Vulkan adapter found on this machine".into())
}

/// Whether the CUDA driver and compiler libraries and a GPU are there. Without them the runtime panics on a
/// thread of its own, where it cannot be caught.
#[cfg(feature = "cuda")]
fn probe_cuda() -> Result<(), Failure> {
    use libloading::{Library, Symbol};
    use std::ffi::{c_int, c_uint};

    let (drivers, compilers): (&[&str], &[&str]) = if cfg!(windows) {
        (&["nvcuda.dll"], &["nvrtc64_130_0.dll", "nvrtc64_120_0.dll", "nvrtc.dll"])
    } else {
        (
            &["libcuda.so.1", "libcuda.so"],
            &["libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11"],
        )
    };
    // SAFETY: loading these libraries runs their initialisers only; they are made to be loaded so.
    let open = |names: &[&str]| names.iter().find_map(|name| unsafe { Library::new(*name) }.ok());
    let driver = open(drivers)
        .ok_or_else(|| format!("device `cuda`: the driver library {} was not found", drivers[0]))?;
    if open(compilers).is_none() {
        return Err(format!("device `cuda`: the run-time compiler {} was not found", compilers[0]).into());
    }
    // SAFETY: both functions have had these signatures since the first version of the driver interface, and
    // the library outlives the symbols.
    let (status, count) = unsafe {
        let init: Symbol<unsafe extern "C" fn(c_uint) -> c_int> = driver.get(b"cuInit\0")?;
        let count_devices: Symbol<unsafe extern "C" fn(*mut c_int) -> c_int> =
            driver.get(b"cuDeviceGetCount\0")?;
        let mut count = 0;
        let status = match init(0) {
            0 => count_devices(&mut count),
            failed => failed,
        };
        (status, count)
    };
    if status != 0 {
        return Err(format!("device `cuda`: the driver reports error {status}").into());
    }
    if count == 0 {
        return Err("device `cuda`: the driver finds no GPU".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for device in DeviceName::ALL {
            assert_eq!(device.to_string().parse::<DeviceName>().unwrap(), device);
        }
        assert_eq!("cpu".parse::<DeviceName>().unwrap(), DeviceName::Flex);
        let message = "gpu".parse::<DeviceName>().unwrap_err().to_string();
        assert!(message.contains("`gpu`") && message.contains("flex, ndarray, wgpu, cuda"), "{message}");
    }
}
