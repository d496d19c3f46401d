//! Single parameters of a packed vector.

use burn::backend::Backend;
use highrank_kernels::Floats;

/// Element `i` of a vector as a `[1, 1]` matrix, which broadcasts over logits.
pub(super) fn element<B: Backend>(params: &Floats<B>, i: usize) -> Floats<B> {
    params.clone().rows(i..i + 1).reshape([1, 1])
}
