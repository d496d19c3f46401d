//! Log-probabilities of given words and entropies of an adaptive head.
//!
//! ```text
//! H = H of the head cluster + Σ_i P_head(cluster i) · H of tail i
//! ```

use std::ops::Range;

use burn::tensor::{Bool, Int, Tensor, TensorData};

use super::division::{IGNORED, place};
use super::parts::AdaptiveHead;
use crate::context::Tokens;
use crate::error::HeadError;
use crate::head::words::LogProbOptions;
use crate::loss::validate_words;

impl AdaptiveHead<'_> {
    /// Log-probabilities `[N, m]` and, if asked for, entropies `[N, 1]`: one sweep of the head cluster, and one of each tail for the
    /// tokens that ask it for something.
    ///
    /// - words: `[N, m]`, with m the `width`
    pub(in crate::head) fn log_probs_of_words<const D: usize>(
        &self,
        hidden: Tensor<D>,
        words: &[i64],
        width: usize,
        options: &LogProbOptions,
    ) -> Result<(Tensor<2>, Option<Tensor<2>>), HeadError> {
        let (clusters, device, tokens) = (self.clusters, hidden.device(), words.len() / width);
        let is_ignored = |word: &i64| options.ignored.contains(word);
        validate_words(words, width, clusters.vocab, |at| !is_ignored(&words[at]))?;
        let unmasked = self.unmasked()?;
        // No part is asked for a masked word, whose log-probability is known.
        let asked: Vec<Option<usize>> = words
            .iter()
            .map(|word| (!is_ignored(word) && unmasked[*word as usize]).then_some(*word as usize))
            .collect();
        // Of a token that asks for nothing, neither is the entropy.
        let asks: Vec<bool> = words.chunks(width).map(|of_token| !of_token.iter().all(is_ignored)).collect();

        let of_parts = LogProbOptions { ignored: vec![IGNORED], entropy: options.entropy };
        // For entropies also words that a part is asked for on behalf of every token: of the head cluster the clusters, of a tail any.
        let rows = |of_word: &dyn Fn(usize) -> Option<usize>, more: Range<usize>| {
            let more = if options.entropy { more } else { 0..0 };
            let row = |(of_token, asks): (&[Option<usize>], &bool)| {
                let own = of_token.iter().map(|word| word.and_then(of_word));
                let more = more.clone().map(|word| asks.then_some(word));
                own.chain(more).map(|word| word.map_or(IGNORED, |word| word as i64)).collect::<Vec<_>>()
            };
            let values: Vec<i64> = asked.chunks(width).zip(&asks).flat_map(row).collect();
            Tensor::<2, Int>::from_data(TensorData::new(values, [tokens, width + more.len()]), &device)
        };

        let (shortlist, tails) = (clusters.shortlist(), clusters.tails.len());
        let of_head = rows(&|word| Some(clusters.head_word(word)), shortlist..shortlist + tails);
        let (made, mut entropy) =
            self.head_cluster.listed(of_head, &of_parts, true, |listed| listed.of_hidden(hidden.clone()))?;
        let mut log_probs = made.clone().narrow(1, 0, width);
        for (cluster, (tail, range)) in self.tails().into_iter().zip(clusters.ranges()).enumerate() {
            // Nothing is asked of a cluster of probability 0.
            let Some(any) = range.clone().position(|word| unmasked[word]) else { continue };
            let of_tail = rows(&|word| place(word, &range), any..any + 1);
            let (own, of_own) = tail.head.listed(of_tail, &of_parts, true, |listed| {
                Tokens::all(tail.contexts(listed.of_hidden(hidden.clone()).hidden()))
            })?;
            log_probs = log_probs + own.narrow(1, 0, width);
            entropy = entropy.zip(of_own).map(|(all, own)| {
                let of_cluster = made.clone().narrow(1, width + cluster, 1);
                all + own * of_cluster.exp()
            });
        }
        let masked = words.iter().zip(&asked).map(|(word, asked)| asked.is_none() && !is_ignored(word));
        let masked: Vec<bool> = masked.collect();
        let masked = Tensor::<2, Bool>::from_data(TensorData::new(masked, [tokens, width]), &device);
        Ok((log_probs.mask_fill(masked, f64::NEG_INFINITY), entropy))
    }
}
