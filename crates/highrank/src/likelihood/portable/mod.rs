//! The likelihood made of Burn's own tensor operations: the definition that native kernels are checked against, and the
//! fallback of every backend without a kernel.

mod chunk;
mod gradients;
mod log_probs;
mod predict;
mod score;

pub(crate) use chunk::{blocks, context_tensor};
pub(crate) use gradients::GradientParts;
pub use log_probs::log_probs;
pub(crate) use log_probs::logits;
pub use predict::predict;

use highrank_kernels::{Floats, Ints};

use super::mask::Vocabulary;
use super::parts::ScoreParts;
use super::sparse_targets::SparseTargets;
use crate::ops::{Gradients, Kernels, LikelihoodInput, Objective, Scores, Wanted};
use score::Score;

/// Loss of every token, and statistics where asked for; one product, differentiable by composition. For an upstream gradient
/// also the wanted gradients of `Σ_n upstream_n · loss_n`; three products.
///
/// Products and latent layer are the backend's.
pub fn score<B: Kernels>(
    input: &LikelihoodInput<Floats<B>>,
    objective: &Objective<Floats<B>, Ints<B>>,
    gradient: Option<(Floats<B>, Wanted)>,
) -> (Scores<Floats<B>>, Gradients<Floats<B>>) {
    let input = &input.clone().widened();
    let gradient = gradient.map(|(upstream, wanted)| (upstream.cast(input.wide()), wanted));
    let vocabulary = Vocabulary::new(input);
    let sparse = match objective.is_plain() {
        true => None,
        false => SparseTargets::new(input, objective, &vocabulary),
    };
    let (mut scores, mut gradients) = (ScoreParts::default(), GradientParts::default());
    for block in blocks(input) {
        for chunk in block.chunks(&vocabulary) {
            let objective = &objective.slice(chunk.start..chunk.end);
            let scored = Score::new(&chunk, objective, sparse.as_ref());
            scores.add(scored.scores(&chunk, objective));
            if let Some((upstream, wanted)) = &gradient {
                let scored = scored.gradients(&chunk, upstream.clone().rows(chunk.start..chunk.end));
                gradients.add_chunk(chunk, scored, *wanted);
            }
        }
        if let Some((_, wanted)) = &gradient {
            gradients.add_block(block, *wanted);
        }
    }
    (scores.finish(), gradients.finish(input))
}

/// The gradients of every token's nll by its logits `z`, before the logit map, `[N·K, V]`; 0 for masked words.
#[cfg(feature = "analysis")]
pub(crate) fn logit_gradients<B: Kernels>(input: &LikelihoodInput<Floats<B>>, words: Ints<B>) -> Floats<B> {
    log_probs::of_all_chunks(input, |chunk| {
        let scored = Score::Words(score::Words::score(chunk, words.clone().rows(chunk.start..chunk.end)));
        let upstream = Floats::full([chunk.tokens()], 1.0, &chunk.logits.device(), chunk.logits.dtype());
        let d_mapped = scored.gradients(chunk, upstream).d_mapped;
        let (input, table, logits) = (chunk.input, chunk.table.as_ref(), chunk.logits.clone());
        chunk::logit_gradients(input, table, logits, d_mapped).0.detach()
    })
}
