//! How much memory a chunk of logits may take.

use burn::backend::DispatchDevice;
use burn::tensor::Tensor;

use crate::ops::wide;

/// The least that a head without [`HeadConfig::memory_budget`](crate::HeadConfig::memory_budget) takes for a chunk of
/// logits: 16 MiB.
///
/// Large enough that a chunk's matrix products run at full speed (over 400 rows of a 10,000-word vocabulary in f32),
/// small enough to stay in a last-level cache and that the added memory is mostly the gradients themselves.
pub const DEFAULT_MEMORY_BUDGET: usize = 16 << 20;

/// [`DEFAULT_MEMORY_BUDGET`], or a quarter of the decoder's matrix if that is more: every chunk reads the matrix twice and
/// its gradient, which has the type of sums, once, and for less than that many logits the reading would cost more than the
/// arithmetic.
pub(crate) fn default_memory_budget(decoder: &Tensor<2>) -> usize {
    let bytes = decoder.shape().num_elements() * wide(decoder.dtype()).size();
    DEFAULT_MEMORY_BUDGET.max(bytes / 4)
}

/// The largest logit matrix in bytes that a head without
/// [`HeadConfig::memory_budget`](crate::HeadConfig::memory_budget) makes on the device of its decoder.
///
/// On a CPU it is [`default_memory_budget`]; on a GPU, its memory decides.
pub(crate) fn memory_budget(decoder: &Tensor<2>) -> usize {
    on_device(default_memory_budget(decoder), decoder.device().as_dispatch())
}

fn on_device(least: usize, device: &DispatchDevice) -> usize {
    match device {
        #[cfg(feature = "gpu")]
        DispatchDevice::Cube(device) => highrank_kernels::gpu::memory_budget(least, device),
        DispatchDevice::Autodiff(device) => on_device(least, device),
        // Without any backend's feature there is no other.
        #[allow(unreachable_patterns)]
        _ => least,
    }
}
