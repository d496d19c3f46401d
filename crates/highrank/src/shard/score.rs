//! Losses and log-probabilities.

use burn::tensor::{Device, Int, Tensor};
use highrank_kernels::Floats;

use super::exchange::{gathered, total, tracked};
use super::group::ShardError;
use super::head::ShardedHead;
use super::sweep::{NO_WORD, OwnWords, Swept};
use crate::likelihood::{self, Beside};
use crate::loss::{
    CountedTokens, ListedWords, Loss, LossOptions, check_targets, check_words, leading, of_targets, reduced,
};
use crate::ops::{LikelihoodInput, Objective, Scores, Statistic, Targets, wide};
use crate::{LogProbOptions, TokenLogProbs};

/// What the words of all ranks have together.
struct AllWords {
    /// `−Σ_v log P(v)` over the unmasked words, `[N, 1]`.
    nll: Tensor<2>,
    /// `V'`, how many there are.
    unmasked: f64,
    /// Entropy, likeliest word and its log-probability, each `[N, 1]`, where asked for.
    statistics: Option<[Tensor<2>; 3]>,
}

impl ShardedHead {
    /// Mean of the tokens' negative log-likelihoods in nats: [`OutputHead::loss`](crate::OutputHead::loss) of the whole head.
    ///
    /// # Shapes
    /// - hidden: `[.., H]`, D dimensions
    /// - targets: `[..]`, T = D − 1 dimensions, words of the whole vocabulary
    /// - output: `[1]`
    ///
    /// # Errors
    /// What that panics for, and whatever the group has to say.
    ///
    /// # Panics
    /// The backward pass, if the group has an error then.
    pub fn loss<const D: usize, const T: usize>(
        &self,
        hidden: Tensor<D>,
        targets: Tensor<T, Int>,
    ) -> Result<Tensor<1>, ShardError> {
        Ok(self.loss_with(hidden, targets, &LossOptions::new())?.value)
    }

    /// The loss that the options describe: ignored tokens, token weights, class weights of single words, label smoothing, z-loss,
    /// entropy bonus, the variation of priors, reduction, values of tokens, statistics.
    ///
    /// # Errors
    /// As [`loss`](Self::loss); [`ShardError::Unsupported`] of an option that asks for more: distributions as targets, class weights
    /// beside smoothing, a z-loss or an entropy bonus.
    pub fn loss_with<const D: usize, const T: usize>(
        &self,
        hidden: Tensor<D>,
        targets: Tensor<T, Int>,
        options: &LossOptions,
    ) -> Result<Loss<T>, ShardError> {
        let (checks, vocab) = (self.head.check(&hidden)?, self.vocab());
        let shape = leading::<D, T>(&hidden.dims(), of_targets(&targets))?;
        check_targets(&targets, shape, options, self.shared.whole.rows(), vocab, &checks)?;
        self.head.check_use(options)?;
        let has_more =
            options.label_smoothing != 0.0 || options.z_loss != 0.0 || options.entropy_bonus != 0.0;
        if options.distribution.is_some() {
            let what = "a loss under target distributions";
            return Err(ShardError::Unsupported { what, instead: "use single words" });
        }
        if options.class_weights.is_some() && has_more {
            let what = "a loss with class weights beside label smoothing, a z-loss or an entropy bonus";
            return Err(ShardError::Unsupported { what, instead: "leave out either" });
        }
        let weight = self.head.decoder.matrix()?;
        let on = (&weight.device(), wide(weight.dtype()));
        let targets = targets.reshape([shape.iter().product::<usize>()]);
        let counted = CountedTokens::new(targets, options, vocab, || Ok(Some(self.largest_if_safe(on.0))))?;
        let words = counted.objective(on).targets.words().clone().tensor::<1>();
        let swept = self.sweep(counted.of_hidden(hidden), words.unsqueeze_dim(1))?;
        reduced(&counted, options, shape, on, swept.component_log_prior.clone(), |objective, weights| {
            Ok(self.scores(&swept, &objective)?.weighted(weights.map(Floats::from)))
        })
    }

