//! What the tokens of a call are scored against, on slices.
//!
//! A token's target distribution `q̃` is a dense part, for all words, and something more for a few listed words, mostly for one. What a
//! loss has of an entropy or of a divergence from another head is part of the dense one: of a word it is the gradient for its
//! log-probability with the sign of a distribution's, and only known with the latter.

use burn::backend::Flex;
use highrank_kernels::cpu::{Buffer, Real};
use highrank_kernels::{Floats, Ints};

use super::mapped_logits::MappedLogits;
use super::tensors::{row_major, values};
use crate::likelihood::{SparseTargets, Vocabulary};
use crate::ops::{Divergence, LikelihoodInput, Objective, Targets};

/// The target distributions of a call's tokens, and what else their losses are made of.
pub(super) struct TargetTable<T> {
    /// As in [`Dense`], `[N]`.
    even: Vec<T>,
    /// As in [`Dense`], `[N]`.
    keep: Vec<T>,
    /// A row for each token, `[N, V]`, or for all of them, `[V]`, or nothing.
    rows: Option<Floats<Flex>>,
    /// `[N, m]`, all below V. The last one of a token is its word, if anything asks for that.
    listed: Vec<usize>,
    /// What listed words have beyond the dense part, `[N, m]`.
    extra: Vec<T>,
    /// Whether a token's distribution has some of a masked word, `[N]`; nothing where none can.
    has_masked: Vec<bool>,
    /// As in [`Dense`], `[N]`, or nothing where no entropy is asked for.
    entropy: Vec<T>,
    /// `η`, `[N]`, or nothing where no normaliser is asked for.
    normaliser: Vec<T>,
    /// How another head's distributions are compared, if that is no cross-entropy.
    pub(super) divergence: Option<Divergence>,
    /// Whether another head's probabilities are the targets.
    pub(super) has_teacher: bool,
    /// `λ`.
    z_loss: f64,
    pub(super) statistics: bool,
}

/// The target distribution `q̃` of one token, `λ` and `η`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Target<'a, T> {
    pub(super) dense: Dense<'a, T>,
    /// The words that have more; the last one is the token's word, if anything asks for that.
    pub(super) listed: &'a [usize],
    /// What they have more.
    pub(super) extra: &'a [T],
    /// Whether the dense part has some of a masked word, whose cross-entropy is +∞.
    pub(super) has_masked: bool,
    pub(super) z_loss: f64,
    /// `η`, if the normaliser is asked for.
    pub(super) normaliser: Option<T>,
}

/// What a target distribution has of every word: `even + keep · row_v`, where masked words have no `even`; and what is only known
/// with its log-probability.
#[derive(Debug, Clone, Copy)]
pub(super) struct Dense<'a, T> {
    /// Of smoothing, or what a teacher's listed words leave to the others.
    pub(super) even: T,
    /// What smoothing leaves of a given distribution.
    pub(super) keep: T,
    /// `[V]`, or nothing.
    pub(super) row: &'a [T],
    /// `e`, what the entropy is multiplied with.
    pub(super) entropy: T,
    /// Another head's log-probabilities, `[V]`, and how they are compared.
    pub(super) model: Option<(&'a [T], Divergence)>,
}

impl<T: Real> Dense<'_, T> {
    /// Whether no word has any.
    #[inline(always)]
    pub(super) fn is_zero(&self) -> bool {
        self.even == T::ZERO && self.row.is_empty() && self.is_known()
    }

    /// Whether it is what it is whatever the log-probabilities are.
    #[inline(always)]
    fn is_known(&self) -> bool {
        self.entropy == T::ZERO && self.model.is_none()
    }

    /// All that an unmasked word has of it, for the word's log-probability.
    #[inline(always)]
    pub(super) fn at(&self, word: usize, log_prob: T) -> T {
        let mut all = match self.row {
            [] => self.even,
            row => self.keep.mul_add(row[word], self.even),
        };
        if !self.is_known() {
            let prob = log_prob.exp_of_bounded();
            all += self.entropy * prob * log_prob;
            if let Some((row, divergence)) = self.model {
                let [_, pull] = divergence.of_word(prob, log_prob, row[word]);
                all += pull;
            }
        }
        all
    }
}

