//! Native CPU kernel of the mixed context of a Mixture of Contexts on Burn's Flex backend: one visit of the components'
//! contexts in either direction, token by token.

use burn::backend::Flex;
use highrank_kernels::Floats;
use highrank_kernels::cpu::{Buffer, Real, in_pool, share};
use highrank_kernels::vectorised;
use pulp::Arch;

use super::tensors::{row_major, take, values};

/// Values that a thread takes at a time, at least: some ten microseconds' work.
const BLOCK: usize = 1 << 15;

/// N, K and d.
pub(super) type Sizes = [usize; 3];

/// # Panics
/// If the two tensors are not of the same tokens and components.
fn sizes(prior: &Floats<Flex>, latent: &Floats<Flex>) -> Sizes {
    let ([tokens, components], [rows, features]) = (prior.dims(), latent.dims());
    assert!(
        rows == tokens && features % components == 0,
        "mix: {rows} x {features} for {tokens} x {components}"
    );
    [tokens, components, features / components]
}

/// Tokens that a thread takes at a time.
fn block(components: usize, d: usize) -> usize {
    BLOCK.div_ceil((components * d).max(1))
}

/// [`Kernels::mix`](crate::ops::Kernels::mix) of tensors of type `T`.
pub(super) fn forward<T: Real>(prior: Floats<Flex>, latent: Floats<Flex>) -> Floats<Flex> {
    let sizes = sizes(&prior, &latent);
    let [prior, latent] = [prior, latent].map(row_major);
    let [tokens, _, d] = sizes;
    let mut out = Buffer::<T>::new(tokens * d);
    in_pool(|| mixed(sizes, values(&prior), values(&latent), &mut out));
    Floats::new(out.into_tensor([tokens, d]))
}

/// `h̄` of all tokens, `[N, d]`, from `[N, K]` and `[N, K·d]`.
pub(super) fn mixed<T: Real>([_, components, d]: Sizes, prior: &[T], latent: &[T], out: &mut [T]) {
    let (arch, block) = (Arch::new(), block(components, d));
    let blocks = out.chunks_mut((block * d).max(1)).enumerate();
    share(blocks, |(index, out)| {
        for (n, out) in out.chunks_exact_mut(d).enumerate().map(|(n, out)| (index * block + n, out)) {
            let prior = &prior[n * components..(n + 1) * components];
            let latent = &latent[n * components * d..(n + 1) * components * d];
            vectorised!(arch, |prior: &'a [T], latent: &'a [T], out: &'a mut [T]| {
                out.fill(T::ZERO);
                for (p, context) in prior.iter().zip(latent.chunks_exact(out.len())) {
                    out.iter_mut().zip(context).for_each(|(out, h)| *out = p.mul_add(*h, *out));
                }
            });
        }
    });
}

/// [`Kernels::mix_backward`](crate::ops::Kernels::mix_backward) of tensors of type `T`.
pub(super) fn backward<T: Real>(
    prior: Floats<Flex>,
    latent: Floats<Flex>,
    grad: Floats<Flex>,
    wanted: [bool; 2],
) -> [Option<Floats<Flex>>; 2] {
    let sizes = sizes(&prior, &latent);
    let [prior, latent, grad] = [prior, latent, grad].map(row_major);
    let [tokens, components, d] = sizes;
    let [of_prior, of_latent] = [components, components * d];
    let mut d_prior = wanted[0].then(|| Buffer::<T>::new(tokens * of_prior));
    let mut d_latent = wanted[1].then(|| Buffer::<T>::new(tokens * of_latent));
    let into = [d_prior.as_deref_mut(), d_latent.as_deref_mut()];
    in_pool(|| pull_back(sizes, values(&prior), values(&latent), values(&grad), into));
    let tensor = |values: Option<Buffer<T>>, width| Some(Floats::new(values?.into_tensor([tokens, width])));
    [tensor(d_prior, of_prior), tensor(d_latent, of_latent)]
}

/// Writes the gradients that there is room for, `[N, K]` and `[N, K·d]`, for that of all tokens' `h̄`, `[N, d]`.
pub(super) fn pull_back<T: Real>(
    [tokens, components, d]: Sizes,
    prior: &[T],
    latent: &[T],
    grad: &[T],
    [mut d_prior, mut d_latent]: [Option<&mut [T]>; 2],
) {
    assert_eq!(grad.len(), tokens * d, "mix: values of the gradient");
    let (arch, block) = (Arch::new(), block(components, d));
    let jobs = (0..tokens).step_by(block).map(|first| {
        let d_prior = d_prior.as_mut().map(|all| take(all, block * components));
        (first, d_prior, d_latent.as_mut().map(|all| take(all, block * components * d)))
    });
    share(jobs, |(first, mut d_prior, mut d_latent)| {
        for n in first..tokens.min(first + block) {
            let (grad, prior) = (&grad[n * d..(n + 1) * d], &prior[n * components..(n + 1) * components]);
            let latent = &latent[n * components * d..(n + 1) * components * d];
            let at = (n - first) * components;
            let d_prior = d_prior.as_deref_mut().map(|all| &mut all[at..at + components]);
            let d_latent = d_latent.as_deref_mut().map(|all| &mut all[at * d..(at + components) * d]);
            vectorised!(arch, |prior: &'a [T],
                               latent: &'a [T],
                               grad: &'a [T],
                               d_prior: Option<&'a mut [T]>,
                               d_latent: Option<&'a mut [T]>| {
                if let Some(d_prior) = d_prior {
                    for (out, context) in d_prior.iter_mut().zip(latent.chunks_exact(grad.len())) {
                        *out = dot(grad, context);
                    }
                }
                if let Some(d_latent) = d_latent {
                    for (p, out) in prior.iter().zip(d_latent.chunks_exact_mut(grad.len())) {
                        out.iter_mut().zip(grad).for_each(|(out, g)| *out = *p * *g);
                    }
                }
            });
        }
    });
}

/// `Σ_j a_j b_j`, in lanes so that it is vectorised.
#[inline(always)]
fn dot<T: Real>(a: &[T], b: &[T]) -> T {
    let mut lanes = [T::ZERO; 32];
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<32>(), b.as_chunks::<32>());
    for (a, b) in a.iter().zip(b) {
        for (lane, (a, b)) in lanes.iter_mut().zip(a.iter().zip(b)) {
            *lane = a.mul_add(*b, *lane);
        }
    }
    let whole = lanes.into_iter().fold(T::ZERO, |sum, lane| sum + lane);
    a_rest.iter().zip(b_rest).fold(whole, |sum, (a, b)| a.mul_add(*b, sum))
}
