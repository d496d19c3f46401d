//! The latent layer made of Burn's own tensor operations: runs on every backend, and is what native kernels are checked
//! against.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use super::{LatentArgs, LatentGradients, LatentMask, LatentWanted};

/// `tanh(g·W + b) ∘ mask`, shape `[N, F]`; differentiable by composition.
pub fn latent<B: Backend>(args: LatentArgs<B>) -> Tensor<B, 2> {
    let product = args.hidden.matmul(args.weight);
    let sum = match args.bias {
        Some(bias) => product + bias.unsqueeze(),
        None => product,
    };
    let latent = sum.tanh();
    match args.mask {
        Some(mask) => times(latent, mask.values),
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
        Some(LatentMask { values, .. }) => times(slope, values),
        None => slope,
    };
    let grad = grad * slope;
    LatentGradients {
        hidden: wanted.hidden.then(|| grad.clone().matmul(args.weight.transpose())),
        weight: wanted.weight.then(|| args.hidden.transpose().matmul(grad.clone())),
        bias: (wanted.bias && args.bias.is_some()).then(|| grad.sum_dim(0).squeeze_dim(0)),
    }
}

/// Row n of `[N, F]` times row `n mod M` of the mask.
fn times<B: Backend>(x: Tensor<B, 2>, mask: Tensor<B, 2>) -> Tensor<B, 2> {
    let ([rows, features], [period, _]) = (x.dims(), mask.dims());
    let periods = x.reshape([rows / period, period, features]);
    (periods * mask.unsqueeze()).reshape([rows, features])
}