impl<T: Real> TargetTable<T> {
    /// # Panics
    /// If a listed word is outside of the vocabulary, or if distributions are not one a token over all words.
    pub(super) fn new(
        input: &LikelihoodInput<Floats<Flex>>,
        objective: &Objective<Floats<Flex>, Ints<Flex>>,
        logits: &MappedLogits<'_, T>,
    ) -> Self {
        let (tokens, vocab) = (input.tokens(), input.vocab());
        let (smoothing, statistics) = (objective.label_smoothing, objective.statistics);
        let keep = 1.0 - smoothing;
        let even = smoothing / logits.unmasked() as f64;
        let same = |number: f64| vec![T::of(number); tokens];
        let read = |words: &Ints<Flex>| words_of(words, tokens, vocab);
        let sparse = || {
            let sparse = SparseTargets::new(input, objective, &Vocabulary::new(input));
            sparse.expect("targets that are no distributions have one")
        };
        // Nothing is asked of masked words.
        let weights = objective.class_weights.clone().map(|weights| {
            let mut weights = Buffer::of(values::<T>(&row_major(weights.cast(T::dtype()))));
            logits.masked.iter().for_each(|word| weights[*word] = T::ZERO);
            Floats::new(weights.into_tensor([vocab]))
        });
        let mut table = Self {
            even: same(even),
            keep: same(0.0),
            rows: None,
            listed: vec![],
            extra: vec![],
            has_masked: vec![],
            entropy: objective.entropy.clone().map_or_else(Vec::new, numbers_of),
            normaliser: objective.normaliser.clone().map_or_else(Vec::new, numbers_of),
            divergence: None,
            has_teacher: false,
            z_loss: objective.z_loss,
            statistics,
        };
        match &objective.targets {
            Targets::Words(words) => {
                table.listed = read(words);
                table.extra = match weights {
                    None => same(keep),
                    Some(_) => numbers_of(sparse().extra),
                };
            }
            Targets::Teacher { words, ids, .. } => {
                let (words, ids, sparse) = (read(words), read(ids), sparse());
                (table.even, table.extra) = (numbers_of(sparse.level), numbers_of(sparse.extra));
                table.listed = ids;
                if statistics {
                    table.listed = with_last(&table.listed, &words);
                    table.extra = with_last(&table.extra, &same(0.0));
                }
            }
            Targets::Listed { ids, factors } => {
                (table.listed, table.extra) = (read(ids), numbers_of(factors.clone()));
            }
            Targets::Model { words, divergence, .. } => {
                // Its targets are known, whatever the student predicts.
                table.has_teacher = *divergence == Divergence::ForwardKl;
                table.divergence = (!table.has_teacher).then_some(*divergence);
                if statistics {
                    (table.listed, table.extra) = (read(words), same(0.0));
                }
            }
            Targets::Distributions { words, rows } => {
                let shape = rows.shape();
                assert_eq!(
                    shape[..],
                    [tokens, vocab],
                    "likelihood: distributions of shape {shape:?} for {tokens} tokens and {vocab} words"
                );
                let rows = row_major(rows.clone().cast(T::dtype()));
                // Words of weight 0 add nothing, masked or not.
                let masked = match &objective.class_weights {
                    None => logits.masked.clone(),
                    Some(weights) => {
                        let weights: Vec<T> = numbers_of(weights.clone());
                        let counts = |word: &usize| weights[*word] > T::ZERO;
                        logits.masked.iter().copied().filter(counts).collect()
                    }
                };
                table.has_masked = tokens_with_masked::<T>(values(&rows), vocab, &masked);
                if statistics {
                    (table.listed, table.extra) = (read(words), same(0.0));
                }
                let (rows, keep) = match weights {
                    None => (rows, keep),
                    Some(weights) => {
                        table.even = same(0.0);
                        let rows = rows.mul_scalar(keep).add_scalar(even) * weights.reshape([1, vocab]);
                        (row_major(rows), 1.0)
                    }
                };
                return Self { rows: Some(rows), keep: same(keep), ..table };
            }
        }
        match weights {
            None => table,
            Some(weights) => Self { rows: Some(weights), keep: table.even, even: same(0.0), ..table },
        }
    }

