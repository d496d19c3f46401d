//! What an adaptive head's loss tells of each token.
//!
//! ```text
//! nll      = nll of the head cluster + Σ_i Q_i nll of tail i
//! entropy  = entropy of the head cluster + Σ_i P_head(cluster i) · entropy of tail i
//! z        = z of the head cluster + Σ_i Q_i z of tail i
//! ```
//!
//! and the likeliest word is that of the shortlist or of a tail, `log P_head(cluster i)` added to its log-probability there. Every tail
//! is swept for every token, once more than for the loss and without gradients; nothing of size `[N, V]` exists.

use burn::tensor::{Int, Tensor};

use super::clustered::{Clustered, in_a_row};
use super::division::{Division, PartTargets};
use super::losses::of_part;
use crate::error::HeadError;
use crate::head::output::OutputHead;
use crate::loss::{LossOptions, TokenStatistics};

impl Clustered<'_> {
    /// - truth: what the nll is of, with all tokens in every tail
    /// - masses: `Q_i` of what the tokens are scored against, by which z is weighted
    pub(super) fn statistics<const D: usize>(
        &self,
        hidden: Tensor<D>,
        truth: Division,
        masses: Vec<Tensor<1>>,
    ) -> Result<TokenStatistics<1>, HeadError> {
        let hidden = hidden.detach();
        let rows = in_a_row(hidden.clone());
        let mut made = described(&self.short, hidden.clone(), truth.head)?;
        let (best, words, clusters) = self.words_of_head(hidden)?;
        (made.max_log_prob, made.argmax) = (best, words.cast(made.argmax.dtype()));
        let [tokens] = made.nll.dims();
        for (cluster, (tail, share)) in self.tails().iter().zip(truth.tails).enumerate() {
            let contexts = tail.contexts(rows.clone());
            let own = described(&tail.head, contexts, share.targets)?;
            if let Some(mass) = share.mass {
                let none = mass.clone().equal_elem(0.0);
                // Without a share in the tail its nll may be infinite.
                made.nll = made.nll + (own.nll * mass).mask_fill(none, 0.0);
            }
            made.z_term = made.z_term + own.z_term * masses[cluster].clone();
            let of_cluster = clusters.clone().narrow(1, cluster, 1).reshape([tokens]);
            made.entropy = made.entropy + own.entropy * of_cluster.clone().exp();
            let best = own.max_log_prob + of_cluster;
            let better = best.clone().greater(made.max_log_prob.clone());
            made.max_log_prob = made.max_log_prob.mask_where(better.clone(), best);
            let first = self.clusters.words_of(cluster).start as i64;
            made.argmax = made.argmax.mask_where(better, own.argmax.add_scalar(first));
        }
        let blank = made.counted.clone().bool_not();
        let counted = |values: Tensor<1>| values.mask_fill(blank.clone(), 0.0);
        Ok(TokenStatistics {
            nll: counted(made.nll),
            entropy: counted(made.entropy),
            argmax: made.argmax.mask_fill(blank.clone(), 0),
            max_log_prob: counted(made.max_log_prob),
            z_term: counted(made.z_term),
            counted: made.counted,
        })
    }

    /// The most probable word of the shortlist with its log-probability, `[N]`, and the log-probability of each cluster, `[N, C]`, by
    /// blocks of the memory budget.
    fn words_of_head<const D: usize>(
        &self,
        hidden: Tensor<D>,
    ) -> Result<(Tensor<1>, Tensor<1, Int>, Tensor<2>), HeadError> {
        let (shortlist, tails) = (self.clusters.shortlist(), self.clusters.tails.len());
        let (mut best, mut words, mut clusters) = (vec![], vec![], vec![]);
        for block in self.short.constant(hidden)?.into_chunks() {
            let block = block.log_probs().tensor::<2>().detach();
            let [tokens, _] = block.dims();
            let (largest, word) = block.clone().narrow(1, 0, shortlist).max_dim_with_indices(1);
            best.push(largest.reshape([tokens]));
            words.push(word.reshape([tokens]));
            clusters.push(block.narrow(1, shortlist, tails));
        }
        Ok((Tensor::cat(best, 0), Tensor::cat(words, 0), Tensor::cat(clusters, 0)))
    }
}

/// The statistics of a part's own words.
fn described<const D: usize>(
    part: &OutputHead,
    hidden: Tensor<D>,
    targets: PartTargets,
) -> Result<TokenStatistics<1>, HeadError> {
    // By token, or gradients would be made for the sum.
    let options = LossOptions::new().with_per_token(true).with_statistics(true);
    Ok(of_part(part, hidden, targets, None, &options)?.statistics.expect("statistics are asked for"))
}
