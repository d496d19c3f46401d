//! How much memory work has needed, and will need at least.

use burn::tensor::Device;

use crate::device::name::DeviceName;
use crate::failure::Failure;
use crate::statistics::grouped;

/// Refuses to train a model whose weights and gradients alone, 8 bytes a parameter, are more than the machine's memory, where that
/// is known: a CPU could only abort. GPUs say themselves what does not fit.
///
/// # Errors
/// A model that is too large.
pub fn check_room(name: DeviceName, parameters: usize) -> Result<(), Failure> {
    if !matches!(name, DeviceName::Flex | DeviceName::Ndarray) {
        return Ok(());
    }
    let Some(bytes) = kilobytes("/proc/meminfo", "MemTotal:") else { return Ok(()) };
    let needed = (parameters as u64).saturating_mul(8);
    if needed <= bytes {
        return Ok(());
    }
    let [needed, bytes] = [needed, bytes].map(|bytes| format!("{:.1} GB", bytes as f64 / 1e9));
    let parameters = grouped(parameters);
    Err(format!("a model of {parameters} parameters needs {needed} for weights and gradients, but this machine has {bytes} of memory").into())
}

/// Bytes of memory that the work so far has needed on the device called `name`: of a GPU, what is in use and what the
/// runtime has taken; of the CPU, twice the process's largest resident memory. None where it is not known.
pub fn memory_bytes(name: DeviceName, device: &Device) -> Option<(u64, u64)> {
    match name {
        #[cfg(any(feature = "wgpu", feature = "cuda"))]
        DeviceName::Wgpu | DeviceName::Cuda => highrank_kernels::gpu::memory_bytes(device),
        _ => {
            let _ = device;
            kilobytes("/proc/self/status", "VmHWM:").map(|bytes| (bytes, bytes))
        }
    }
}

/// Bytes of a line of kilobytes with this name, where the system has such a file (Linux).
fn kilobytes(file: &str, name: &str) -> Option<u64> {
    let lines = std::fs::read_to_string(file).ok()?;
    let line = lines.lines().find_map(|line| line.strip_prefix(name))?;
    let kilobytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kilobytes * 1024)
}
