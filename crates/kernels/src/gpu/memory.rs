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
    /// Size of the cache that all its processors share.
    cache: Option<u64>,
    /// Memory that was free when the device was first asked.
    free: Option<u64>,
    /// The largest piece that one allocation may take.
    largest: u64,
}

/// Bytes that a chunk of logits should take on a device: `default` or more, as far as cache and memory allow.
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
            let (cache, free) = of_cuda(device.index);
            return Self { cache, free, largest };
        }
        Self { cache: None, free: None, largest }
    }

    /// A device with much memory has many processors, which small launches leave idle: a chunk takes 1/256 of the memory, and at
    /// least the half of the cache, in which it may still be at every later visit. An eighth of the free memory leaves room for
    /// all else.
    fn budget(&self, default: usize) -> usize {
        let share = self.free.map_or(0, |free| power_of_two_below(free / 256));
        let wanted = (default as u64).max(self.cache.unwrap_or(0) / 2).max(share);
        let room = self.free.map_or(self.largest, |free| self.largest.min(power_of_two_below(free / 8)));
        wanted.min(room).max(1) as usize
    }
}

/// Rounded so that a few bytes taken by other programs do not move the budget.
fn power_of_two_below(x: u64) -> u64 {
    if x == 0 { 0 } else { 1 << x.ilog2() }
}

/// Bytes of the second-level cache and of free memory.
#[cfg(feature = "cuda")]
fn of_cuda(ordinal: usize) -> (Option<u64>, Option<u64>) {
    use cudarc::driver::CudaContext;
    use cudarc::driver::sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE;

    // The context that the runtime itself works in: nothing is made for the question.
    let Ok(context) = CudaContext::new(ordinal) else { return (None, None) };
    let cache = context.attribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE).ok();
    let free = context.mem_get_info().ok().map(|(free, _)| free as u64);
    (cache.and_then(|bytes| u64::try_from(bytes).ok()), free)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_budget_fits_cache_and_memory() {
        let budget =
            |cache, free, largest| Memory { cache, free, largest }.budget((16 * MIB) as usize) as u64;
        assert_eq!(budget(None, None, 1024 * MIB), 16 * MIB, "nothing known: as elsewhere");
        assert_eq!(budget(None, None, 8 * MIB), 8 * MIB, "no more than the device takes at a time");
        assert_eq!(budget(Some(50 * MIB), Some(70_000 * MIB), 20_000 * MIB), 256 * MIB);
        assert_eq!(budget(Some(50 * MIB), Some(6_000 * MIB), 20_000 * MIB), 25 * MIB, "the cache");
        assert_eq!(budget(Some(4 * MIB), Some(4_000 * MIB), 1_000 * MIB), 16 * MIB, "a small cache");
        assert_eq!(budget(Some(50 * MIB), Some(100 * MIB), 1_000 * MIB), 8 * MIB, "hardly any memory");
        assert_eq!(budget(Some(50 * MIB), Some(0), 1_000 * MIB), 1, "a chunk of one token");
    }

    #[test]
    fn a_large_decoder_takes_a_larger_chunk() {
        let memory = Memory { cache: Some(50 * MIB), free: None, largest: 4096 * MIB };
        assert_eq!(memory.budget((200 * MIB) as usize) as u64, 200 * MIB);
    }
}
