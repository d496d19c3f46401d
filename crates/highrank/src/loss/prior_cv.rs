//! How unevenly a batch uses the components of a mixture.

use burn::tensor::Tensor;

/// The squared coefficient of variation of the components' priors, `[1]`; differentiable.
///
/// With the mean priors `m_k = Σ_n s_n π_nk`, whose mean is `1/K`, it is `K Σ_k (m_k − 1/K)²`: no difference of large sums, and
/// never negative. It is 1 where nothing counts.
///
/// - log_prior: `log π`, `[N, K]`
/// - shares: `s`, what each token has in a mean, `[N]`
pub(crate) fn prior_cv(log_prior: Tensor<2>, shares: Tensor<1>) -> Tensor<1> {
    let ([tokens, components], dtype) = (log_prior.dims(), log_prior.dtype());
    let shares = shares.cast(dtype).reshape([tokens, 1]);
    let means = (log_prior.exp() * shares).sum_dim(0).reshape([components]);
    let off = means - 1.0 / components as f64;
    (off.clone() * off).sum() * components as f64
}
