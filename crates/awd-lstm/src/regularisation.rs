//! What the loss of a training step has besides the nll: activation regularisation (AR) and temporal activation
//! regularisation (TAR; arXiv 1708.02182, section 4.6).
//!
//! Means are over all elements. Both are added to the mean nll, in nats, of a training step.

use burn::tensor::Tensor;

/// Weights of what a training step's loss has besides the nll. All 0 by default.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Penalties {
    /// Of activation regularisation (AR), the mean square of the last LSTM's dropped output.
    pub alpha: f64,
    /// Of temporal activation regularisation (TAR), the mean square of the change of that LSTM's output before dropout from one time
    /// step to the next.
    pub beta: f64,
    /// Of the squared coefficient of variation of a mixture's priors, see
    /// [`LossOptions::with_prior_cv`](highrank::LossOptions::with_prior_cv). Heads without priors ignore it.
    pub prior_cv: f64,
}

/// AR: `alpha · mean(out²)` of the last LSTM's output *after* dropout.
///
/// # Shapes
///
/// - `dropped`: `[T, B, H]`
/// - returns `[1]`
pub fn activation(dropped: Tensor<3>, alpha: f64) -> Tensor<1> {
    (dropped.clone() * dropped).mean() * alpha
}

/// TAR: `beta · mean((out[t+1] - out[t])²)` of the last LSTM's output *before* dropout. A single time step has no
/// difference, so the result is 0.
///
/// # Shapes
///
/// - `raw`: `[T, B, H]`
/// - returns `[1]`
pub fn temporal(raw: Tensor<3>, beta: f64) -> Tensor<1> {
    let steps = raw.dims()[0];
    if steps < 2 {
        return Tensor::zeros([1], (&raw.device(), raw.dtype()));
    }
    let change = raw.clone().narrow(0, 1, steps - 1) - raw.narrow(0, 0, steps - 1);
    (change.clone() * change).mean() * beta
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use burn::tensor::{DType, Device};

    use super::*;

    /// T = 3, B = 1, H = 2.
    fn outputs() -> Tensor<3> {
        let options = (&Device::flex().autodiff(), DType::F64);
        Tensor::<3>::from_data([[[1.0, 2.0]], [[3.0, -1.0]], [[0.0, 0.0]]], options).require_grad()
    }

    fn gradient(out: &Tensor<3>, loss: Tensor<1>) -> Vec<f64> {
        out.grad(&loss.backward()).unwrap().into_data().try_to_vec().unwrap()
    }

    fn scalar(loss: &Tensor<1>) -> f64 {
        loss.to_data().iter::<f64>().next().unwrap()
    }

    #[test]
    fn ar_is_the_mean_square() {
        let out = outputs();
        let loss = activation(out.clone(), 2.0);
        assert!((scalar(&loss) - 2.0 * 15.0 / 6.0).abs() < 1e-15);
        let want = [1.0, 2.0, 3.0, -1.0, 0.0, 0.0].map(|v: f64| 2.0 * 2.0 * v / 6.0);
        for (g, w) in gradient(&out, loss).iter().zip(want) {
            assert!((g - w).abs() < 1e-15);
        }
    }

    #[test]
    fn tar_is_the_mean_square_change() {
        let out = outputs();
        let loss = temporal(out.clone(), 0.5);
        // Changes (2, -3) and (-3, 1).
        assert!((scalar(&loss) - 0.5 * 23.0 / 4.0).abs() < 1e-15);
        let want = [-2.0, 3.0, 5.0, -4.0, -3.0, 1.0].map(|v: f64| 0.5 * 2.0 * v / 4.0);
        for (g, w) in gradient(&out, loss).iter().zip(want) {
            assert!((g - w).abs() < 1e-15, "{g} instead of {w}");
        }
    }

    #[test]
    fn tar_of_one_step_is_zero() {
        let loss = temporal(outputs().narrow(0, 1, 1), 1.0);
        assert_eq!((scalar(&loss), loss.dtype(), loss.dims()), (0.0, DType::F64, [1]));
    }
}
