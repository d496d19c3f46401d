//! What the tokens of a call are scored against, on slices.

use burn::backend::Flex;
use burn_flex::FlexTensor;
use highrank_kernels::cpu::{Real, contiguous, slice};
use highrank_kernels::{Floats, Ints};

use crate::likelihood::{Spread, Vocabulary};
use crate::ops::{Likelihood, Objective, Targets};

/// The objective of a call: of each token a level for all words, and a few listed words, the last of which is its word.
/// Targets that are distributions list none.
pub(super) struct Goal<T> {
    /// `[N]`
    level: Vec<T>,
    /// What the level of each word is beyond that, as a multiple of these rows, `[N, V]`.
    distributions: Option<(T, FlexTensor)>,
    /// `[N, m]`, all below V.
    ids: Vec<usize>,
    /// What is listed beyond the level, `[N, m]`.
    extra: Vec<T>,
    /// `m`.
    pub(super) width: usize,
    /// `λ`.
    z_loss: f64,
    pub(super) statistics: bool,
}

/// The objective of one token: its target distribution `q̃`, and `λ`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Aim<'a, T> {
    /// `q̃` of every word, without what listed ones have more.
    pub(super) level: Level<'a, T>,
    /// The words that have more; the last one is the token's word, if anything asks for that.
    pub(super) ids: &'a [usize],
    /// What they have more.
    pub(super) extra: &'a [T],
    pub(super) z_loss: f64,
}

/// What a token's target distribution has of every word: `even + keep · row_v`, where masked words have no `even`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Level<'a, T> {
    /// Of smoothing, or what a teacher's listed words leave to the others.
    pub(super) even: T,
    /// What smoothing leaves of a given distribution.
    pub(super) keep: T,
    /// `[V]`, or nothing.
    pub(super) row: &'a [T],
}

impl<T: Real> Level<'_, T> {
    /// Whether no word has any.
    #[inline(always)]
    pub(super) fn is_nothing(&self) -> bool {
        self.even == T::ZERO && self.row.is_empty()
    }

    /// That of an unmasked word.
    #[inline(always)]
    pub(super) fn of(&self, word: usize) -> T {
        match self.row {
            [] => self.even,
            row => self.keep.mul_add(row[word], self.even),
        }
    }
}

impl<T: Real> Goal<T> {
    /// # Panics
    /// If a listed word is outside of the vocabulary, or if distributions are not one a token over all words.
    pub(super) fn new(
        input: &Likelihood<Floats<Flex>>,
        objective: &Objective<Floats<Flex>, Ints<Flex>>,
        masked: usize,
    ) -> Self {
        let (tokens, vocab) = (input.tokens(), input.vocab());
        let smoothing = objective.label_smoothing;
        let even = || vec![T::of(smoothing / (vocab - masked) as f64); tokens];
        let read = |words: &Ints<Flex>| words_of(words, tokens, vocab);
        let mut distributions = None;
        let (level, ids, extra) = match &objective.targets {
            Targets::Words(words) => (even(), read(words), vec![T::of(1.0 - smoothing); tokens]),
            Targets::Teacher { words, ids, .. } => {
                let (words, ids) = (read(words), read(ids));
                let spread =
                    Spread::new(input, objective, &Vocabulary::new(input)).expect("a teacher has one");
                let (level, extra) = (numbers_of(spread.level), numbers_of(spread.extra));
                match objective.statistics {
                    false => (level, ids, extra),
                    true => (level, with_last(&ids, &words), with_last(&extra, &vec![T::ZERO; tokens])),
                }
            }
            Targets::Distributions(rows) => {
                let shape = rows.shape();
                assert_eq!(
                    shape[..],
                    [tokens, vocab],
                    "likelihood: distributions of shape {shape:?} for {tokens} tokens and {vocab} words"
                );
                distributions = Some((T::of(1.0 - smoothing), contiguous(&rows.clone().cast(T::dtype()))));
                (even(), vec![], vec![])
            }
        };
        let Objective { z_loss, statistics, .. } = *objective;
        Self { width: ids.len() / tokens.max(1), level, distributions, ids, extra, z_loss, statistics }
    }

    /// `N`.
    pub(super) fn tokens(&self) -> usize {
        self.level.len()
    }

    /// Whether any token has a level.
    pub(super) fn has_level(&self) -> bool {
        self.distributions.is_some() || self.level.iter().any(|level| *level != T::ZERO)
    }

    pub(super) fn aim(&self, token: usize) -> Aim<'_, T> {
        let listed = token * self.width..(token + 1) * self.width;
        let (keep, row) = match &self.distributions {
            None => (T::ZERO, &[][..]),
            Some((keep, rows)) => {
                let rows: &[T] = slice(rows);
                let vocab = rows.len() / self.tokens();
                (*keep, &rows[token * vocab..(token + 1) * vocab])
            }
        };
        Aim {
            level: Level { even: self.level[token], keep, row },
            ids: &self.ids[listed.clone()],
            extra: &self.extra[listed],
            z_loss: self.z_loss,
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

fn numbers_of<T: Real>(numbers: Floats<Flex>) -> Vec<T> {
    numbers.into_data().iter::<T>().collect()
}

/// Rows with one more value each.
fn with_last<X: Copy>(rows: &[X], last: &[X]) -> Vec<X> {
    let width = rows.len() / last.len();
    rows.chunks_exact(width).zip(last).flat_map(|(row, last)| row.iter().chain([last])).copied().collect()
}