    /// The log-probabilities of m words of each token, in nats, and what else the options ask for:
    /// [`OutputHead::token_log_probs`](crate::OutputHead::token_log_probs) of the whole head. Differentiable.
    ///
    /// # Shapes
    /// - hidden: `[.., H]`
    /// - words: `[.., m]`, m at least 1
    /// - output: log-probabilities `[.., m]`, entropies `[.., 1]`
    ///
    /// An entropy takes a second sweep and another exchange.
    ///
    /// # Errors
    /// As [`loss`](Self::loss). On CPUs also for a word that is not ignored and outside of the vocabulary; on other devices its
    /// log-probability is NaN.
    pub fn token_log_probs<const D: usize>(
        &self,
        hidden: Tensor<D>,
        words: Tensor<D, Int>,
        options: &LogProbOptions,
    ) -> Result<TokenLogProbs<D>, ShardError> {
        let (checks, shape) = (self.head.check(&hidden)?, words.dims());
        check_words(&hidden.dims(), &shape)?;
        checks.device("words", &words.device())?;
        let width = shape[D - 1];
        let words = words.reshape([shape.iter().product::<usize>() / width, width]);
        let bias = Some(self.largest_if_safe(&self.head.decoder.matrix()?.device()));
        let listed = ListedWords::new(words, &options.ignored, self.vocab(), bias, false)?;
        let swept = self.sweep(listed.of_hidden(hidden), listed.ids())?;
        let entropy = match options.entropy {
            true => Some(listed.of_tokens(self.entropy(&swept)?)),
            false => None,
        };
        Ok(TokenLogProbs::of_rows(listed.among_all(swept.log_probs), entropy, shape))
    }

    /// In place of a bias over all words: the largest is that of the safe word.
    fn largest_if_safe(&self, device: &Device) -> Tensor<1> {
        let words = Tensor::<1, Int>::arange(0..self.vocab() as i64, device);
        words.equal_elem(self.shared.safe_word as i64).float()
    }

    /// The loss of each token, `[N]`, and statistics where asked for.
    fn scores(&self, swept: &Swept, objective: &Objective) -> Result<Scores, ShardError> {
        let smoothing = objective.label_smoothing;
        let nll = -swept.log_probs.clone();
        // That of nothing but masked words counts as 0, as in the whole head.
        let has_no_word = swept.normaliser.clone().lower_equal_elem(NO_WORD / 2.0);
        let normaliser = swept.normaliser.clone().mask_fill(has_no_word, 0.0);
        let squared = normaliser.clone() * normaliser;
        let z_term = match &swept.log_prior {
            Some(log_prior) => (squared * log_prior.clone().exp()).sum_dim(1),
            None => squared,
        };
        let all_words = match smoothing != 0.0 || objective.statistics {
            true => Some(self.all_words(swept, objective)?),
            false => None,
        };
        let mut loss = nll.clone();
        if let Some(AllWords { nll: of_all, unmasked, .. }) = all_words.as_ref().filter(|_| smoothing != 0.0)
        {
            loss = loss * (1.0 - smoothing) + of_all.clone() * (smoothing / unmasked.max(1.0));
        }
        if objective.z_loss != 0.0 {
            loss = loss + z_term.clone() * objective.z_loss;
        }
        if let Some(factor) = &objective.entropy {
            let factor = factor.clone().tensor::<1>().cast(loss.dtype()).unsqueeze_dim::<2>(1);
            loss = loss + self.entropy(swept)? * factor;
        }
        let statistics =
            all_words.and_then(|all_words| all_words.statistics).map(|[entropy, argmax, max]| {
                let mut columns: [_; Statistic::COUNT] = std::array::from_fn(|_| nll.clone());
                columns[Statistic::Entropy as usize] = entropy;
                columns[Statistic::Argmax as usize] = argmax;
                columns[Statistic::MaxLogProb as usize] = max;
                columns[Statistic::ZTerm as usize] = z_term;
                Tensor::cat(columns.to_vec(), 1).detach().into()
            });
        Ok(Scores { loss: loss.squeeze_dim::<1>(1).into(), statistics, listed: None })
    }

