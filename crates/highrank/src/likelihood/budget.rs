//! How much memory a chunk of logits may take.

use burn::backend::DispatchDevice;

/// The least that a head without [`HeadConfig::memory_budget`](crate::HeadConfig::memory_budget) takes for a chunk of
/// logits: 16 MiB.
///
/// Large enough that a chunk's matrix products run at full speed (over 400 rows of a 10,000-word vocabulary in f32),
/// small enough to stay in a last-level cache and that the added memory is mostly the gradients themselves.
pub const DEFAULT_MEMORY_BUDGET: usize = 16 << 20;

/// [`DEFAULT_MEMORY_BUDGET`], or a quarter of the decoder's matrix if that is more: every chunk reads the matrix twice and
/// its gradient once, and for less than that many logits the reading would cost more than the arithmetic.
pub fn default_memory_budget(decoder_bytes: usize) -> usize {
    DEFAULT_MEMORY_BUDGET.max(decoder_bytes / 4)
}

/// The largest logit matrix in bytes that a head without
/// [`HeadConfig::memory_budget`](crate::HeadConfig::memory_budget) makes on a device.
///
/// On a CPU it is [`default_memory_budget`]; on a GPU, cache and memory decide.
pub fn memory_budget(decoder_bytes: usize, device: &DispatchDevice) -> usize {
    let least = default_memory_budget(decoder_bytes);
    match device {
        #[cfg(feature = "gpu")]
        DispatchDevice::Cube(device) => highrank_kernels::gpu::memory_budget(least, device),
        DispatchDevice::Autodiff(device) => memory_budget(decoder_bytes, device),
        // Without any backend's feature there is no other.
        #[allow(unreachable_patterns)]
        _ => least,
    }
}
