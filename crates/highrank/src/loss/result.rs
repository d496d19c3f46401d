//! What a loss gives.

use burn::tensor::{Bool, Int, Tensor};
use highrank_kernels::Floats;

use crate::ops::Statistic;

/// A loss, and what else was asked for. `T` is the number of dimensions of the targets.
#[derive(Debug, Clone)]
pub struct Loss<const T: usize> {
    /// What is minimised, in nats: the mean or the sum that the [reduction](crate::LossOptions::with_reduction) asks for, `[1]`. In
    /// f32, or f64 if the parameters are.
    pub value: Tensor<1>,
    /// `w_n loss_n` of each token, of the shape of the targets, differentiable, if
    /// [asked for](crate::LossOptions::with_per_token). 0 for tokens that do not count.
    pub per_token: Option<Tensor<T>>,
    /// The squared coefficient of variation of the priors, `[1]`, without λ, if [λ](crate::LossOptions::with_prior_cv) is not 0. 1
    /// where nothing counts.
    pub prior_cv: Option<Tensor<1>>,
    /// If [asked for](crate::LossOptions::with_statistics).
    pub statistics: Option<TokenStatistics<T>>,
}

/// What is known of each token's distribution, of the shape of the targets; 0 for tokens that do not count. Constants: no
/// gradient flows through them.
#[derive(Debug, Clone)]
pub struct TokenStatistics<const T: usize> {
    /// `−log P(y)` of the target word in nats, without weights. +∞ if the target is masked.
    pub nll: Tensor<T>,
    /// `−Σ_v P(v) log P(v)` in nats.
    pub entropy: Tensor<T>,
    /// The likeliest word, the lowest of equals. Exact for vocabularies of up to 2²⁴ words where sums are in f32.
    pub argmax: Tensor<T, Int>,
    /// Its log-probability in nats.
    pub max_log_prob: Tensor<T>,
    /// `z_n`, the squared log normaliser, before it is multiplied by λ; in nats².
    pub z_term: Tensor<T>,
    /// Whether the token counts.
    pub counted: Tensor<T, Bool>,
}

impl<const T: usize> TokenStatistics<T> {
    /// Of a matrix of statistics of all tokens, and 1 for each token that counts.
    pub(crate) fn new(rows: Tensor<2>, counted: Tensor<2>, shape: [usize; T]) -> Self {
        let column = |statistic: Statistic| rows.clone().narrow(1, statistic as usize, 1).reshape(shape);
        Self {
            nll: column(Statistic::Nll),
            entropy: column(Statistic::Entropy),
            argmax: Floats::from(column(Statistic::Argmax)).int().tensor(),
            max_log_prob: column(Statistic::MaxLogProb),
            z_term: column(Statistic::ZTerm),
            counted: counted.reshape(shape).greater_elem(0.5),
        }
    }

    /// The same statistics of tokens in another shape.
    pub(crate) fn reshape<const S: usize>(self, shape: [usize; S]) -> TokenStatistics<S> {
        TokenStatistics {
            nll: self.nll.reshape(shape),
            entropy: self.entropy.reshape(shape),
            argmax: self.argmax.reshape(shape),
            max_log_prob: self.max_log_prob.reshape(shape),
            z_term: self.z_term.reshape(shape),
            counted: self.counted.reshape(shape),
        }
    }
}
