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

/// Rows of logits that share the cost of reading the decoder: it is as much for each chunk, however few its rows are.
const ROWS: usize = 256;

/// The most that such rows take where the decoder is small beside them: 128 MiB.
const MOST_FOR_ROWS: usize = 128 << 20;

/// Bytes of 256 rows of logits, but 16 to 128 MiB, or a quarter of the decoder's matrix if that is more. Every chunk reads the matrix twice
/// and its gradient, which has the type of sums, once: for few rows the reading costs more than the arithmetic.
pub(crate) fn default_memory_budget(decoder: &Tensor<2>) -> usize {
    of_decoder(decoder.dims(), wide(decoder.dtype()).size())
}

fn of_decoder([vocab, width]: [usize; 2], bytes: usize) -> usize {
    let row = vocab * bytes;
    (row * ROWS).clamp(DEFAULT_MEMORY_BUDGET, MOST_FOR_ROWS).max(row * width / 4)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_has_256_rows_or_a_quarter_of_the_decoder_within_bounds() {
        let mib = |vocab: usize, width: usize| of_decoder([vocab, width], 4) >> 20;
        assert_eq!(mib(10_000, 280), 16);
        assert_eq!(mib(32_768, 128), 32);
        assert_eq!([1 << 17, 1 << 20].map(|vocab| mib(vocab, 128)), [128; 2]);
        // A quarter of 1, 2 and 4 GiB.
        assert_eq!([2048, 4096, 8192].map(|width| mib(1 << 17, width)), [256, 512, 1024]);
    }
}
