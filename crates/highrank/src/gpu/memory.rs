//! How much of a device's memory is in use, and how much of it a chunk of logits should take.

use std::any::TypeId;
use std::collections::HashMap;
use std::sync::{Mutex, OnceLock};

use burn_cubecl::CubeRuntime;
use cubecl::device::{Device, DeviceId};

use crate::likelihood::default_memory_budget;

/// Bytes of device memory that are in use, and that the runtime has taken for itself, padding and spare room included.
///
/// Waits for the device. None if it does not tell.
pub fn memory_bytes<R: CubeRuntime>(device: &R::CubeDevice) -> Option<(u64, u64)> {
    let usage = R::client(device).memory_usage().ok()?;
    Some((usage.bytes_in_use, usage.bytes_reserved))
}

/// What is known of a device's memory, in bytes.
#[derive(Clone, Copy, Debug)]
struct Memory {
    /// Size of the cache that all its processors share.
    cache: Option<u64>,
    /// Memory that nobody had taken when it was first asked.
    free: Option<u64>,
    /// The largest piece that may be taken at a time.
    largest: u64,
}

/// [`LikelihoodBackend::memory_budget`](crate::LikelihoodBackend::memory_budget) of a device.
///
/// What the device says is asked once a process: a budget that changed from step to step would change the order of sums.
pub(crate) fn memory_budget<R: CubeRuntime>(decoder_bytes: usize, device: &R::CubeDevice) -> usize {
    static KNOWN: OnceLock<Mutex<HashMap<(TypeId, DeviceId), Memory>>> = OnceLock::new();
    let mut known = KNOWN.get_or_init(Mutex::default).lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let memory = known.entry((TypeId::of::<R>(), device.to_id())).or_insert_with(|| Memory::of::<R>(device));
    memory.budget(decoder_bytes)
}

impl Memory {
    fn of<R: CubeRuntime>(device: &R::CubeDevice) -> Self {
        let largest = R::client(device).properties().memory.max_page_size;
        #[cfg(feature = "cuda")]
        if TypeId::of::<R>() == TypeId::of::<cubecl::cuda::CudaRuntime>() {
            let (cache, free) = of_cuda(device.to_id().index_id.into());
            return Self { cache, free, largest };
        }
        Self { cache: None, free: None, largest }
    }

    /// Every visit of a chunk but the first may find it in the cache if it takes no more than half of that, and launches are
    /// then as large as they can be. An eighth of the free memory leaves room for all else.
    fn budget(&self, decoder_bytes: usize) -> usize {
        let wanted = (default_memory_budget(decoder_bytes) as u64).max(self.cache.unwrap_or(0) / 2);
        let room = self.free.map_or(self.largest, |free| self.largest.min(power_of_two_below(free / 8)));
        wanted.min(room).max(1) as usize
    }
}

/// So that the last few bytes that others have taken do not move the budget.
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
        let budget = |cache, free, largest| Memory { cache, free, largest }.budget(4 << 20) as u64;
        assert_eq!(budget(None, None, 1024 * MIB), 16 * MIB, "nothing known: as elsewhere");
        assert_eq!(budget(None, None, 8 * MIB), 8 * MIB, "no more than the device takes at a time");
        assert_eq!(budget(Some(50 * MIB), Some(70_000 * MIB), 20_000 * MIB), 25 * MIB);
        assert_eq!(budget(Some(4 * MIB), Some(4_000 * MIB), 1_000 * MIB), 16 * MIB, "a small cache");
        assert_eq!(budget(Some(50 * MIB), Some(100 * MIB), 1_000 * MIB), 8 * MIB, "hardly any memory");
        assert_eq!(budget(Some(50 * MIB), Some(0), 1_000 * MIB), 1, "a chunk of one token");
    }

    #[test]
    fn a_large_decoder_takes_a_larger_chunk() {
        let memory = Memory { cache: Some(50 * MIB), free: None, largest: 4096 * MIB };
        assert_eq!(memory.budget((800 * MIB) as usize) as u64, 200 * MIB);
    }
}
