//! The latent layer made of Burn's own tensor operations: runs on every backend, and is what native kernels are checked
//! against.

use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor};

use super::{LatentArgs, LatentGradients, LatentMask, LatentWanted};
use crate::precision::product;

/// `tanh(g·W + b) ∘ mask`, shape `[N, F]`; differentiable by composition.
pub fn latent<B: Backend>(args: LatentArgs<B>) -> Tensor<B, 2> {
    let product = product(args.hidden, args.weight, args.precision);
    let sum = match args.bias {
        Some(bias) => product + bias.unsqueeze(),
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
pub fn latent_backward<B: Backend>(
    args: LatentArgs<B>,
    output: Tensor<B, 2>,
    grad: Tensor<B, 2>,
    wanted: LatentWanted,
) -> LatentGradients<B> {
    let keep = args.mask.as_ref().map_or(1.0, |mask| mask.keep);
    let tanh = output.mul_scalar(keep);
    let slope = (tanh.clone() * tanh).neg().add_scalar(1.0);
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
pub(super) fn gradients<B: Backend>(
    hidden: Tensor<B, 2>,
    weight: Tensor<B, 2>,
    bias: bool,
    grad: Tensor<B, 2>,
    wanted: LatentWanted,
    product: impl Fn(Tensor<B, 2>, Tensor<B, 2>) -> Tensor<B, 2>,
) -> LatentGradients<B> {
    LatentGradients {
        hidden: wanted.hidden.then(|| product(grad.clone(), weight.transpose())),
        weight: wanted.weight.then(|| product(hidden.transpose(), grad.clone())),
        bias: (wanted.bias && bias).then(|| grad.sum_dim(0).squeeze_dim(0)),
    }
}

/// Row n of `[N, F]` times row `(first + n) mod M` of the mask.
fn times<B: Backend>(x: Tensor<B, 2>, mask: LatentMask<B>) -> Tensor<B, 2> {
    let LatentMask { values, first, .. } = mask;
    let ([rows, features], [period, _]) = (x.dims(), values.dims());
    if first % period == 0 && rows % period == 0 {
        let periods = x.reshape([rows / period, period, features]);
        return (periods * values.unsqueeze()).reshape([rows, features]);
    }
    let first = (first % period) as i64;
    let row = Tensor::<B, 1, Int>::arange(first..first + rows as i64, &x.device());
    x * values.select(0, row.remainder_scalar(period as i64))
}
