//! The mixed context of a Mixture of Contexts, `h̄ = Σ_k π_k h_k`.
//!
//! [`mix`] and [`mix_backward`] are the portable bodies: they run on every backend, and native kernels are
//! checked against them.

use burn::backend::Backend;
use highrank_kernels::Floats;

use super::device::is_cpu;

/// `h̄`, shape `[N, d]`, from `π`, `[N, K]`, and `h`, `[N, K·d]`; differentiable by composition.
pub fn mix<B: Backend>(prior: Floats<B>, latent: Floats<B>) -> Floats<B> {
    let [tokens, components, d] = sizes(&prior, &latent);
    let latent = latent.reshape([tokens, components, d]);
    let mixed = match is_cpu::<B>(&prior.device()) {
        // A batch of products of one row: on a CPU the faster form.
        true => prior.reshape([tokens, 1, components]).matmul(latent),
        // Fuses into one kernel and involves no matrix product, so nothing is rounded.
        false => (latent * prior.reshape([tokens, components, 1])).sum_dim(1),
    };
    mixed.reshape([tokens, d])
}

/// Gradients of `Σ grad ∘ h̄`, those that are wanted of `π` and of `h`: `∂π_k = grad · h_k` and `∂h_k = π_k grad`.
pub fn mix_backward<B: Backend>(
    prior: Floats<B>,
    latent: Floats<B>,
    grad: Floats<B>,
    [of_prior, of_latent]: [bool; 2],
) -> [Option<Floats<B>>; 2] {
    let [tokens, components, d] = sizes(&prior, &latent);
    let grad = grad.reshape([tokens, 1, d]);
    let d_prior = of_prior.then(|| {
        let products = latent.reshape([tokens, components, d]) * grad.clone();
        products.sum_dim(2).reshape([tokens, components])
    });
    let d_latent =
        of_latent.then(|| (prior.reshape([tokens, components, 1]) * grad).reshape([tokens, components * d]));
    [d_prior, d_latent]
}

/// N, K and d.
fn sizes<B: Backend>(prior: &Floats<B>, latent: &Floats<B>) -> [usize; 3] {
    let ([tokens, components], [_, features]) = (prior.dims(), latent.dims());
    [tokens, components, features / components]
}
