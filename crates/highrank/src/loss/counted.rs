//! The tokens that count, and what belongs to them.

use burn::tensor::{DType, Device, Int, Tensor, TensorData};

use super::options::TargetDistribution;
use super::rows::{ScoredRows, equal_to_any, in_wide_integers, is_cpu, safe_words};
use super::{LossOptions, TokenStatistics};
use crate::context::Tokens;
use crate::error::HeadError;
use crate::likelihood::Shares;
use crate::ops::{Objective, Targets, wide};

/// What the tokens that count are scored against, and the way from all tokens there and back.
#[derive(Debug)]
pub(crate) struct CountedTokens {
    rows: ScoredRows,
    /// But for the entropy.
    objective: Objective,
    /// `λ`, if it is not 0.
    entropy_bonus: Option<f64>,
    /// Of the tokens that are scored; `None` means that all weights are 1.
    weights: Option<Tensor<1>>,
    /// What a mean divides by the sum of, if that is not the weights.
    divisors: Option<Tensor<1>>,
}

impl CountedTokens {
    /// The tokens that count, for targets and options that fit each other.
    ///
    /// - bias: of the decoder, −∞ for masked words; made where it is needed
    ///
    /// # Errors
    /// On CPUs, what is wrong with the values of a token that counts.
    pub(crate) fn new(
        targets: Tensor<1, Int>,
        options: &LossOptions,
        vocab: usize,
        bias: impl FnOnce() -> Result<Option<Tensor<1>>, HeadError>,
    ) -> Result<Self, HeadError> {
        let targets = in_wide_integers(targets);
        let [tokens] = targets.dims();
        let Weights { weights, divisors, of_words } = Weights::new(&targets, options, vocab)?;
        let rows = match options.read_back || is_cpu(&targets.device()) {
            true => {
                let (_, counts) = checked_words(&targets, weights.as_ref(), options, vocab)?;
                ScoredRows::keeping(&counts, &targets.device())
            }
            false => on_device(&targets, weights.as_ref(), options),
        };
        let words = rows.selected(targets);
        let words = match rows.blank.clone() {
            None => words,
            // Its loss, which counts for nothing, is a number.
            Some(blank) => {
                let safe = safe_words(bias()?, &words);
                words.mask_where(blank, safe)
            }
        };
        let words = outside_of_padding(words, vocab).into();
        let targets = match &options.distribution {
            None => Targets::Words(words),
            Some(TargetDistribution::Teacher { ids, probs }) => {
                let listed = ids.shape().num_elements() / tokens;
                let ids = in_wide_integers(ids.clone().reshape([tokens, listed]).tensor::<2>());
                let probs = probs.clone().reshape([tokens, listed]).tensor::<2>();
                let ids = outside_of_padding(rows.of(ids), vocab).into();
                Targets::Teacher { words, ids, probs: rows.of(probs).into() }
            }
            Some(TargetDistribution::Dense(distributions)) => {
                let width = distributions.num_elements() / tokens;
                let distributions = distributions.clone().reshape([tokens, width]).tensor::<2>();
                Targets::Distributions { words, rows: rows.of(distributions).into() }
            }
            Some(TargetDistribution::Model(teacher, divergence)) => {
                let teacher = Box::new(teacher.of(rows.of_tokens(teacher.tokens()))?);
                Targets::Model { words, teacher, divergence: *divergence }
            }
        };
        let objective = Objective {
            targets,
            class_weights: of_words.map(Into::into),
            label_smoothing: options.label_smoothing,
            z_loss: options.z_loss,
            entropy: None,
            normaliser: None,
            statistics: options.statistics,
        };
        let weights = rows.weights(weights);
        // Without any the weights themselves: ones in their place would divide by the number of tokens.
        let divisors = divisors.and_then(|divisors| rows.weights(Some(divisors)));
        let entropy_bonus = (options.entropy_bonus != 0.0).then_some(options.entropy_bonus);
        Ok(Self { rows, objective, entropy_bonus, weights, divisors })
    }

    /// What the scored tokens are scored against.
    pub(crate) fn objective(&self, on: (&Device, DType)) -> Objective {
        let bonus = |lambda: f64| Tensor::<1>::full([self.rows.scored()], -lambda, on).into();
        Objective { entropy: self.entropy_bonus.map(bonus), ..self.objective.clone() }
    }

    /// The hidden states that are scored.
    pub(crate) fn of_hidden<const D: usize>(&self, hidden: Tensor<D>) -> Tokens {
        self.rows.of_tokens(Tokens::all(hidden))
    }

    /// What the scored tokens are multiplied with in a mean.
    pub(crate) fn shares(&self, on: (&Device, DType)) -> Shares {
        if self.weights.is_none() && self.divisors.is_none() {
            return Shares::even(self.rows.scored(), on);
        }
        let weights = self.weights(on);
        let divisors = self.divisors.clone().map_or_else(|| weights.clone(), |sums| sums.cast(on.1));
        Shares::weighted(weights, divisors)
    }

