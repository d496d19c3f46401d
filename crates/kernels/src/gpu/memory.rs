//! How much of a device's memory is in use, and how much of it a chunk of logits should take.

use std::collections::HashMap;
use std::sync::{Mutex, OnceLock};

use burn::tensor::Device;
use burn_cubecl::CubeDevice;

/// Bytes of device memory that are in use, and that the runtime has taken for itself, padding and spare room included.
///
/// Runs what fusion has queued. `None` if the device does not tell, as those of CPU backends.
pub fn memory_bytes(device: &Device) -> Option<(u64, u64)> {
    let usage = device.memory_pool_usage()?;
    Some((usage.bytes_in_use, usage.bytes_reserved))
}

/// What is known of a device's memory, in bytes.
#[derive(Clone, Copy, Debug)]
struct Memory {
    /// All memory, and that which was free when the device was first asked.
    total_and_free: Option<(u64, u64)>,
    /// The largest piece that one allocation may take.
    largest: u64,
}

/// Bytes that a chunk of logits should take on a device: `default` or more, as far as memory allows.
///
/// The device is asked once a process: a budget that changed from step to step would change the order of sums.
pub fn memory_budget(default: usize, device: &CubeDevice) -> usize {
    static KNOWN: OnceLock<Mutex<HashMap<CubeDevice, Memory>>> = OnceLock::new();
    let mut known = KNOWN.get_or_init(Mutex::default).lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let memory = known.entry(device.clone()).or_insert_with(|| Memory::of(device));
    memory.budget(default)
}

impl Memory {
    fn of(device: &CubeDevice) -> Self {
        let largest = device.client().properties().memory.max_page_size;
        #[cfg(feature = "cuda")]
        if let CubeDevice::Cuda(device) = device {
            return Self { total_and_free: of_cuda(device.index), largest };
        }
        Self { total_and_free: None, largest }
    }

    /// A device with much memory has many processors, which small launches leave idle: a chunk takes 1/256 of all memory. That depends
    /// on the device alone, and so do the bits of sums over chunks. Only where it is more than an eighth of what is free, which leaves
    /// room for all else, does a chunk take less.
    fn budget(&self, default: usize) -> usize {
        let share = self.total_and_free.map_or(0, |(total, _)| power_of_two_below(total / 256));
        let wanted = (default as u64).max(share).min(self.largest);
        let fits = match self.total_and_free {
            Some((_, free)) if wanted > free / 8 => power_of_two_below(free / 8),
            _ => wanted,
        };
        fits.max(1) as usize
    }
}

/// Rounded so that a few bytes more or less do not move the budget.
fn power_of_two_below(x: u64) -> u64 {
    if x == 0 { 0 } else { 1 << x.ilog2() }
}

/// Bytes of all memory, and of what is free of it.
#[cfg(feature = "cuda")]
fn of_cuda(ordinal: usize) -> Option<(u64, u64)> {
    // The context that the runtime itself works in: nothing is made for the question.
    let (free, total) = cudarc::driver::CudaContext::new(ordinal).ok()?.mem_get_info().ok()?;
    Some((total as u64, free as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_budget_fits_the_memory() {
        let budget_from = |least: u64, total_and_free, largest| {
            Memory { total_and_free, largest }.budget((least * MIB) as usize) as u64
        };
        let budget = |total_and_free, largest| budget_from(16, total_and_free, largest);
        let memory = |total, free| Some((total * MIB, free * MIB));
        assert_eq!(budget(None, 1024 * MIB), 16 * MIB, "nothing known: as elsewhere");
        assert_eq!(budget(None, 8 * MIB), 8 * MIB, "no more than the device takes at a time");
        let of_80_gb = |free| budget(memory(81_000, free), 20_000 * MIB);
        assert_eq!([80_000, 33_000, 2_048].map(of_80_gb), [256 * MIB; 3], "whatever else the device holds");
        assert_eq!(of_80_gb(2_047), 128 * MIB, "unless there is no room");
        assert_eq!(budget(memory(4_000, 3_000), 1_000 * MIB), 16 * MIB, "little memory");
        assert_eq!(budget(memory(80_000, 100), 1_000 * MIB), 8 * MIB, "hardly any room");
        assert_eq!(budget(memory(80_000, 0), 1_000 * MIB), 1, "a chunk of one token");
        assert_eq!(budget_from(200, None, 4096 * MIB), 200 * MIB, "a large decoder takes a larger chunk");
    }
}
