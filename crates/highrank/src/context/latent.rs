//! The latent layer of a mixture as one operation:
//!
//! ```text
//! h = tanh(g·W + b) ∘ mask
//! ```
//!
//! Written in tensor operations its forward and backward pass visit the `[N, K·d]` matrix a dozen times, on most CPU
//! backends on one thread with the tanh of the standard library: a sixth of a Mixture of Softmaxes' time. As one
//! operation it is a product and one visit forward, one visit and two products backward.
//!
//! These are the portable bodies: they run on every backend, and native kernels are checked against them.

use burn::backend::Backend;
use burn::tensor::TensorData;
use highrank_kernels::precision::product;
use highrank_kernels::{Floats, Ints, Rounding};

use crate::ops::{LatentArgs, LatentGradients, LatentMask, LatentWanted};

/// `tanh(g·W + b) ∘ mask`, shape `[N, F]`; differentiable by composition.
pub fn latent<B: Rounding>(args: LatentArgs<Floats<B>>) -> Floats<B> {
    let args = args.widened();
    let product = product(args.hidden, args.weight, args.precision);
    let sum = match args.bias {
        Some(bias) => {
            let features = bias.num_elements();
            product + bias.reshape([1, features])
        }
        None => product,
    };
    let latent = sum.tanh();
    match args.mask {
        Some(mask) => times(latent, mask),
        None => latent,
    }
}

/// Gradients of `Σ grad ∘ h`, where `output` is `h`.
///
/// With `t = h·keep` where a feature is kept, the gradient of the pre-activations is `grad ∘ mask ∘ (1 − t²)`.
pub fn latent_backward<B: Rounding>(
    args: LatentArgs<Floats<B>>,
    output: Floats<B>,
    grad: Floats<B>,
    wanted: LatentWanted,
) -> LatentGradients<Floats<B>> {
    let args = args.widened();
    let keep = args.mask.as_ref().map_or(1.0, |mask| mask.keep);
    let slope = (-output.mul_scalar(keep).square()).add_scalar(1.0);
    let slope = match args.mask {
        Some(mask) => times(slope, mask),
        None => slope,
    };
    let (hidden, weight, precision) = (args.hidden, args.weight, args.precision);
    gradients(hidden, weight, args.bias.is_some(), grad * slope, wanted, |lhs, rhs| {
        product(lhs, rhs, precision)
    })
}

/// The gradients of the inputs for that of the pre-activations.
pub(crate) fn gradients<B: Backend>(
    hidden: Floats<B>,
    weight: Floats<B>,
    bias: bool,
    grad: Floats<B>,
    wanted: LatentWanted,
    product: impl Fn(Floats<B>, Floats<B>) -> Floats<B>,
) -> LatentGradients<Floats<B>> {
    let [_, features] = grad.dims();
    LatentGradients {
        hidden: wanted.hidden.then(|| product(grad.clone(), weight.transpose())),
        weight: wanted.weight.then(|| product(hidden.transpose(), grad.clone())),
        bias: (wanted.bias && bias).then(|| grad.sum_dim(0).reshape([features])),
    }
}

/// Row n of `[N, F]` times its row of the mask.
fn times<B: Backend>(x: Floats<B>, mask: LatentMask<Floats<B>>) -> Floats<B> {
    let ([rows, features], [period, _]) = (x.dims(), mask.values.dims());
    let first = mask.first;
    if mask.rows.is_none() && first.is_multiple_of(period) && rows.is_multiple_of(period) {
        let periods = x.reshape([rows / period, period, features]);
        return (periods * mask.values.reshape([1, period, features])).reshape([rows, features]);
    }
    let chosen = match &mask.rows {
        Some(chosen) => {
            let chosen: Vec<i64> = chosen[first..first + rows].iter().map(|row| i64::from(*row)).collect();
            Ints::<B>::converted(TensorData::new(chosen, [rows]), &x.device())
        }
        None => {
            let first = (first % period) as i64;
            Ints::<B>::arange(first..first + rows as i64, &x.device()).remainder_scalar(period as i64)
        }
    };
    x * mask.values.select(0, chosen)
}
