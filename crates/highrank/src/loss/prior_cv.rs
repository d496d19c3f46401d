//! How unevenly a batch uses the components of a mixture.

use burn::tensor::Tensor;

/// The squared coefficient of variation of the components' priors, summed over tokens of the given weights, `[1]`, and the sum of the
/// weights, `[1]`; differentiable. Without weights all of them are 1.
///
/// With the mean priors `m_k = Σ_n w_n π_nk / Σ_n w_n`, whose mean is `1/K`, it is `K Σ_k (m_k − 1/K)²`: no difference of large sums,
/// and never negative. Of tokens that all weigh 0 it is 1.
///
/// - log_prior: `log π`, `[N, K]`
/// - weights: `[N]`
pub(crate) fn prior_cv(log_prior: Tensor<2>, weights: Option<Tensor<1>>) -> (Tensor<1>, Tensor<1>) {
    let ([tokens, components], dtype) = (log_prior.dims(), log_prior.dtype());
    let prior = log_prior.exp();
    let (sums, total) = match weights {
        Some(weights) => {
            let weights = weights.cast(dtype);
            ((prior * weights.clone().reshape([tokens, 1])).sum_dim(0), weights.sum())
        }
        None => {
            let total = Tensor::full([1], tokens as f64, (&prior.device(), dtype));
            (prior.sum_dim(0), total)
        }
    };
    let least = f64::from(f32::MIN_POSITIVE);
    let means = sums.reshape([components]) / total.clone().clamp_min(least);
    let off = means - 1.0 / components as f64;
    ((off.clone() * off).sum() * components as f64, total)
}
