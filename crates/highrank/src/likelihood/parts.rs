//! Scores and gradients that come chunk by chunk, or block by block: those of tokens are joined, and sums over tokens added.

use burn::backend::Backend;
use highrank_kernels::Floats;

use crate::ops::Scores;

/// Adds a part to a sum, which is empty or the sum so far.
pub(crate) fn add_part<B: Backend>(sum: &mut Vec<Floats<B>>, part: Floats<B>) {
    let part = match sum.pop() {
        Some(sum) => sum + part,
        None => part,
    };
    sum.push(part);
}

/// The parts as one tensor; none without parts.
pub(crate) fn joined<B: Backend>(parts: Vec<Floats<B>>) -> Option<Floats<B>> {
    (!parts.is_empty()).then(|| Floats::cat(parts, 0))
}

/// The scores of the chunks so far.
#[derive(Default)]
pub(crate) struct ScoreParts<B: Backend> {
    loss: Vec<Floats<B>>,
    statistics: Vec<Floats<B>>,
    listed: Vec<Floats<B>>,
}

impl<B: Backend> ScoreParts<B> {
    pub(crate) fn add(&mut self, part: Scores<Floats<B>>) {
        self.loss.push(part.loss);
        self.statistics.extend(part.statistics);
        self.listed.extend(part.listed);
    }

    pub(crate) fn finish(self) -> Scores<Floats<B>> {
        Scores {
            loss: Floats::cat(self.loss, 0),
            statistics: joined(self.statistics),
            listed: joined(self.listed),
        }
    }
}
