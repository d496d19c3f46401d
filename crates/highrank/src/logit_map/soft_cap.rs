//! Soft cap: logits squeezed smoothly into `(−cap, cap)`.

use burn::backend::Backend;
use burn::module::Module;
use highrank_kernels::Floats;

/// The soft cap `f(z) = cap · tanh(z / cap)`, without parameters.
///
/// Keeps logits within `(−cap, cap)`, as the output layers of several recent language models do
/// (Gemma Team, *Gemma 2*, 2024, section 2), and bends them enough to lift the rank bound.
#[derive(Module, Debug)]
pub struct SoftCap {
    /// Largest magnitude of a mapped logit.
    pub cap: f64,
}

// Multiplied by 1/cap: the derivative of Burn's `div_scalar` rounds the divisor to f32.
pub(super) fn apply<B: Backend>(z: Floats<B>, cap: f64) -> Floats<B> {
    z.mul_scalar(1.0 / cap).tanh().mul_scalar(cap)
}

/// `f'(z) = 1 − tanh²(z / cap)`.
pub(super) fn vjp<B: Backend>(z: Floats<B>, cap: f64, g: Floats<B>) -> Floats<B> {
    g * (-z.mul_scalar(1.0 / cap).tanh().square()).add_scalar(1.0)
}