    /// `m`.
    pub(super) fn listed(&self) -> usize {
        self.listed.len() / self.even.len().max(1)
    }

    /// Whether any token has a dense part.
    pub(super) fn has_dense(&self) -> bool {
        let is_known = self.rows.is_some() || self.even.iter().any(|even| *even != T::ZERO);
        is_known || self.has_entropy() || self.divergence.is_some() || self.has_teacher
    }

    /// Whether the entropy is asked for.
    pub(super) fn has_entropy(&self) -> bool {
        !self.entropy.is_empty()
    }

    /// - model: the other head's log-probabilities for the token, `[V]`, where there is one; its probabilities where they are the targets
    pub(super) fn target<'a>(&'a self, token: usize, model: &'a [T]) -> Target<'a, T> {
        let tokens = self.even.len();
        let listed = token * self.listed()..(token + 1) * self.listed();
        let row = self.rows.as_ref().map_or(&[][..], |rows| {
            let (values, rows) = (values(rows), if rows.shape().num_dims() == 2 { tokens } else { 1 });
            let vocab = values.len() / rows;
            &values[token % rows * vocab..][..vocab]
        });
        let (row, keep) = if self.has_teacher { (model, T::ONE) } else { (row, self.keep[token]) };
        Target {
            dense: Dense {
                even: self.even[token],
                keep,
                row,
                entropy: self.entropy.get(token).copied().unwrap_or(T::ZERO),
                model: self.divergence.map(|divergence| (model, divergence)),
            },
            listed: &self.listed[listed.clone()],
            extra: &self.extra[listed],
            has_masked: self.has_masked.get(token).copied().unwrap_or(false),
            z_loss: self.z_loss,
            normaliser: self.normaliser.get(token).copied(),
        }
    }
}

/// # Panics
/// If there are none for some token, or if one is outside of the vocabulary.
fn words_of(words: &Ints<Flex>, tokens: usize, vocab: usize) -> Vec<usize> {
    let shape = words.shape();
    assert_eq!(shape[0], tokens, "likelihood: targets of shape {shape:?} for {tokens} tokens");
    let width = words.num_elements() / tokens.max(1);
    let read = |(place, word): (usize, i64)| {
        let token = place / width;
        let inside = (0..vocab as i64).contains(&word);
        assert!(inside, "likelihood: target {word} at token {token} is outside the vocabulary 0..{vocab}");
        word as usize
    };
    words.clone().into_data().iter::<i64>().enumerate().map(read).collect()
}

/// Whether each of some rows has anything of a masked word; nothing if there are no masked words.
fn tokens_with_masked<T: Real>(rows: &[T], vocab: usize, masked: &[usize]) -> Vec<bool> {
    let has = |row: &[T]| masked.iter().any(|word| row[*word] > T::ZERO);
    if masked.is_empty() { vec![] } else { rows.chunks_exact(vocab).map(has).collect() }
}

fn numbers_of<T: Real>(numbers: Floats<Flex>) -> Vec<T> {
    numbers.into_data().iter::<T>().collect()
}

/// Rows with one more value each.
fn with_last<X: Copy>(rows: &[X], last: &[X]) -> Vec<X> {
    let width = rows.len() / last.len();
    rows.chunks_exact(width).zip(last).flat_map(|(row, last)| row.iter().chain([last])).copied().collect()
}
