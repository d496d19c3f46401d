//! The loss of an adaptive head: that of the head cluster for all tokens, and of each tail for those that have a share in it.
//!
//! Statistics are those of the distribution over all words:
//!
//! ```text
//! nll      = nll of the head cluster + nll of the tail that has the word
//! entropy  = entropy of the head cluster + Σ_i P_head(cluster i) · entropy of tail i
//! z        = z of the head cluster + Σ_i Q_i z of tail i
//! ```
//!
//! and the likeliest word is that of the shortlist or of a tail, `log P_head(cluster i)` added to its log-probability there. Every tail
//! is swept for every token, once more than for the loss and without gradients; nothing of size `[N, V]` exists.

use burn::tensor::{DType, Device, Int, Tensor};

use super::division::{Division, IGNORED, PartTargets, place};
use super::parts::{AdaptiveHead, TailHead};
use super::target::{Target, Words};
use crate::context::{ContextPath, Tokens};
use crate::error::HeadError;
use crate::head::output::OutputHead;
use crate::head::words::LogProbOptions;
use crate::likelihood::Shares;
use crate::loss::{
    CountedTokens, CountedWords, Loss, LossOptions, Reduction, TargetDistribution, TokenStatistics,
    loss_of_counted,
};

impl AdaptiveHead<'_> {
    /// The loss of checked targets and options.
    pub(in crate::head) fn loss_with<const D: usize, const T: usize>(
        &self,
        hidden: Tensor<D>,
        targets: Tensor<T, Int>,
        options: &LossOptions,
    ) -> Result<Loss<T>, HeadError> {
        let (shape, device) = (targets.dims(), hidden.device());
        let tokens = shape.iter().product::<usize>();
        let CountedWords { words, weights } =
            CountedWords::read(&targets.reshape([tokens]), options, self.clusters.vocab)?;
        let on = (&device, self.head_cluster.decoder.checks()?.sums());
        let head = self.of_one_loss(&shape, options);
        let division = head.divided(&words, options, on)?;

        let blank: Vec<bool> = words.iter().map(Option::is_none).collect();
        let weights = weights.unwrap_or_else(|| Tensor::ones([tokens], on)).cast(on.1);
        let weights = weights.mask_fill(Tensor::from_data(blank.as_slice(), &device), 0.0);
        let shares =
            options.shares(|| weights.clone(), || Shares::weighted(weights.clone(), weights.clone()));
        let masses = options.statistics.then(|| division.tails.iter().map(|tail| tail.shares(on)).collect());
        // Sums, which add up whatever the tokens of a tail are.
        let of_tail = LossOptions {
            token_weights: Some(shares.of_tokens.clone().into()),
            z_loss: options.z_loss,
            reduction: Reduction::Sum,
            per_token: options.per_token,
            ..LossOptions::new()
        };
        // Priors are those of the head cluster.
        let of_head =
            LossOptions { prior_cv: options.prior_cv, statistics: options.statistics, ..of_tail.clone() };
        let of_hidden = |counted: &CountedTokens| counted.of_hidden(hidden.clone());
        let mut made = of_part(&head.head_cluster, division.head, of_head, &device, of_hidden)?;
        for (tail, targets) in head.tails().iter().zip(division.tails) {
            let added = tail.loss(targets, of_tail.clone(), &hidden)?;
            made.value = made.value + added.value;
            made.per_token = made.per_token.zip(added.per_token).map(|(all, added)| all + added);
        }
        if options.entropy_bonus != 0.0 {
            let asked = PartTargets::of_words(&words, Some).words;
            let entropies = LogProbOptions { ignored: vec![IGNORED], entropy: true };
            let (_, entropy) = head.log_probs_of_words(hidden.clone(), &asked, 1, &entropies)?;
            let entropy = entropy.expect("it is asked for").reshape([tokens]).cast(on.1);
            let bonus = shares.of_tokens.clone() * entropy * -options.entropy_bonus;
            made.value = made.value + bonus.clone().sum();
            made.per_token = made.per_token.map(|losses| losses + bonus);
        }
        let statistics = made.statistics.zip(masses);
        let statistics = statistics
            .map(|(of_head, masses)| head.statistics(hidden, of_head, &words, masses))
            .transpose()?;
        Ok(Loss {
            value: shares.finish(made.value),
            per_token: made.per_token.map(|losses| shares.undone(losses).reshape(shape)),
            prior_cv: made.prior_cv,
            statistics: statistics.map(|statistics| statistics.reshape(shape)),
        })
    }

    /// How what the tokens are scored against divides among the parts.
    ///
    /// - words: none where a token does not count
    fn divided(
        &self,
        words: &[Option<usize>],
        options: &LossOptions,
        on: (&Device, DType),
    ) -> Result<Division, HeadError> {
        let (clusters, smoothing) = (self.clusters, options.label_smoothing);
        let (tokens, vocab) = (words.len(), clusters.vocab);
        if let Some(TargetDistribution::Dense(distributions)) = &options.distribution {
            let rows = distributions.clone().reshape([tokens, vocab]).tensor::<2>();
            let mut rows = rows.cast(on.1);
            if smoothing != 0.0 {
                let unmasked: Vec<f64> =
                    self.unmasked()?.into_iter().map(|unmasked| f64::from(u8::from(unmasked))).collect();
                let level = smoothing / unmasked.iter().sum::<f64>();
                let unmasked = Tensor::<1>::from_data(unmasked.as_slice(), on);
                rows = rows * (1.0 - smoothing) + unmasked.reshape([1, vocab]) * level;
            }
            let head_rows = self.head_cluster.decoder.rows();
            return Ok(Division::of_distributions(clusters, words, rows, head_rows));
        }
        let mut rounding = 0.0;
        let listed: Vec<Vec<(usize, f64)>> = match &options.distribution {
            Some(TargetDistribution::Teacher { ids, probs }) => {
                rounding = probs.dtype().finfo().expect("a float type").epsilon;
                let probs = probs.clone().reshape([probs.num_elements()]).tensor::<1>();
                let (ids, probs) = (ids.clone().into_data(), probs.into_data());
                let ids = ids.iter::<i64>().map(|word| word as usize);
                let pairs: Vec<_> = ids.zip(probs.iter::<f64>()).collect();
                pairs.chunks(pairs.len() / tokens).map(<[_]>::to_vec).collect()
            }
            _ if smoothing == 0.0 => return Ok(Division::of_words(clusters, words)),
            _ => words.iter().map(|word| word.iter().map(|word| (*word, 1.0)).collect()).collect(),
        };
        let unmasked = self.unmasked()?;
        let all = Words::new(&unmasked);
        let targets = listed.into_iter().zip(words).map(|(listed, word)| match word {
            Some(_) => Target::new(listed, rounding, smoothing, &all),
            None => Target::nothing(),
        });
        Ok(Division::of_targets(clusters, words, &targets.collect::<Vec<_>>(), &unmasked, on))
    }

    /// The same head with one latent mask for all that a loss calls.
    fn of_one_loss(&self, leading: &[usize], options: &LossOptions) -> Self {
        let head_cluster = match options.statistics || options.entropy_bonus != 0.0 {
            true => self.head_cluster.with_drawn_mask(leading),
            false => self.head_cluster.clone(),
        };
        Self { head_cluster, clusters: self.clusters }
    }

    /// Which words are not masked, and whose clusters are not.
    pub(super) fn unmasked(&self) -> Result<Vec<bool>, HeadError> {
        let ranges: Vec<_> = self.clusters.ranges().collect();
        let mut unmasked = vec![true; self.clusters.vocab];
        for (range, tail) in ranges.iter().zip(self.tails()) {
            let masked = tail.head.masked_rows()?.into_iter().filter(|row| *row < range.len());
            masked.for_each(|row| unmasked[range.start + row] = false);
        }
        for row in self.head_cluster.masked_rows()? {
            match row.checked_sub(self.clusters.shortlist()) {
                None => unmasked[row] = false,
                // None of padding.
                Some(cluster) => {
                    ranges.get(cluster).into_iter().for_each(|range| unmasked[range.clone()].fill(false));
                }
            }
        }
        Ok(unmasked)
    }

    /// The statistics of all words from those of the head cluster.
    ///
    /// - words: none where a token does not count
    /// - masses: `Q_i` of all tokens, `[N]` for each tail
    fn statistics<const D: usize>(
        &self,
        hidden: Tensor<D>,
        of_head: TokenStatistics<1>,
        words: &[Option<usize>],
        masses: Vec<Tensor<1>>,
    ) -> Result<TokenStatistics<1>, HeadError> {
        let (hidden, mut made) = (hidden.detach(), of_head);
        let (best, likeliest, clusters) = self.words_of_head(hidden.clone())?;
        (made.max_log_prob, made.argmax) = (best, likeliest.cast(made.argmax.dtype()));
        let [tokens] = made.nll.dims();
        // By token, or gradients would be made for the sum.
        let options = LossOptions::new().with_per_token(true).with_statistics(true);
        let tails = self.tails().into_iter().zip(self.clusters.ranges()).zip(masses);
        for (cluster, ((tail, range), mass)) in tails.enumerate() {
            let targets = PartTargets::of_words(words, |word| Some(place(word, &range).unwrap_or(0)));
            let own =
                tail.loss(targets, options.clone(), &hidden)?.statistics.expect("statistics are asked for");
            let elsewhere = words.iter().map(|word| word.is_none_or(|word| !range.contains(&word)));
            let elsewhere: Vec<bool> = elsewhere.collect();
            let elsewhere = Tensor::from_data(elsewhere.as_slice(), &own.nll.device());
            made.nll = made.nll + own.nll.mask_fill(elsewhere, 0.0);
            made.z_term = made.z_term + own.z_term * mass;
            let of_cluster = clusters.clone().narrow(1, cluster, 1).reshape([tokens]);
            made.entropy = made.entropy + own.entropy * of_cluster.clone().exp();
            let best = own.max_log_prob + of_cluster;
            let better = best.clone().greater(made.max_log_prob.clone());
            made.max_log_prob = made.max_log_prob.mask_where(better.clone(), best);
            made.argmax = made.argmax.mask_where(better, own.argmax.add_scalar(range.start as i64));
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
        for block in self.head_cluster.constant(hidden)?.into_chunks() {
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

impl TailHead {
    /// The loss by targets among the cluster's words: only the contexts of tokens that have a share in it are made.
    fn loss<const D: usize>(
        &self,
        targets: PartTargets,
        options: LossOptions,
        hidden: &Tensor<D>,
    ) -> Result<Loss<1>, HeadError> {
        of_part(&self.head, targets, options, &hidden.device(), |counted| {
            Tokens::all(self.contexts(counted.of_hidden(hidden.clone()).hidden()))
        })
    }
}

/// The loss of a part by targets of its own.
///
/// - contexts: hidden states of the part, of the tokens that have a share in it
fn of_part(
    part: &OutputHead,
    targets: PartTargets,
    options: LossOptions,
    device: &Device,
    contexts: impl FnOnce(&CountedTokens) -> Tokens,
) -> Result<Loss<1>, HeadError> {
    let PartTargets { words, distribution, share } = targets;
    let mut options = LossOptions { distribution, ignored: vec![IGNORED], read_back: true, ..options };
    if let (Some(weights), Some(share)) = (options.token_weights.clone(), share) {
        // What a token that does not count is scored against may be anything.
        let none: Vec<bool> = words.iter().map(|word| *word == IGNORED).collect();
        let share = share.clone().mask_fill(Tensor::from_data(none.as_slice(), &share.device()), 0.0);
        options.token_weights = Some(weights.cast(share.dtype()) * share.into());
    }
    let words = Tensor::<1, Int>::from_data(words.as_slice(), device);
    loss_of_counted(
        words,
        &options,
        part.decoder.vocab,
        || part.bias(),
        |counted| part.likelihood_input(contexts(counted), ContextPath::Native),
    )
}
