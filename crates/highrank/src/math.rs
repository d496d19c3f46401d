//! The few stable formulas that heads share: softplus and sigmoid of numbers, log-softmax of rows, running sums of vectors.
//!
//! Burn's own `softplus` overflows above 88 in f32 and loses every digit below −17; that of this file does not.

use burn::backend::Backend;
use burn::tensor::DType;
use highrank_kernels::Floats;

/// `softplus(x) = log(1 + e^x)`, exact over the whole range, with a correct gradient at 0. For parameters: large tensors
/// have [`log_sigmoid`].
pub(crate) fn softplus<B: Backend>(x: Floats<B>) -> Floats<B> {
    softplus_by(x, |e| match e.dtype() {
        DType::F64 => e.log1p(),
        _ => log1p_series(e),
    })
}

/// The `x` with `softplus(x) = y`.
pub(crate) fn inverse_softplus(y: f64) -> f64 {
    y + (-(-y).exp()).ln_1p()
}

/// `log sigmoid(x) = −softplus(−x)`, to the rounding unit of 1 at least.
pub(crate) fn log_sigmoid<B: Backend>(x: Floats<B>) -> Floats<B> {
    -softplus_by(-x, Floats::log1p)
}

/// Written as `m x + log1p(e^{−s x})` with the constants `m = [x ≥ 0]` and `s = 2m − 1`. Spelt with a clamp and an
/// absolute value, the automatic derivative would be wrong at 0 and lose all digits far below it.
fn softplus_by<B: Backend>(x: Floats<B>, log1p: impl Fn(Floats<B>) -> Floats<B>) -> Floats<B> {
    let positive = x.clone().detach().at_least(0.0);
    let m = x.zeros_like().fill_where(positive, 1.0);
    let minus_s = m.clone().mul_scalar(-2.0).add_scalar(1.0);
    m * x.clone() + log1p((minus_s * x).exp())
}

/// `log(1 + e)` for `0 ≤ e ≤ 1` as `2 artanh(e / (2 + e))`, its series to the rounding unit of f32.
///
/// WebGPU has no `log1p`: backends compute `log(1 + e)` there, and a small `e` loses all its digits.
fn log1p_series<B: Backend>(e: Floats<B>) -> Floats<B> {
    let s = e.clone() / e.add_scalar(2.0);
    let square = s.clone() * s.clone();
    let series = (0..8)
        .rev()
        .fold(s.zeros_like(), |sum, k| (sum * square.clone()).add_scalar(2.0 / (2 * k + 1) as f64));
    s * series
}

/// `sigmoid(x) = e^{log sigmoid(x)}`, in the tensor's own precision.
///
/// Burn's `activation::sigmoid` computes in f32 for f64 tensors of some backends.
pub(crate) fn sigmoid<B: Backend>(x: Floats<B>) -> Floats<B> {
    log_sigmoid(x).exp()
}

/// `log Σ_j e^{x_j}` over dimension `dim`, kept with size 1. The maximum is a constant of the gradient.
pub(crate) fn log_sum_exp_dim<B: Backend>(x: Floats<B>, dim: usize) -> Floats<B> {
    let max = x.clone().detach().max_dim(dim);
    (x - max.clone()).exp().sum_dim(dim).log() + max
}

/// `x − log Σ_j e^{x_j}` over the last dimension.
pub(crate) fn log_softmax<B: Backend>(x: Floats<B>) -> Floats<B> {
    log_softmax_and_normaliser(x).0
}

/// [`log_softmax`] and the `log Σ_j e^{x_j}` that it subtracts.
///
/// Where logits are large, most digits of the latter are those of the maximum: it is subtracted first, so that a
/// log-probability near 0 keeps its own.
pub(crate) fn log_softmax_and_normaliser<B: Backend>(x: Floats<B>) -> (Floats<B>, Floats<B>) {
    let last = x.shape().num_dims() - 1;
    let max = x.clone().detach().max_dim(last);
    let shifted = x - max.clone();
    let log_sum = shifted.clone().exp().sum_dim(last).log();
    (shifted - log_sum.clone(), log_sum + max)
}

/// Exclusive running sum `y_i = Σ_{j<i} x_j` of a vector, accurate for a million terms in f32.
///
/// A plain running sum of P terms rounds P times; two levels of about √P terms each round 2√P times.
pub(crate) fn exclusive_cumsum<B: Backend>(x: Floats<B>) -> Floats<B> {
    let len = x.num_elements();
    let width = (len as f64).sqrt().ceil() as usize;
    let height = len.div_ceil(width);
    let padded = match height * width - len {
        0 => x,
        padding => {
            let zeros = Floats::zeros([padding], &x.device(), x.dtype());
            Floats::cat(vec![x, zeros], 0)
        }
    };
    let blocks = padded.reshape([height, width]);
    let inclusive = blocks.clone().cumsum(1);
    let totals = blocks.clone().sum_dim(1);
    let before = totals.clone().cumsum(0) - totals;
    (inclusive - blocks + before).reshape([height * width]).rows(0..len)
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use super::*;
    use burn::tensor::{Device, Tensor, TensorData};

    fn tracked(values: &[f32]) -> Tensor<1> {
        Tensor::from_floats(values, &Device::flex().autodiff()).require_grad()
    }

    fn values(x: Floats) -> Vec<f64> {
        x.into_data().iter::<f64>().collect()
    }

    #[test]
    fn softplus_keeps_relative_precision_at_both_ends() {
        let x = tracked(&[-60.0, -20.0, 0.0, 20.0, 1e4]);
        let want = [(-60f64).exp(), (-20f64).exp(), 2f64.ln(), 20.0 + (-20f64).exp(), 1e4];
        for (y, want) in values(softplus(x.into())).into_iter().zip(want) {
            assert!((y - want).abs() <= 2e-7 * want, "{y} against {want}");
        }
    }

    #[test]
    fn softplus_gradient_is_the_sigmoid_even_at_zero() {
        let x = tracked(&[-30.0, 0.0, 3.0]);
        let grads = softplus(x.clone().into()).tensor::<1>().sum().backward();
        for (g, x) in values(x.grad(&grads).unwrap().into()).into_iter().zip([-30.0f64, 0.0, 3.0]) {
            let want = 1.0 / (1.0 + (-x).exp());
            assert!((g - want).abs() < 1e-6 * want, "{g} at {x}");
        }
    }

    #[test]
    fn exclusive_cumsum_agrees_with_a_loop() {
        for len in [1usize, 2, 3, 4, 5, 16, 17, 1000] {
            let terms: Vec<f64> = (0..len).map(|i| ((i * 7919) % 101) as f64 / 101.0).collect();
            let data = TensorData::new(terms.clone(), [len]);
            let x = Tensor::<1>::from_data(data, (&Device::flex(), DType::F64));
            let y = values(exclusive_cumsum(x.into()));
            let mut sum = 0.0;
            for (i, term) in terms.iter().enumerate() {
                assert!((y[i] - sum).abs() < 1e-10, "length {len}, index {i}: {} against {sum}", y[i]);
                sum += term;
            }
        }
    }
}
