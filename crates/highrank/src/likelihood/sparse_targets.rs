//! Targets as a level for all words and a little more for some.

use burn::backend::Backend;
use highrank_kernels::{Floats, Ints};

use super::mask::Vocabulary;
use crate::ops::{Kernels, LikelihoodInput, Objective, Targets};

/// The weighted distribution `w q̃ = w ((1 − ε) q + ε/V')` that a token's log-probabilities are scored against, without its zeros and
/// without the `[N, V]` tensor:
///
/// ```text
/// w q̃_n = level_n · w · unmasked + Σ_i extra_ni · onehot(ids_ni)
/// ```
///
/// with the weights `w` of words, in which the `extra` has its own already.
#[derive(Debug, Clone)]
pub(crate) struct SparseTargets<B: Backend> {
    /// Of every unmasked word, `[N, 1]`.
    pub(crate) level: Floats<B>,
    /// What the level of each word is multiplied with, `[1, V]`, if words have weights.
    of_words: Option<Floats<B>>,
    /// `[N, m]`
    pub(crate) ids: Ints<B>,
    /// `[N, m]`
    pub(crate) extra: Floats<B>,
}

impl<B: Kernels> SparseTargets<B> {
    /// None if the targets are distributions over all words, of whatever kind.
    pub(crate) fn new(
        input: &LikelihoodInput<Floats<B>>,
        objective: &Objective<Floats<B>, Ints<B>>,
        vocabulary: &Vocabulary<B>,
    ) -> Option<Self> {
        let (device, dtype) = (input.weight.device(), input.wide());
        let tokens = input.tokens();
        let keep = 1.0 - objective.label_smoothing;
        let unmasked = vocabulary.unmasked(&input.weight).cast(dtype);
        let count = unmasked.clone().sum_dim(1);
        // ε / V'
        let smooth = Floats::full([tokens, 1], objective.label_smoothing, &device, dtype)
            / count.clone().clamp(1.0, f32::MAX.into());
        let (level, ids, extra) = match &objective.targets {
            Targets::Distributions { .. } | Targets::Model { .. } => return None,
            Targets::Listed { ids, factors } => {
                (smooth.zeros_like(), ids.clone(), factors.clone().cast(dtype))
            }
            Targets::Words(words) => {
                let extra = Floats::full([tokens, 1], keep, &device, dtype);
                (smooth, words.clone().reshape([tokens, 1]), extra)
            }
            Targets::Teacher { ids, probs, .. } => {
                let [_, listed] = ids.dims();
                let probs = probs.clone().cast(dtype);
                let is_unmasked = unmasked
                    .reshape([input.vocab()])
                    .select(0, ids.clone().reshape([tokens * listed]))
                    .reshape([tokens, listed]);
                // Of what is left, each unmasked word that is not listed gets the same share.
                let left = (-probs.clone().sum_dim(1)).add_scalar(1.0).clamp(0.0, 1.0);
                let others = count - is_unmasked.clone().sum_dim(1);
                let share = left / others.clone().clamp(1.0, f32::MAX.into()) * others.clamp(0.0, 1.0);
                let extra = (probs - share.clone() * is_unmasked).mul_scalar(keep);
                (smooth + share.mul_scalar(keep), ids.clone(), extra)
            }
        };
        let Some(weights) = &objective.class_weights else {
            return Some(Self { level, of_words: None, ids, extra });
        };
        let weights = weights.clone().cast(dtype);
        let of_ids = weights.clone().select(0, ids.clone().reshape([ids.num_elements()]));
        let extra = extra.clone() * of_ids.reshape(extra.shape());
        Some(Self { level, of_words: Some(weights.reshape([1, input.vocab()])), ids, extra })
    }

    /// `w q̃` of tokens `start .. end`, `[end − start, V]`.
    pub(crate) fn rows(&self, start: usize, end: usize, unmasked: Floats<B>) -> Floats<B> {
        let of_words = match &self.of_words {
            Some(weights) => unmasked * weights.clone(),
            None => unmasked,
        };
        let level = self.level.clone().rows(start..end) * of_words;
        level.scatter_add(1, self.ids.clone().rows(start..end), self.extra.clone().rows(start..end))
    }
}
