//! Whether there is an NVIDIA GPU with its libraries, and what it leaves for the next program.

use std::ffi::{c_int, c_uint};

use burn::tensor::Device;
use cubecl::config::{CubeClRuntimeConfig, RuntimeConfig};
use libloading::{Library, Symbol};

use crate::failure::Failure;

/// Opens the GPU of process `local_rank` of several on this machine.
///
/// # Errors
/// As [`probe`].
pub fn open(local_rank: usize) -> Result<Device, Failure> {
    let gpus = probe()?;
    keep_kernels();
    Ok(Device::cuda(local_rank % gpus))
}

/// Lets the runtime keep the kernels that it compiles beside the choices of its tuner, which it keeps by itself: finding both
/// anew takes minutes. Other settings of a `cubecl.toml` or `burn.toml` stay, such as where that is. Without effect once the
/// runtime has read them.
fn keep_kernels() {
    let mut config = CubeClRuntimeConfig::from_current_dir().override_from_env();
    config.compilation.cache = true;
    CubeClRuntimeConfig::try_set(config);
}

/// Checks that the driver, the run-time compiler and a GPU are there, and returns the number of GPUs. Without them the runtime panics on a thread of its
/// own, where it cannot be caught.
///
/// # Errors
/// The first of them that is missing.
pub fn probe() -> Result<usize, Failure> {
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
    match usize::try_from(count) {
        Ok(count) if count > 0 => Ok(count),
        _ => Err("device `cuda`: the driver finds no GPU".into()),
    }
}
