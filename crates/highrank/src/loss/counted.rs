//! The tokens that count, and what belongs to them.

use std::sync::Arc;

use burn::backend::Dispatch;
use burn::tensor::{Bool, DType, Device, IndexingUpdateOp, Int, Tensor};

use super::options::TargetDistribution;
use super::teacher::{self, TeacherRows};
use super::{LossOptions, TokenStatistics};
use crate::context::Tokens;
use crate::error::HeadError;
use crate::likelihood::Shares;
use crate::ops::{self, Objective, Targets, wide};

/// What the tokens that count are scored against, and the way from all tokens there and back.
#[derive(Debug)]
pub(crate) struct Counted {
    /// N.
    tokens: usize,
    /// Tokens that are scored.
    scored: usize,
    rows: Rows,
    objective: Objective,
    /// Of the tokens that are scored; `None` means that all weights are 1.
    weights: Option<Tensor<1>>,
    /// What a mean divides by the sum of, if that is not the weights.
    divisors: Option<Tensor<1>>,
}

/// Which rows of hidden states are scored.
// One lives at a time: the size of the largest variant costs nothing.
#[allow(clippy::large_enum_variant)]
#[derive(Debug)]
enum Rows {
    /// All of them.
    All,
    /// Those of the tokens that count, found on the host.
    Kept(Arc<[u32]>),
    /// All of them, but those of tokens that do not count hold 0 and have weight 0: `true` in `[N]` is such a token. Where
    /// the device would have to be waited for, or where nothing counts.
    Blanked(Tensor<1, Bool>),
}

impl Counted {
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
        let [tokens] = targets.dims();
        let Weights { weights, divisors, of_words } = Weights::new(&targets, options, vocab)?;
        let rows = match is_cpu(&targets.device()) {
            true => on_host(&targets, weights.as_ref(), options, vocab)?,
            false => on_device(&targets, weights.as_ref(), options),
        };
        let bias = if matches!(rows, Rows::Blanked(_)) { bias()? } else { None };
        let words = rows.of_ints(targets, |words, blank| {
            // A word that is not masked: its loss, which counts for nothing, is a number.
            let safe = match bias {
                Some(bias) => bias.detach().argmax(0).expand([tokens]),
                None => words.zeros_like(),
            };
            words.mask_where(blank, safe)
        });
        let words = words.into();
        let targets = match &options.distribution {
            None => Targets::Words(words),
            Some(TargetDistribution::Teacher { ids, probs }) => {
                let listed = ids.shape().num_elements() / tokens;
                let ids = ids.clone().reshape([tokens, listed]).tensor::<2>();
                let probs = probs.clone().reshape([tokens, listed]).tensor::<2>();
                let ids = rows.of_ints(ids, |ids, blank| {
                    let blank = blank.reshape([tokens, 1]).expand([tokens, listed]);
                    ids.mask_fill(blank, 0)
                });
                Targets::Teacher { words, ids: ids.into(), probs: rows.of(probs).into() }
            }
            Some(TargetDistribution::Dense(distributions)) => {
                let width = distributions.num_elements() / tokens;
                let distributions = distributions.clone().reshape([tokens, width]).tensor::<2>();
                Targets::Distributions { words, rows: rows.of(distributions).into() }
            }
        };
        let objective = Objective {
            targets,
            class_weights: of_words.map(Into::into),
            label_smoothing: options.label_smoothing,
            z_loss: options.z_loss,
            statistics: options.statistics,
        };
        let [weights, divisors] = [weights, divisors].map(|weights| rows.weights(weights, tokens));
        Ok(Self { tokens, scored: rows.scored(tokens), objective, weights, divisors, rows })
    }

    /// What the scored tokens are scored against.
    pub(crate) fn objective(&self) -> Objective {
        self.objective.clone()
    }

    /// The hidden states that are scored.
    pub(crate) fn of_hidden<const D: usize>(&self, hidden: Tensor<D>) -> Tokens {
        match &self.rows {
            Rows::All => Tokens::all(hidden),
            Rows::Kept(kept) => Tokens::kept(hidden, kept.clone()),
            Rows::Blanked(_) => {
                let shape = hidden.dims();
                let rows = self.rows.of(hidden.reshape([self.tokens, shape[D - 1]]));
                Tokens::all(rows.reshape(shape))
            }
        }
    }

    /// What the scored tokens are multiplied with in a mean.
    pub(crate) fn shares(&self, on: (&Device, DType)) -> Shares {
        if self.weights.is_none() && self.divisors.is_none() {
            return Shares::even(self.scored, on);
        }
        let weights = self.weights(on).cast(on.1);
        let divisors = self.divisors.clone().map_or_else(|| weights.clone(), |sums| sums.cast(on.1));
        Shares::weighted(weights, divisors)
    }

    /// What the scored tokens are multiplied with in a sum.
    pub(crate) fn weights(&self, on: (&Device, DType)) -> Tensor<1> {
        match &self.weights {
            None => Tensor::ones([self.scored], on),
            Some(weights) => weights.clone(),
        }
    }

    /// Values of all tokens, for those of the scored ones; 0 for the others.
    pub(crate) fn among_all<const T: usize>(&self, values: Tensor<1>, shape: [usize; T]) -> Tensor<T> {
        self.spread(values.reshape([self.scored, 1])).reshape(shape)
    }

    /// Statistics of all tokens.
    pub(crate) fn statistics<const T: usize>(
        &self,
        rows: Tensor<2>,
        shape: [usize; T],
    ) -> TokenStatistics<T> {
        let ones = rows.ones_like().narrow(1, 0, 1);
        TokenStatistics::new(self.spread(rows), self.spread(ones), shape)
    }

    /// Rows of the scored tokens among those of all tokens: 0 for those that do not count.
    fn spread(&self, rows: Tensor<2>) -> Tensor<2> {
        match &self.rows {
            Rows::Kept(kept) => {
                let (device, dtype, [_, width]) = (rows.device(), rows.dtype(), rows.dims());
                let numbers = Tokens::numbers(kept, &device);
                Tensor::zeros([self.tokens, width], (&device, dtype)).select_assign(
                    0,
                    numbers,
                    rows,
                    IndexingUpdateOp::Add,
                )
            }
            others => others.of(rows),
        }
    }
}

