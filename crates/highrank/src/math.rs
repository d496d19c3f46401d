//! The few stable scalar formulas that every head shares, as Burn operations.
//!
//! Burn's own `softplus` overflows above 88 in f32 and loses every digit below −17; these do not.

use burn::tensor::backend::Backend;
use burn::tensor::{DType, Tensor};

/// `softplus(x) = log(1 + e^x)`, exact over the whole range, with a correct gradient at 0. For parameters: large tensors
/// have [`log_sigmoid`].
pub(crate) fn softplus<B: Backend, const D: usize>(x: Tensor<B, D>) -> Tensor<B, D> {
    softplus_by(x, |e| match e.dtype() {
        DType::F64 => e.log1p(),
        _ => log1p_series(e),
    })
}

/// `log sigmoid(x) = −softplus(−x)`, to the rounding unit of 1 at least.
pub(crate) fn log_sigmoid<B: Backend, const D: usize>(x: Tensor<B, D>) -> Tensor<B, D> {
    softplus_by(x.neg(), Tensor::log1p).neg()
}

/// Written as `m x + log1p(e^{−s x})` with the constants `m = [x ≥ 0]` and `s = 2m − 1`. Spelt with a clamp and an
/// absolute value, the automatic derivative would be wrong at 0 and lose all digits far below it.
fn softplus_by<B: Backend, const D: usize>(
    x: Tensor<B, D>,
    log1p: impl Fn(Tensor<B, D>) -> Tensor<B, D>,
) -> Tensor<B, D> {
    let positive = x.clone().detach().greater_equal_elem(0.0);
    let m = x.zeros_like().mask_fill(positive, 1.0);
    let minus_s = m.clone().mul_scalar(-2.0).add_scalar(1.0);
    m * x.clone() + log1p((minus_s * x).exp())
}

/// `log(1 + e)` for `0 ≤ e ≤ 1` as `2 artanh(e / (2 + e))`, its series to the rounding unit of f32.
///
/// WebGPU has no `log1p`: backends compute `log(1 + e)` there, and a small `e` loses all its digits.
fn log1p_series<B: Backend, const D: usize>(e: Tensor<B, D>) -> Tensor<B, D> {
    let s = e.clone() / e.add_scalar(2.0);
    let square = s.clone() * s.clone();
    let series = (0..8).rev().fold(s.zeros_like(), |sum, k| sum * square.clone() + 2.0 / (2 * k + 1) as f64);
    s * series
}

/// `sigmoid(x) = e^{log sigmoid(x)}`, in the tensor's own precision.
///
/// Burn's `activation::sigmoid` computes in f32 for f64 tensors of some backends.
pub(crate) fn sigmoid<B: Backend, const D: usize>(x: Tensor<B, D>) -> Tensor<B, D> {
    log_sigmoid(x).exp()
}

/// `log Σ_j e^{x_j}` over the last dimension, kept with size 1.
pub(crate) fn log_sum_exp<B: Backend, const D: usize>(x: Tensor<B, D>) -> Tensor<B, D> {
    log_sum_exp_dim(x, D - 1)
}

/// `log Σ_j e^{x_j}` over dimension `dim`, kept with size 1. The maximum is a constant of the gradient.
pub(crate) fn log_sum_exp_dim<B: Backend, const D: usize>(x: Tensor<B, D>, dim: usize) -> Tensor<B, D> {
    let max = x.clone().detach().max_dim(dim);
    (x - max.clone()).exp().sum_dim(dim).log() + max
}

/// `x − log Σ_j e^{x_j}` over the last dimension.
pub(crate) fn log_softmax<B: Backend, const D: usize>(x: Tensor<B, D>) -> Tensor<B, D> {
    let lse = log_sum_exp(x.clone());
    x - lse
}

/// Exclusive running sum `y_i = Σ_{j<i} x_j` of a vector, accurate for a million terms in f32.
///
/// A plain running sum of P terms rounds P times; two levels of about √P terms each round 2√P times.
pub(crate) fn exclusive_cumsum<B: Backend>(x: Tensor<B, 1>) -> Tensor<B, 1> {
    let [len] = x.dims();
    let width = (len as f64).sqrt().ceil() as usize;
    let height = len.div_ceil(width);
    let options = (&x.device(), x.dtype());
    let padded = match height * width - len {
        0 => x,
        padding => Tensor::cat(vec![x, Tensor::zeros([padding], options)], 0),
    };
    let blocks = padded.reshape([height, width]);
    let inclusive = blocks.clone().cumsum(1);
    let totals = blocks.clone().sum_dim(1);
    let before = totals.clone().cumsum(0) - totals;
    (inclusive - blocks + before).reshape([height * width]).slice(0..len)
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use super::*;
    use burn::backend::{Autodiff, Flex};
    use burn::tensor::{DType, TensorData};

    type B = Autodiff<Flex>;

    #[test]
    fn softplus_keeps_relative_precision_at_both_ends() {
        let x = Tensor::<B, 1>::from_data([-60.0f32, -20.0, 0.0, 20.0, 1e4], &Default::default());
        let y = softplus(x).into_data().to_vec::<f32>().unwrap();
        let want = [(-60f64).exp(), (-20f64).exp(), 2f64.ln(), 20.0 + (-20f64).exp(), 1e4];
        for (y, want) in y.into_iter().zip(want) {
            assert!((y as f64 - want).abs() <= 2e-7 * want, "{y} against {want}");
        }
    }

    #[test]
    fn softplus_gradient_is_the_sigmoid_even_at_zero() {
        let x = Tensor::<B, 1>::from_data([-30.0f32, 0.0, 3.0], &Default::default()).require_grad();
        let grads = softplus(x.clone()).sum().backward();
        let grad = x.grad(&grads).unwrap().into_data().to_vec::<f32>().unwrap();
        for (g, x) in grad.into_iter().zip([-30.0f64, 0.0, 3.0]) {
            let want = 1.0 / (1.0 + (-x).exp());
            assert!((g as f64 - want).abs() < 1e-6 * want, "{g} at {x}");
        }
    }

    #[test]
    fn exclusive_cumsum_agrees_with_a_loop() {
        for len in [1usize, 2, 3, 4, 5, 16, 17, 1000] {
            let values: Vec<f64> = (0..len).map(|i| ((i * 7919) % 101) as f64 / 101.0).collect();
            let device = Default::default();
            let x = Tensor::<B, 1>::from_data(TensorData::new(values.clone(), [len]), (&device, DType::F64));
            let y = exclusive_cumsum(x).into_data().to_vec::<f64>().unwrap();
            let mut sum = 0.0;
            for (i, value) in values.iter().enumerate() {
                assert!((y[i] - sum).abs() < 1e-10, "length {len}, index {i}: {} against {sum}", y[i]);
                sum += value;
            }
        }
    }
}
