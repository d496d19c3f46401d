//! Words drawn from an adaptive head.

use burn::tensor::{Int, Tensor};
use rand::Rng;

use super::clustered::{Clustered, among_all, in_a_row, of_tokens};
use crate::error::HeadError;
use crate::head::predict::numbers;
use crate::head::sampling::Sampling;
use crate::loss::leading;
use crate::ops::LogProbs;

impl Clustered<'_> {
    pub(in crate::head) fn sample<const D: usize, const T: usize>(
        &self,
        hidden: Tensor<D>,
        sampling: &Sampling,
        rng: &mut impl Rng,
    ) -> Result<Tensor<T, Int>, HeadError> {
        sampling.validate()?;
        self.short.check(&hidden)?;
        let (shape, device) = (leading::<D, T>(&hidden.dims())?, hidden.device());
        let words = match sampling.top_k {
            _ if sampling.is_neutral() => self.draw(hidden, rng)?,
            _ if sampling.is_greedy() => integers(self.top_k(hidden, 1)?.words),
            Some(k) => self.draw_of_best(hidden, sampling, k.min(self.clusters.vocab()), rng)?,
            None => self.draw_of_all(hidden, sampling, rng)?,
        };
        let words: Vec<i64> = words.into_iter().map(|word| word as i64).collect();
        Ok(Tensor::<1, Int>::from_data(words.as_slice(), &device).reshape(shape))
    }

    /// From the distribution itself: a word of the head cluster, then one of its cluster if it stands for one.
    fn draw<const D: usize>(&self, hidden: Tensor<D>, rng: &mut impl Rng) -> Result<Vec<usize>, HeadError> {
        let rows = in_a_row(hidden.clone());
        let drawn = self.short.draw(hidden, rng)?;
        let shortlist = self.clusters.shortlist();
        let mut words = drawn.clone();
        for (cluster, tail) in self.tails().into_iter().enumerate() {
            let drew = drawn.iter().enumerate().filter(|(_, word)| **word == shortlist + cluster);
            let members: Vec<u32> = drew.map(|(token, _)| token as u32).collect();
            if members.is_empty() {
                continue;
            }
            let contexts = tail.contexts(of_tokens(rows.clone(), &members));
            let of_tail = tail.head.draw(contexts, rng).map_err(among_all(&members))?;
            for (token, word) in members.iter().zip(of_tail) {
                words[*token as usize] = self.clusters.cutoffs()[cluster] + word;
            }
        }
        Ok(words)
    }

    /// Of the k most probable words.
    fn draw_of_best<const D: usize>(
        &self,
        hidden: Tensor<D>,
        sampling: &Sampling,
        k: usize,
        rng: &mut impl Rng,
    ) -> Result<Vec<usize>, HeadError> {
        let top = self.top_k(hidden, k)?;
        let log_probs: Vec<f64> = top.log_probs.into_data().iter::<f64>().collect();
        let words = integers(top.words);
        let numbers = numbers(words.len() / k, rng);
        let tokens = words.chunks(k).zip(log_probs.chunks(k)).zip(numbers).enumerate();
        let drawn = tokens.map(|(token, ((words, log_probs), number))| {
            // In the order of the vocabulary, by which equally probable words are drawn.
            let mut pairs: Vec<(usize, f64)> = words.iter().copied().zip(log_probs.iter().copied()).collect();
            pairs.sort_by_key(|(word, _)| *word);
            let log_probs: Vec<f64> = pairs.iter().map(|(_, log_prob)| *log_prob).collect();
            Ok(pairs[sampling.draw(LogProbs::F64(&log_probs), token, number)?].0)
        });
        drawn.collect()
    }

    /// With options that need the probabilities of all words, a block of tokens at a time.
    fn draw_of_all<const D: usize>(
        &self,
        hidden: Tensor<D>,
        sampling: &Sampling,
        rng: &mut impl Rng,
    ) -> Result<Vec<usize>, HeadError> {
        let dims = hidden.dims();
        let numbers = numbers(dims[..D - 1].iter().product(), rng);
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

fn integers<const D: usize>(words: Tensor<D, Int>) -> Vec<usize> {
    words.into_data().iter::<i64>().map(|word| word as usize).collect()
}