impl Rows {
    /// Those for which `counts` holds.
    fn keeping(tokens: usize, counts: impl Fn(usize) -> bool, device: &Device) -> Self {
        let kept: Arc<[u32]> = (0..tokens as u32).filter(|token| counts(*token as usize)).collect();
        match kept.len() {
            // A call without tokens has no shapes to work with.
            0 => Self::Blanked(Tensor::<1, Int>::zeros([tokens], device).equal_elem(0)),
            count if count == tokens => Self::All,
            _ => Self::Kept(kept),
        }
    }

    /// How many are scored, of so many tokens.
    fn scored(&self, tokens: usize) -> usize {
        match self {
            Self::Kept(kept) => kept.len(),
            Self::All | Self::Blanked(_) => tokens,
        }
    }

    /// The rows that are scored.
    fn of(&self, rows: Tensor<2>) -> Tensor<2> {
        match self {
            Self::All => rows,
            Self::Kept(kept) => {
                let numbers = Tokens::numbers(kept, &rows.device());
                rows.select(0, numbers)
            }
            Self::Blanked(blank) => {
                let [tokens, width] = rows.dims();
                rows.mask_fill(blank.clone().reshape([tokens, 1]).expand([tokens, width]), 0.0)
            }
        }
    }

    /// The integers of the tokens that are scored; `without` replaces those of blanked tokens.
    fn of_ints<const D: usize>(
        &self,
        values: Tensor<D, Int>,
        without: impl FnOnce(Tensor<D, Int>, Tensor<1, Bool>) -> Tensor<D, Int>,
    ) -> Tensor<D, Int> {
        match self {
            Self::All => values,
            Self::Kept(kept) => {
                let numbers = Tokens::numbers(kept, &values.device());
                values.select(0, numbers)
            }
            Self::Blanked(blank) => without(values, blank.clone()),
        }
    }

    /// The weights of the tokens that are scored.
    fn weights(&self, weights: Option<Tensor<1>>, tokens: usize) -> Option<Tensor<1>> {
        let column = |weights: Tensor<1>| self.of(weights.reshape([tokens, 1]));
        match (self, weights) {
            (Self::Blanked(blank), None) => {
                let ones = Tensor::<1>::ones([tokens], &blank.device());
                Some(ones.mask_fill(blank.clone(), 0.0))
            }
            (_, weights) => weights.map(|weights| {
                let scored = column(weights);
                let [count, _] = scored.dims();
                scored.reshape([count])
            }),
        }
    }
}

fn is_cpu(device: &Device) -> bool {
    ops::is_cpu::<Dispatch>(device.as_dispatch())
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
    /// Where a token's loss is that of its word alone, the word's weight is one of the token.
    fn new(targets: &Tensor<1, Int>, options: &LossOptions, vocab: usize) -> Result<Self, HeadError> {
        let [tokens] = targets.dims();
        let widened = |weights: Tensor<1>| {
            let dtype: DType = wide(weights.dtype());
            weights.cast(dtype)
        };
        let weights = options.weights_of_tokens(tokens).map(widened);
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
            Some(weights) => weights.cast(of_token.dtype()) * of_token,
            None => of_token,
        };
        Ok(match options.label_smoothing == 0.0 && options.z_loss == 0.0 {
            true => Self { weights: Some(product), divisors: None, of_words: None },
            false => Self { weights, divisors: Some(product), of_words: Some(classes) },
        })
    }
}

