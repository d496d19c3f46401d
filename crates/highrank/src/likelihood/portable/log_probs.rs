//! Log-probabilities and logits of all words, chunk by chunk.

use highrank_kernels::Floats;

use super::chunk::{Chunk, blocks};
use crate::likelihood::mask::Vocabulary;
use crate::math::log_sum_exp_dim;
use crate::ops::{Kernels, LikelihoodInput};

/// Log-probabilities `[N, V]` by the composed formula, differentiable like any other Burn program; −∞ for masked words.
pub fn log_probs<B: Kernels>(input: &LikelihoodInput<Floats<B>>) -> Floats<B> {
    of_all_chunks(input, |chunk| chunk.vocabulary.with_minus_infinity(log_probs_of(chunk)))
}

/// Logits `z` of all components, `[N·K, V]`, before the logit map; −∞ for masked words.
pub(crate) fn logits<B: Kernels>(input: &LikelihoodInput<Floats<B>>) -> Floats<B> {
    of_all_chunks(input, |chunk| chunk.vocabulary.with_minus_infinity(chunk.logits.clone()))
}

/// What is made of each chunk, joined.
pub(super) fn of_all_chunks<B: Kernels>(
    input: &LikelihoodInput<Floats<B>>,
    of: impl Fn(&Chunk<'_, B>) -> Floats<B>,
) -> Floats<B> {
    let input = &input.clone().widened();
    let vocabulary = Vocabulary::new(input);
    let mut parts = vec![];
    for block in blocks(input) {
        parts.extend(block.chunks(&vocabulary).map(|chunk| of(&chunk)));
    }
    Floats::cat(parts, 0)
}

fn log_probs_of<B: Kernels>(chunk: &Chunk<'_, B>) -> Floats<B> {
    let component = chunk.softmax().log_probs();
    match chunk.log_prior {
        Some(_) => {
            let shape = [chunk.tokens(), chunk.input.vocab()];
            log_sum_exp_dim(chunk.joint(component), 1).reshape(shape)
        }
        None => component,
    }
}
