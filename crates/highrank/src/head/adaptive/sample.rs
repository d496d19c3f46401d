//! Words drawn from an adaptive head.

use burn::tensor::Tensor;
use rand::Rng;

use super::parts::{AdaptiveHead, in_a_row};
use crate::error::HeadError;
use crate::head::predict::draw;
use crate::head::sampling::Sampling;
use crate::ops::LogProbs;

impl AdaptiveHead<'_> {
    /// A word for each token, by checked options.
    pub(in crate::head) fn sample<const D: usize>(
        &self,
        hidden: Tensor<D>,
        sampling: &Sampling,
        rng: &mut impl Rng,
    ) -> Result<Vec<usize>, HeadError> {
        self.head_cluster.check(&hidden)?;
        match sampling.most() {
            _ if sampling.is_neutral() => self.draw(hidden, rng),
            Some(k) => {
                let best = self.top_k(hidden, k.min(self.clusters.vocab))?.into_lists();
                let numbers = sampling.numbers(best.len(), rng);
                sampling.draw_of_lists(best, &numbers)
            }
            None => self.draw_of_all(hidden, sampling, rng),
        }
    }

    /// From the distribution itself: a word of the head cluster, then one of its cluster if it stands for one.
    fn draw<const D: usize>(&self, hidden: Tensor<D>, rng: &mut impl Rng) -> Result<Vec<usize>, HeadError> {
        let rows = in_a_row(hidden.clone());
        let drawn = draw(self.head_cluster.constant(hidden)?, rng)?;
        let shortlist = self.clusters.shortlist();
        let mut words = drawn.clone();
        for (cluster, (tail, range)) in self.tails().into_iter().zip(self.clusters.ranges()).enumerate() {
            let drew = (0..drawn.len()).filter(|token| drawn[*token] == shortlist + cluster);
            let of_tail = tail.of_some(&rows, drew, |tail, contexts| draw(tail.constant(contexts)?, rng))?;
            for (token, word) in of_tail {
                words[token] = range.start + word;
            }
        }
        Ok(words)
    }

    /// With options that need the probabilities of all words, a block of tokens at a time.
    fn draw_of_all<const D: usize>(
        &self,
        hidden: Tensor<D>,
        sampling: &Sampling,
        rng: &mut impl Rng,
    ) -> Result<Vec<usize>, HeadError> {
        let dims = hidden.dims();
        let numbers = sampling.numbers(dims[..D - 1].iter().product(), rng);
        let mut words = Vec::with_capacity(numbers.len());
        for block in self.log_prob_blocks(hidden)? {
            let [_, vocab] = block.dims();
            let log_probs: Vec<f64> = block.into_data().iter::<f64>().collect();
            for row in log_probs.chunks(vocab) {
                let token = words.len();
                words.push(sampling.draw(LogProbs::F64(row), token, numbers[token])?);
            }
        }
        Ok(words)
    }
}
