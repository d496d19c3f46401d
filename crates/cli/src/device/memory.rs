//! How much memory work has needed.

use burn::tensor::Device;

use crate::device::name::DeviceName;

/// Bytes of memory that the work so far has needed on the device called `name`: of a GPU, what is in use and what the
/// runtime has taken; of the CPU, twice the process's largest resident memory. None where it is not known.
pub fn memory_bytes(name: DeviceName, device: &Device) -> Option<(u64, u64)> {
    match name {
        #[cfg(any(feature = "wgpu", feature = "cuda"))]
        DeviceName::Wgpu | DeviceName::Cuda => highrank_kernels::gpu::memory_bytes(device),
        _ => {
            let _ = device;
            resident_peak().map(|bytes| (bytes, bytes))
        }
    }
}

/// The process's largest resident memory so far in bytes, where the system tells (Linux).
fn resident_peak() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kilobytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kilobytes * 1024)
}
