//! Mapped logits on the device: bias, [logit map](crate::logit_map), temperature, masked words.

use cubecl::prelude::*;

use super::reduce::LOWEST;
use crate::logit_map::kernels::{apply, slope};
use crate::logit_map::{GpuMap, MapNumbers};
use crate::ops;

/// What kernels of mapped logits are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Form {
    pub(super) map: GpuMap,
    /// Whether there is a bias, and with it there may be masked words.
    pub(super) bias: bool,
    /// Whether mapped logits are divided by a temperature other than 1.
    pub(super) temperature: bool,
}

/// Numbers that no kernel is compiled for.
#[derive(Clone, Copy, Debug, CubeType, CubeLaunch)]
pub(super) struct Numbers {
    /// The map's.
    pub(super) map: MapNumbers,
    /// τ.
    pub(super) temperature: f32,
    /// Not a number: what a word outside of the vocabulary makes of its token. GPU languages cannot write it down.
    pub(super) nan: f32,
    /// The loss of a masked word, which they cannot write down either.
    pub(super) infinity: f32,
}

/// See [`ops::MASKING_BIAS`].
const MASKING_BIAS: f32 = ops::MASKING_BIAS as f32;

/// Whether a log-probability, or the largest logit of a row, is [`LOWEST`]: that of nothing but masked words. `LOWEST` itself,
/// minus something, is as low.
#[cube]
pub(super) fn is_of_masked(log_prob: f32) -> bool {
    log_prob <= MASKING_BIAS
}

/// A word's bias. It comes after the map's table in the memory that both share, since a device binds few buffers to a kernel.
#[cube]
fn bias(constants: &[f32], word: usize, numbers: &Numbers) -> f32 {
    constants[2 * numbers.map.pieces as usize + word]
}

/// Whether a word is masked.
#[cube]
pub(super) fn is_masked(constants: &[f32], word: usize, numbers: &Numbers, #[comptime] form: Form) -> bool {
    if comptime!(form.bias) { bias(constants, word, numbers) <= MASKING_BIAS } else { false.runtime() }
}

/// `z` of a word that is not masked: the product, and the bias where there is one.
#[cube]
pub(super) fn logit(
    product: f32,
    constants: &[f32],
    word: usize,
    numbers: &Numbers,
    #[comptime] form: Form,
) -> f32 {
    if comptime!(form.bias) { product + bias(constants, word, numbers) } else { product }
}

/// `f(z)/τ`.
#[cube]
pub(super) fn mapped(z: f32, constants: &[f32], numbers: &Numbers, #[comptime] form: Form) -> f32 {
    let y = apply(z, constants, &numbers.map, form.map);
    if comptime!(form.temperature) { y / numbers.temperature } else { y }
}

/// `log p_k(v)` of a row's word, [`LOWEST`] if it is masked.
///
/// - max, log_sum: of the row
#[cube]
#[allow(clippy::too_many_arguments)]
pub(super) fn log_prob_of_word(
    product: f32,
    constants: &[f32],
    word: usize,
    max: f32,
    log_sum: f32,
    numbers: &Numbers,
    #[comptime] form: Form,
) -> f32 {
    if comptime!(form.bias) {
        let mut log_prob = LOWEST.runtime();
        if !is_masked(constants, word, numbers, form) {
            let z = logit(product, constants, word, numbers, form);
            log_prob = mapped(z, constants, numbers, form) - max - log_sum;
        }
        log_prob
    } else {
        mapped(product, constants, numbers, form) - max - log_sum
    }
}

/// `∂(f(z)/τ)/∂z`.
#[cube]
pub(super) fn mapped_slope(z: f32, constants: &[f32], numbers: &Numbers, #[comptime] form: Form) -> f32 {
    let y = slope(z, constants, &numbers.map, form.map);
    if comptime!(form.temperature) { y / numbers.temperature } else { y }
}