    /// What the scored tokens count in the mean of their priors, and the sum of that, `[1]`.
    pub(crate) fn prior_shares(&self, on: (&Device, DType)) -> (Tensor<1>, Tensor<1>) {
        let counts = self.divisors.clone().map_or_else(|| self.weights(on), |sums| sums.cast(on.1));
        (Shares::weighted(counts.clone(), counts.clone()).of_tokens, counts.sum())
    }

    /// What the scored tokens are multiplied with in a sum.
    pub(crate) fn weights(&self, on: (&Device, DType)) -> Tensor<1> {
        let of_tokens = self.weights.clone().map(|weights| weights.cast(on.1));
        of_tokens.unwrap_or_else(|| Tensor::ones([self.rows.scored()], on))
    }

    /// Values of all tokens, for those of the scored ones; 0 for the others.
    pub(crate) fn among_all<const T: usize>(&self, values: Tensor<1>, shape: [usize; T]) -> Tensor<T> {
        self.rows.spread(values.unsqueeze_dim(1)).reshape(shape)
    }

    /// Statistics of all tokens.
    pub(crate) fn statistics<const T: usize>(
        &self,
        rows: Tensor<2>,
        shape: [usize; T],
    ) -> TokenStatistics<T> {
        let ones = rows.ones_like().narrow(1, 0, 1);
        TokenStatistics::new(self.rows.spread(rows), self.rows.spread(ones), shape)
    }
}

/// How much tokens and words count.
struct Weights {
    /// Of each token's loss, `[N]`.
    weights: Option<Tensor<1>>,
    /// What a mean divides by the sum of, if that is not the weights, `[N]`.
    divisors: Option<Tensor<1>>,
    /// Of each word's part of a token's loss, `[V]`.
    of_words: Option<Tensor<1>>,
}

impl Weights {
    /// Of [wide](in_wide_integers) targets. Where a token's loss is that of its word alone, the word's weight is one of the token.
    fn new(targets: &Tensor<1, Int>, options: &LossOptions, vocab: usize) -> Result<Self, HeadError> {
        let [tokens] = targets.dims();
        let widened = |weights: Tensor<1>| {
            let dtype: DType = wide(weights.dtype());
            weights.cast(dtype)
        };
        let weights =
            options.token_weights.clone().map(|weights| widened(weights.reshape([tokens]).tensor()));
        let Some(classes) = &options.class_weights else {
            return Ok(Self { weights, divisors: None, of_words: None });
        };
        let classes = widened(classes.clone().tensor());
        if is_cpu(&classes.device()) {
            checked_weights(&classes, |_| true)?;
        }
        if options.distribution.is_some() {
            return Ok(Self { weights, divisors: None, of_words: Some(classes) });
        }
        // What is no word is refused if it is not ignored, whatever the words weigh.
        let last = vocab as i64 - 1;
        let outside = targets.clone().lower_elem(0).bool_or(targets.clone().greater_elem(last));
        let of_token = classes.clone().select(0, targets.clone().clamp(0, last)).mask_fill(outside, 1.0);
        let product = match weights.clone() {
            Some(weights) => {
                let wider = if weights.dtype() == DType::F64 { DType::F64 } else { of_token.dtype() };
                weights.cast(wider) * of_token.cast(wider)
            }
            None => of_token,
        };
        let is_alone =
            options.label_smoothing == 0.0 && options.z_loss == 0.0 && options.entropy_bonus == 0.0;
        Ok(match is_alone {
            true => Self { weights: Some(product), divisors: None, of_words: None },
            false => Self { weights, divisors: Some(product), of_words: Some(classes) },
        })
    }
}

/// The target words of the tokens that count, read back from the device.
pub(crate) struct CountedWords {
    /// None for a token that does not count.
    pub(crate) words: Vec<Option<usize>>,
    /// Of all tokens; `None` means that all weights are 1. Those of tokens that do not count may be anything.
    pub(crate) weights: Option<Tensor<1>>,
}

impl CountedWords {
    /// For targets and options that fit each other.
    ///
    /// # Errors
    /// What is wrong with the values of a token that counts. Class weights where words are not scored alone.
    pub(crate) fn read(
        targets: &Tensor<1, Int>,
        options: &LossOptions,
        vocab: usize,
    ) -> Result<Self, HeadError> {
        let targets = &in_wide_integers(targets.clone());
        let Weights { weights, of_words, .. } = Weights::new(targets, options, vocab)?;
        if of_words.is_some() {
            let reason = "a head with clusters has them for single words alone: leave out label smoothing, the z-loss, the entropy bonus and other targets";
            return Err(HeadError::Unused { option: "class_weights", reason });
        }
        let (words, counts) = checked_words(targets, weights.as_ref(), options, vocab)?;
        let words = words.into_iter().zip(&counts).map(|(word, counts)| counts.then_some(word as usize));
        Ok(Self { words: words.collect(), weights })
    }
}