/// The target words of the tokens that count, and what a teacher says of them, read back from the device.
pub(crate) struct CountedWords {
    /// None for a token that does not count.
    pub(crate) words: Vec<Option<usize>>,
    /// Of all tokens; `None` means that all weights are 1. Those of tokens that do not count may be anything.
    pub(crate) weights: Option<Tensor<1>>,
    pub(crate) teacher: Option<TeacherRows>,
}

impl CountedWords {
    /// For targets and options that fit each other.
    ///
    /// # Errors
    /// What is wrong with the values of a token that counts. Class weights where words are not scored alone.
    ///
    /// # Panics
    /// If a teacher's probabilities are tracked.
    pub(crate) fn read(
        targets: &Tensor<1, Int>,
        options: &LossOptions,
        vocab: usize,
    ) -> Result<Self, HeadError> {
        let Weights { weights, of_words, .. } = Weights::new(targets, options, vocab)?;
        if of_words.is_some() {
            let reason = "a head with clusters has them for single words alone: leave out label smoothing, the z-loss and other targets";
            return Err(HeadError::Unused { option: "class_weights", reason });
        }
        let (words, counts) = checked_words(targets, weights.as_ref(), options, vocab)?;
        let teacher = match &options.distribution {
            Some(TargetDistribution::Teacher { ids, probs }) => {
                Some(TeacherRows::read(ids, probs, vocab, |token| counts[token])?)
            }
            _ => None,
        };
        let words = words.into_iter().zip(&counts).map(|(word, counts)| counts.then_some(word as usize));
        Ok(Self { words: words.collect(), weights, teacher })
    }

    /// The tokens that do not count, `[N]`; `None` if all do.
    pub(crate) fn blank(&self, device: &Device) -> Option<Tensor<1, Bool>> {
        let blank: Vec<bool> = self.words.iter().map(Option::is_none).collect();
        blank.contains(&true).then(|| Tensor::from_data(blank.as_slice(), device))
    }
}

/// The targets, and which tokens count.
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
    validate_words(&words, vocab, |token| counts[token])?;
    Ok((words, counts))
}

/// The tokens that count, and whether all that belongs to them is as it should be.
fn on_host(
    targets: &Tensor<1, Int>,
    weights: Option<&Tensor<1>>,
    options: &LossOptions,
    vocab: usize,
) -> Result<Rows, HeadError> {
    let (words, counts) = checked_words(targets, weights, options, vocab)?;
    let counts = |token: usize| counts[token];
    if let Some(TargetDistribution::Teacher { ids, probs }) = &options.distribution {
        teacher::validate(&ids.clone().into_data(), &probs.clone().into_data(), vocab, counts)?;
    }
    Ok(Rows::keeping(words.len(), counts, &targets.device()))
}

/// Checks that every target is a word of the vocabulary, `0 ≤ target < V`.
///
/// Reads the targets back from the device. On CPU backends a loss checks those of the tokens that count by itself.
///
/// # Errors
/// [`HeadError::Target`] with the first target outside.
pub fn validate_targets(targets: &Tensor<1, Int>, vocab: usize) -> Result<(), HeadError> {
    validate_words(&read(targets), vocab, |_| true)
}

fn read(targets: &Tensor<1, Int>) -> Vec<i64> {
    targets.to_data().iter::<i64>().collect()
}

/// Checks the words of the tokens that count.
fn validate_words(words: &[i64], vocab: usize, counts: impl Fn(usize) -> bool) -> Result<(), HeadError> {
    let outside = |token: &usize| counts(*token) && !(0..vocab as i64).contains(&words[*token]);
    match (0..words.len()).find(outside) {
        Some(token) => Err(HeadError::Target { target: words[token], token, vocab }),
        None => Ok(()),
    }
}

/// The tokens that count, without waiting for the device to say.
fn on_device(targets: &Tensor<1, Int>, weights: Option<&Tensor<1>>, options: &LossOptions) -> Rows {
    let ignored = options.ignored.iter().map(|index| targets.clone().equal_elem(*index));
    let weightless = weights.map(|weights| weights.clone().detach().equal_elem(0.0));
    match ignored.chain(weightless).reduce(Tensor::bool_or) {
        None => Rows::All,
        Some(blank) => Rows::Blanked(blank),
    }
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
