//! The tokens that count, and what belongs to them.

use std::sync::Arc;

use burn::backend::Dispatch;
use burn::tensor::{Bool, DType, Device, IndexingUpdateOp, Int, Tensor};

use super::teacher::{self, TeacherRows};
use super::{LossOptions, Teacher, TokenStatistics};
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
    pub(crate) weights: Option<Tensor<1>>,
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
    /// The tokens that count among targets of one word each, for a decoder with the bias that `bias` makes.
    ///
    /// # Errors
    /// On CPUs, what is wrong with the values of a token that counts.
    pub(crate) fn words(
        targets: Tensor<1, Int>,
        options: &LossOptions,
        vocab: usize,
        bias: impl FnOnce() -> Option<Tensor<1>>,
    ) -> Result<Self, HeadError> {
        let [tokens] = targets.dims();
        let weights = token_weights(&targets, options, vocab)?;
        let rows = match is_cpu(&targets.device()) {
            true => on_host(&targets, weights.as_ref(), options, vocab)?,
            false => on_device(&targets, weights.as_ref(), options),
        };
        let words = rows.of_ints(targets, |words, blank| {
            // A word that is not masked: its loss, which counts for nothing, is a number.
            let safe = match bias() {
                Some(bias) => bias.detach().argmax(0).expand([tokens]),
                None => words.zeros_like(),
            };
            words.mask_where(blank, safe)
        });
        let targets = match &options.teacher {
            None => Targets::Words(words.into()),
            Some(Teacher { ids, probs }) => {
                let listed = ids.shape().num_elements() / tokens;
                let ids = ids.clone().reshape([tokens, listed]).tensor::<2>();
                let probs = probs.clone().reshape([tokens, listed]).tensor::<2>();
                let ids = rows.of_ints(ids, |ids, blank| {
                    let blank = blank.reshape([tokens, 1]).expand([tokens, listed]);
                    ids.mask_fill(blank, 0)
                });
                Targets::Teacher { words: words.into(), ids: ids.into(), probs: rows.of(probs).into() }
            }
        };
        let weights = rows.weights(weights, tokens);
        Ok(Self {
            tokens,
            scored: rows.scored(tokens),
            objective: objective(targets, options),
            weights,
            rows,
        })
    }

    /// The tokens that count among distributions, `[N, V]`: those whose weight is not 0.
    ///
    /// # Errors
    /// If an option needs words. On CPUs, if a weight is negative or not a number.
    pub(crate) fn distributions(distributions: Tensor<2>, options: &LossOptions) -> Result<Self, HeadError> {
        options.validate_without_words()?;
        let [tokens, _] = distributions.dims();
        let weights = options.weights_of_tokens(tokens);
        let rows = match &weights {
            None => Rows::All,
            Some(weights) if is_cpu(&weights.device()) => {
                let values = checked_weights(weights, |_| true)?;
                Rows::keeping(tokens, |token| values[token] != 0.0, &weights.device())
            }
            Some(weights) => Rows::Blanked(weights.clone().detach().equal_elem(0.0)),
        };
        let targets = Targets::Distributions(rows.of(distributions).into());
        let weights = rows.weights(weights, tokens);
        Ok(Self {
            tokens,
            scored: rows.scored(tokens),
            objective: objective(targets, options),
            weights,
            rows,
        })
    }

    /// What the scored tokens are scored against.
    pub(crate) fn objective(&self) -> Objective {
        self.objective.clone()
    }

    /// The hidden states that are scored.
    pub(crate) fn hidden<const D: usize>(&self, hidden: Tensor<D>) -> Tokens {
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
        match &self.weights {
            None => Shares::even(self.scored, on),
            Some(weights) => {
                let weights = weights.clone().cast(on.1);
                Shares::weighted(weights.clone(), weights)
            }
        }
    }

    /// What the scored tokens are multiplied with in a sum.
    pub(crate) fn weights_or_ones(&self, on: (&Device, DType)) -> Tensor<1> {
        match &self.weights {
            None => Tensor::ones([self.scored], on),
            Some(weights) => weights.clone(),
        }
    }

    /// The weighted losses of all tokens, for those of the scored ones.
    pub(crate) fn spread_losses(&self, loss: Tensor<1>) -> Tensor<1> {
        let dtype = loss.dtype();
        let loss = match &self.weights {
            Some(weights) => loss * weights.clone().cast(dtype),
            None => loss,
        };
        self.spread(loss.reshape([self.scored, 1])).reshape([self.tokens])
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

fn objective(targets: Targets, options: &LossOptions) -> Objective {
    Objective {
        targets,
        label_smoothing: options.label_smoothing,
        z_loss: options.z_loss,
        statistics: options.statistics,
    }
}

fn is_cpu(device: &Device) -> bool {
    ops::is_cpu::<Dispatch>(device.as_dispatch())
}

/// Token weights times those of the target words.
fn token_weights(
    targets: &Tensor<1, Int>,
    options: &LossOptions,
    vocab: usize,
) -> Result<Option<Tensor<1>>, HeadError> {
    let [tokens] = targets.dims();
    let weights = options.weights_of_tokens(tokens).map(|weights| {
        let dtype: DType = wide(weights.dtype());
        weights.cast(dtype)
    });
    let Some(classes) = &options.class_weights else { return Ok(weights) };
    let classes = classes.clone().tensor::<1>();
    let classes = classes.clone().cast(wide(classes.dtype()));
    if is_cpu(&classes.device()) {
        checked_weights(&classes, |_| true)?;
    }
    // Targets that are no words either do not count or are refused.
    let of_token = classes.select(0, targets.clone().clamp(0, vocab as i64 - 1));
    Ok(Some(match weights {
        Some(weights) => weights.cast(of_token.dtype()) * of_token,
        None => of_token,
    }))
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
    /// Of targets of one word each.
    ///
    /// # Errors
    /// What is wrong with the values of a token that counts.
    ///
    /// # Panics
    /// If a teacher's probabilities are tracked.
    pub(crate) fn read(
        targets: &Tensor<1, Int>,
        options: &LossOptions,
        vocab: usize,
    ) -> Result<Self, HeadError> {
        let weights = token_weights(targets, options, vocab)?;
        let (words, counts) = checked_words(targets, weights.as_ref(), options, vocab)?;
        let read = |teacher| TeacherRows::read(teacher, vocab, |token| counts[token]);
        let teacher = options.teacher.as_ref().map(read).transpose()?;
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
    let is_ignored = |token: usize| options.ignore_index == Some(words[token]);
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
    if let Some(Teacher { ids, probs }) = &options.teacher {
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
    let ignored = options.ignore_index.map(|index| targets.clone().equal_elem(index));
    let weightless = weights.map(|weights| weights.clone().detach().equal_elem(0.0));
    match (ignored, weightless) {
        (None, None) => Rows::All,
        (Some(blank), None) | (None, Some(blank)) => Rows::Blanked(blank),
        (Some(ignored), Some(weightless)) => Rows::Blanked(ignored.bool_or(weightless)),
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