/// A negative number in place of a word beyond the vocabulary, which a row of the decoder's padding could stand for. Values on CPUs have
/// been checked.
fn outside_of_padding<const D: usize>(words: Tensor<D, Int>, vocab: usize) -> Tensor<D, Int> {
    match is_cpu(&words.device()) {
        true => words,
        false => words.clone().mask_fill(words.greater_elem(vocab as i64 - 1), -1),
    }
}

/// The targets, and which tokens count, on the host.
///
/// # Errors
/// What is wrong with the values of a token that counts.
fn checked_words(
    targets: &Tensor<1, Int>,
    weights: Option<&Tensor<1>>,
    options: &LossOptions,
    vocab: usize,
) -> Result<(Vec<i64>, Vec<bool>), HeadError> {
    let words = read(targets);
    let is_ignored = |token: usize| options.ignored.contains(&words[token]);
    let weights = weights.map(|weights| checked_weights(weights, |token| !is_ignored(token))).transpose()?;
    let counts: Vec<bool> = (0..words.len())
        .map(|token| !is_ignored(token) && weights.as_ref().is_none_or(|weights| weights[token] != 0.0))
        .collect();
    validate_words(&words, 1, vocab, |token| counts[token])?;
    if let Some(TargetDistribution::Teacher { ids, probs }) = &options.distribution {
        validate_teacher(&ids.clone().into_data(), &probs.clone().into_data(), vocab, &counts)?;
    }
    Ok((words, counts))
}

/// Checks that every target is a word of the vocabulary, `0 ≤ target < V`.
///
/// Reads the targets back from the device. On CPU backends a loss checks those of the tokens that count by itself.
///
/// # Errors
/// [`HeadError::Target`] with the first target outside, counted in row-major order.
pub fn validate_targets<const D: usize>(targets: &Tensor<D, Int>, vocab: usize) -> Result<(), HeadError> {
    validate_words(&read(targets), 1, vocab, |_| true)
}

/// The numbers of a tensor, on the host.
pub(crate) fn read<const D: usize>(targets: &Tensor<D, Int>) -> Vec<i64> {
    targets.to_data().iter::<i64>().collect()
}

/// Checks the words that count, so many a token.
pub(crate) fn validate_words(
    words: &[i64],
    of_token: usize,
    vocab: usize,
    counts: impl Fn(usize) -> bool,
) -> Result<(), HeadError> {
    let outside = |place: &usize| counts(*place) && !(0..vocab as i64).contains(&words[*place]);
    match (0..words.len()).find(outside) {
        Some(place) => Err(HeadError::Target { target: words[place], token: place / of_token, vocab }),
        None => Ok(()),
    }
}

/// The tokens that count, without waiting for the device to say.
fn on_device(targets: &Tensor<1, Int>, weights: Option<&Tensor<1>>, options: &LossOptions) -> ScoredRows {
    let ignored = equal_to_any(targets, &options.ignored).into_iter();
    let weightless = weights.map(|weights| weights.clone().detach().equal_elem(0.0));
    let blank = ignored.chain(weightless).reduce(Tensor::bool_or);
    ScoredRows { tokens: targets.dims()[0], kept: None, blank }
}

/// Weights as numbers, of which those that are `read` are at least 0.
fn checked_weights(weights: &Tensor<1>, read: impl Fn(usize) -> bool) -> Result<Vec<f64>, HeadError> {
    let values: Vec<f64> = weights.to_data().iter::<f64>().collect();
    let wrong = |(token, value): &(usize, &f64)| read(*token) && !(**value >= 0.0 && value.is_finite());
    match values.iter().enumerate().find(wrong) {
        Some((token, value)) => Err(HeadError::Weight { token, value: *value }),
        None => Ok(values),
    }
}

/// Checks the rows of the tokens that count: words of the vocabulary, all different, and probabilities that a distribution
/// can have.
///
/// # Errors
/// [`HeadError::TeacherWord`] or [`HeadError::TeacherRow`] of the first row that is wrong.
fn validate_teacher(
    ids: &TensorData,
    probs: &TensorData,
    vocab: usize,
    counts: &[bool],
) -> Result<(), HeadError> {
    let width = ids.shape().last().copied().unwrap_or(1).max(1);
    let (ids, probs): (Vec<i64>, Vec<f64>) = (ids.iter().collect(), probs.iter().collect());
    for (token, (ids, probs)) in ids.chunks(width).zip(probs.chunks(width)).enumerate() {
        if !counts[token] {
            continue;
        }
        let mut sorted = ids.to_vec();
        sorted.sort_unstable();
        let outside = sorted.iter().find(|word| !(0..vocab as i64).contains(word));
        let twice = sorted.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| &pair[0]);
        if let Some(&word) = outside.or(twice) {
            return Err(HeadError::TeacherWord { word, token, vocab });
        }
        let sum: f64 = probs.iter().sum();
        // Rounding to bfloat16 adds up to four thousandths. Those of clusters have been widened since.
        if probs.iter().any(|p| p.is_nan() || *p < 0.0) || sum > 1.0 + 4e-3 {
            let least = probs.iter().copied().fold(f64::INFINITY, f64::min);
            return Err(HeadError::TeacherRow { token, sum, least });
        }
    }
    Ok(())
}