    /// `H`, `[N, 1]`, by another sweep: every rank has the part of its words, `s (H^r − log s)` with what they have of all, `s`.
    fn entropy(&self, swept: &Swept) -> Result<Tensor<2>, ShardError> {
        let OwnWords { input, share } = self.own_words(swept);
        let own = match self.rows().len() == self.head.masked_rows()?.len() {
            true => nothing(input, share),
            false => {
                let words = Tensor::<2, Int>::zeros([swept.tokens(), 1], &swept.normaliser.device());
                let beside = Beside { entropy: true, normaliser: false };
                let made = likelihood::listed(input, self.safe_row(&words)?.into(), beside);
                let of_own = made.tensor::<2>().narrow(1, 1, 1);
                match share {
                    Some(share) => share.clone().exp() * (of_own - share),
                    None => of_own,
                }
            }
        };
        let all = gathered(&**self.group(), &own)?;
        Ok(total(tracked(&**self.group(), own, all)))
    }

    /// The second sweep.
    fn all_words(&self, swept: &Swept, objective: &Objective) -> Result<AllWords, ShardError> {
        let unmasked = (self.rows().len() - self.head.masked_rows()?.len()) as f64;
        let of_all = self.group().gather_f64(&[unmasked])?.into_iter().sum();
        let OwnWords { input, share } = self.own_words(swept);
        let first = self.rows().start as f64;
        let (nll, statistics) = match unmasked == 0.0 {
            true => {
                let nothing = nothing(input, share);
                let constant = |value: f64| nothing.clone().detach() + value;
                let statistics = [0.0, first, f64::NEG_INFINITY].map(constant);
                (nothing, objective.statistics.then(|| Tensor::cat(statistics.to_vec(), 1)))
            }
            false => {
                let words = Tensor::<1, Int>::zeros([swept.tokens()], &swept.normaliser.device());
                let objective = Objective {
                    // The whole target distribution is spread over the rank's words.
                    label_smoothing: 1.0,
                    statistics: objective.statistics,
                    ..Objective::new(Targets::Words(self.safe_row(&words)?.into()))
                };
                let scores = likelihood::loss(input, objective, None);
                let mut nll = scores.loss.tensor::<1>().unsqueeze_dim::<2>(1);
                let mut statistics = scores.statistics.map(|all| {
                    let all = all.tensor::<2>();
                    [Statistic::Entropy, Statistic::Argmax, Statistic::MaxLogProb]
                        .map(|of| all.clone().narrow(1, of as usize, 1))
                });
                if let Some(share) = share {
                    nll = nll - share.clone();
                    statistics = statistics.map(|[entropy, argmax, max]| {
                        let share = share.detach();
                        // −Σ s p log(s p) = s (H − log s)
                        [share.clone().exp() * (entropy - share.clone()), argmax, max + share]
                    });
                }
                let statistics = statistics
                    .map(|[entropy, argmax, max]| Tensor::cat(vec![entropy, argmax + first, max], 1));
                (nll * unmasked, statistics)
            }
        };
        let has_statistics = statistics.is_some();
        let sent = Tensor::cat(std::iter::once(nll.clone()).chain(statistics).collect(), 1);
        let all = gathered(&**self.group(), &sent)?;
        let column = |at| all.iter().map(move |all: &Tensor<2>| all.clone().narrow(1, at, 1));
        let statistics = has_statistics.then(|| {
            let best = column(2).zip(column(3)).reduce(|(word, log_prob), (other, of_other)| {
                // The lowest of equals is that of the lower rank.
                let is_better = of_other.clone().greater(log_prob.clone());
                (word.mask_where(is_better.clone(), other), log_prob.mask_where(is_better, of_other))
            });
            let (argmax, max_log_prob) = best.expect("a group has a rank");
            [total(column(1)), argmax, max_log_prob]
        });
        let nll = total(tracked(&**self.group(), nll, column(0).collect()));
        Ok(AllWords { nll, unmasked: of_all, statistics })
    }
}

/// 0 of every token, `[N, 1]`, of a rank all of whose words are masked. As part of the graph: its backward pass is a step of all ranks.
fn nothing(input: LikelihoodInput, share: Option<Tensor<2>>) -> Tensor<2> {
    let log_prior = share.or(input.log_prior.map(Floats::tensor));
    log_prior.expect("priors or a share").sum_dim(1) * 0.0
}
