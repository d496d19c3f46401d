//! Log-probabilities of all words and the most probable words of an adaptive head.

use burn::tensor::Tensor;

use super::parts::{AdaptiveHead, TailHead, in_a_row};
use crate::error::HeadError;
use crate::head::input::with_last;
use crate::head::predict::TopK;
use crate::head::select::best_first;
use crate::likelihood::DEFAULT_MEMORY_BUDGET;
use crate::ops::runs;

impl AdaptiveHead<'_> {
    /// `[.., V]`
    pub(in crate::head) fn log_probs<const D: usize>(
        &self,
        hidden: Tensor<D>,
    ) -> Result<Tensor<D>, HeadError> {
        let shape = with_last(hidden.dims(), self.clusters.vocab);
        let rows = in_a_row(hidden.clone());
        let of_head = in_a_row(self.head_cluster.try_forward(hidden)?);
        Ok(joined(&self.tails(), self.clusters.shortlist(), of_head, rows)?.reshape(shape))
    }

    /// `[rows, V]`, each within the memory budget or a single row.
    pub(in crate::head) fn log_prob_blocks<const D: usize>(
        &self,
        hidden: Tensor<D>,
    ) -> Result<Box<dyn Iterator<Item = Tensor<2>>>, HeadError> {
        let rows = in_a_row(hidden.clone());
        let blocks = self.head_cluster.try_log_prob_blocks(hidden)?;
        let (tails, shortlist) = (self.tails(), self.clusters.shortlist());
        // The head cluster's blocks fit the budget, but all words take more.
        let budget = self.head_cluster.memory_budget.unwrap_or(DEFAULT_MEMORY_BUDGET);
        // In the type of sums, whatever that of the hidden states.
        let row_bytes = self.clusters.vocab * self.head_cluster.decoder.checks()?.sums().size();
        let step = (budget / row_bytes).max(1);
        let mut first = 0;
        // Not an `impl`, whose type would be part of itself: a tail's blocks are made by the method that calls this one.
        Ok(Box::new(blocks.flat_map(move |block| {
            let [count, _] = block.dims();
            let rows = rows.clone().narrow(0, first, count);
            first += count;
            let tails = tails.clone();
            runs(count, step).map(move |(start, end)| {
                let part = |rows: &Tensor<2>| rows.clone().narrow(0, start, end - start);
                joined(&tails, shortlist, part(&block), part(&rows))
                    .expect("the head cluster took these hidden states")
            })
        })))
    }

    /// The `k` most probable words, 1 to `V`, by the clusters that can hold one.
    pub(in crate::head) fn top_k<const D: usize>(
        &self,
        hidden: Tensor<D>,
        k: usize,
    ) -> Result<TopK<D>, HeadError> {
        let clusters = self.clusters.tails.len();
        let (shape, device) = (with_last(hidden.dims(), k), hidden.device());
        let rows = in_a_row(hidden.clone());
        // So many hold the k best of the shortlist, and any cluster that is more probable than the last of them.
        let listed =
            self.head_cluster.try_top_k(hidden, (self.clusters.shortlist() + clusters).min(k + clusters))?;
        let dtype = listed.log_probs.dtype();
        let mut best: Vec<Best> =
            listed.into_lists().into_iter().map(|pairs| self.listed(pairs, k)).collect();
        for (cluster, (tail, range)) in self.tails().into_iter().zip(self.clusters.ranges()).enumerate() {
            let all = || (0..k.min(range.len())).map(|word| (0.0, word)).collect();
            let masked = best.iter_mut().filter(|best| best.clusters[cluster] == Some(f64::NEG_INFINITY));
            // Of equally improbable words the lowest come first.
            masked.for_each(|best| best.add(cluster, all(), range.start, k));
            let needed = (0..best.len()).filter(|token| best[*token].needs(cluster, k));
            let of_tail = tail.of_some(&rows, needed, |tail, contexts| {
                Ok(tail.try_top_k(contexts, k.min(range.len()))?.into_lists())
            })?;
            for (token, words) in of_tail {
                best[token].add(cluster, words, range.start, k);
            }
        }
        Ok(TopK::of_lists(best.into_iter().map(|best| best.words).collect(), shape, (&device, dtype)))
    }

    /// What the best words of the head cluster say of a token.
    fn listed(&self, pairs: Vec<(f64, usize)>, k: usize) -> Best {
        let mut best = Best { words: vec![], clusters: vec![None; self.clusters.tails.len()] };
        for (log_prob, word) in pairs {
            match word.checked_sub(self.clusters.shortlist()) {
                Some(cluster) => best.clusters[cluster] = Some(log_prob),
                None if best.words.len() < k => best.words.push((log_prob, word)),
                None => {}
            }
        }
        best
    }
}

/// The best words of a token as far as they are known.
struct Best {
    /// At most k log-probabilities and words, best first.
    words: Vec<(f64, usize)>,
    /// Log-probability of each cluster; none of those that are less probable than the k best words.
    clusters: Vec<Option<f64>>,
}

impl Best {
    /// Whether a word of a cluster that is not masked may be among the k best. An equal one is not: its number is higher.
    fn needs(&self, cluster: usize, k: usize) -> bool {
        let last = self.words.get(k - 1).map_or(f64::NEG_INFINITY, |(log_prob, _)| *log_prob);
        self.clusters[cluster].is_some_and(|bound| bound > last)
    }

    /// Takes in the best words of a cluster, which begins with the word `first`.
    fn add(&mut self, cluster: usize, words: Vec<(f64, usize)>, first: usize, k: usize) {
        let of_cluster = self.clusters[cluster].unwrap_or(f64::NEG_INFINITY);
        self.words.extend(words.into_iter().map(|(log_prob, word)| (of_cluster + log_prob, first + word)));
        self.words.sort_by(|a, b| best_first(*a, *b));
        self.words.truncate(k);
    }
}

/// Log-probabilities of all words from those of the head cluster, `[n, V]`.
fn joined(
    tails: &[TailHead],
    shortlist: usize,
    of_head: Tensor<2>,
    hidden: Tensor<2>,
) -> Result<Tensor<2>, HeadError> {
    let mut parts = vec![of_head.clone().narrow(1, 0, shortlist)];
    for (cluster, tail) in tails.iter().enumerate() {
        let of_cluster = of_head.clone().narrow(1, shortlist + cluster, 1);
        parts.push(tail.log_probs(hidden.clone())? + of_cluster);
    }
    Ok(Tensor::cat(parts, 1))
}
