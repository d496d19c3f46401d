//! What the log-probabilities of a run of tokens are scored against, and what else a token's loss is made of.

use std::ops::Range;

use burn::backend::Backend;
use highrank_kernels::{Floats, Ints};

use super::divergence::Divergence;
use super::likelihood::LikelihoodInput;

/// What the log-probabilities are scored against.
#[derive(Debug, Clone)]
pub enum Targets<F = Floats, I = Ints> {
    /// One word a token, shape `[N]`: the cross-entropy is `−log P(y)`.
    Words(I),
    /// A few words a token with their probabilities; what they leave of 1 is shared evenly by the unmasked words that are
    /// not listed. The cross-entropy is `−Σ_v q_v log P(v)`.
    Teacher {
        /// The words whose `−log P(y)` is the token's nll, shape `[N]`.
        words: I,
        /// The listed words, all different, shape `[N, m]`.
        ids: I,
        /// Their probabilities, shape `[N, m]`. A masked word may have probability 0.
        probs: F,
    },
    /// A distribution a token: the cross-entropy is `−Σ_v q_v log P(v)`.
    Distributions {
        /// The words whose `−log P(y)` is the token's nll, shape `[N]`.
        words: I,
        /// `[N, V]`
        rows: F,
    },
    /// A sum of log-probabilities of m words a token, `−Σ_j c_nj log P(w_nj)`, which takes the place of the cross-entropy. The
    /// factors may be any numbers, and a row may list a word several times. No word is masked, unless all are.
    Listed {
        /// `w`, shape `[N, m]`.
        ids: I,
        /// `c`, shape `[N, m]`.
        factors: F,
    },
    /// The distribution of another head over the same vocabulary: its divergence takes the place of the cross-entropy.
    Model {
        /// The words whose `−log P(y)` is the token's nll, shape `[N]`.
        words: I,
        /// What the distribution depends on, for the same N tokens. Constants.
        teacher: Box<LikelihoodInput<F>>,
        /// How the two are compared.
        divergence: Divergence,
    },
}

impl<F, I> Targets<F, I> {
    /// The same targets with each tensor changed by one of the functions.
    pub fn map<G, J>(self, mut float: impl FnMut(F) -> G, mut int: impl FnMut(I) -> J) -> Targets<G, J> {
        match self {
            Self::Words(words) => Targets::Words(int(words)),
            Self::Teacher { words, ids, probs } => {
                Targets::Teacher { words: int(words), ids: int(ids), probs: float(probs) }
            }
            Self::Distributions { words, rows } => {
                Targets::Distributions { words: int(words), rows: float(rows) }
            }
            Self::Listed { ids, factors } => Targets::Listed { ids: int(ids), factors: float(factors) },
            Self::Model { words, teacher, divergence } => {
                Targets::Model { words: int(words), teacher: Box::new(teacher.map(&mut float)), divergence }
            }
        }
    }

    /// The word of each token, `[N]`, or its listed words.
    pub fn words(&self) -> &I {
        match self {
            Self::Words(words)
            | Self::Teacher { words, .. }
            | Self::Distributions { words, .. }
            | Self::Model { words, .. } => words,
            Self::Listed { ids, .. } => ids,
        }
    }
}

impl<B: Backend> Targets<Floats<B>, Ints<B>> {
    /// Those of a range of tokens.
    pub fn slice(&self, tokens: Range<usize>) -> Self {
        let of = |rows: &Ints<B>| rows.clone().rows(tokens.clone());
        match self {
            Self::Model { words, teacher, divergence } => Self::Model {
                words: of(words),
                teacher: Box::new(teacher.slice(tokens.start, tokens.end)),
                divergence: *divergence,
            },
            other => other.clone().map(|rows| rows.rows(tokens.clone()), |rows| of(&rows)),
        }
    }
}

/// What the loss of a token is made of:
///
/// ```text
/// loss_n = −Σ_v w_v q̃_nv log P(v) + λ z_n + e_n H_n + η_n L_n
/// q̃_n = (1 − ε) q_n + ε/V'      z_n = Σ_k π_k LSE(f(z_k)/τ)²      L_n = Σ_k π_k LSE(f(z_k)/τ)
/// ```
///
/// with `q_n` the target distribution, the entropy `H_n = −Σ_v P(v) log P(v)`, `V'` unmasked words, which alone have a part of `ε/V'`, and the weights `w` of words.
#[derive(Debug, Clone)]
pub struct Objective<F = Floats, I = Ints> {
    /// What the tokens are scored against.
    pub targets: Targets<F, I>,
    /// `w`, shape `[V]`; `None` means 1. A constant.
    pub class_weights: Option<F>,
    /// `ε`, in `[0, 1)`.
    pub label_smoothing: f64,
    /// `λ`, not negative.
    pub z_loss: f64,
    /// `e`, shape `[N]`; `None` means 0.
    pub entropy: Option<F>,
    /// `η`, shape `[N]`; `None` means 0.
    pub normaliser: Option<F>,
    /// Whether [`Scores::statistics`] are asked for.
    pub statistics: bool,
}

impl<F, I> Objective<F, I> {
    /// The cross-entropy alone.
    pub fn new(targets: Targets<F, I>) -> Self {
        Self {
            targets,
            class_weights: None,
            label_smoothing: 0.0,
            z_loss: 0.0,
            entropy: None,
            normaliser: None,
            statistics: false,
        }
    }

    /// Whether it is the nll of one word a token and nothing else.
    pub fn is_plain(&self) -> bool {
        matches!(self.targets, Targets::Words(_))
            && self.class_weights.is_none()
            && self.label_smoothing == 0.0
            && self.z_loss == 0.0
            && self.entropy.is_none()
            && self.normaliser.is_none()
            && !self.statistics
    }

    /// Whether there are [statistics](Scores::statistics), and results of [listed](Scores::listed) words.
    pub fn parts(&self) -> [bool; 2] {
        [self.statistics, matches!(self.targets, Targets::Listed { .. })]
    }

    /// The same objective with each tensor changed by one of the functions.
    pub fn map<G, J>(self, mut float: impl FnMut(F) -> G, int: impl FnMut(I) -> J) -> Objective<G, J> {
        Objective {
            targets: self.targets.map(&mut float, int),
            class_weights: self.class_weights.map(&mut float),
            label_smoothing: self.label_smoothing,
            z_loss: self.z_loss,
            entropy: self.entropy.map(&mut float),
            normaliser: self.normaliser.map(float),
            statistics: self.statistics,
        }
    }
}

impl<B: Backend> Objective<Floats<B>, Ints<B>> {
    /// That of a range of tokens.
    pub fn slice(&self, tokens: Range<usize>) -> Self {
        let rows = |factors: &Option<Floats<B>>| factors.clone().map(|factors| factors.rows(tokens.clone()));
        Self {
            targets: self.targets.slice(tokens.clone()),
            entropy: rows(&self.entropy),
            normaliser: rows(&self.normaliser),
            ..self.clone()
        }
    }

    /// Columns of [`Scores::listed`]; 0 where no words are listed.
    pub fn listed_columns(&self) -> usize {
        match &self.targets {
            Targets::Listed { ids, .. } => {
                let others = [self.entropy.is_some(), self.normaliser.is_some()];
                ids.dims::<2>()[1] + others.into_iter().filter(|is_there| *is_there).count()
            }
            _ => 0,
        }
    }
}

/// What a call of the likelihood makes, in the [type of sums](super::wide).
#[derive(Debug, Clone)]
pub struct Scores<F = Floats> {
    /// `[N]`, in nats.
    pub loss: F,
    /// A row of [`Statistic`]s for each token, `[N, 5]`, if asked for. Constants: no gradient flows through them.
    pub statistics: Option<F>,
    /// Of [listed](Targets::Listed) words: `log P(w_nj)`, `[N, m]`, and after them `H_n` and `L_n`, a column each, for which the
    /// objective has a factor. `L_n` is −∞ where all words are masked.
    pub listed: Option<F>,
}

impl<F> Scores<F> {
    /// The loss, and after it the others that there are.
    pub fn into_parts(self) -> Vec<F> {
        std::iter::once(self.loss).chain(self.statistics).chain(self.listed).collect()
    }

    /// The inverse of [`into_parts`](Self::into_parts), for an objective with such [parts](Objective::parts).
    ///
    /// # Panics
    /// If there are too few parts.
    pub fn from_parts(parts: &mut impl Iterator<Item = F>, [statistics, listed]: [bool; 2]) -> Self {
        let mut next = || parts.next().expect("every call makes what its objective asks for");
        let loss = next();
        let statistics = statistics.then(&mut next);
        Self { loss, statistics, listed: listed.then(&mut next) }
    }
}

impl<B: Backend> Scores<Floats<B>> {
    /// With weights `w`, `[N]`, the loss becomes the sum `Σ_n w_n loss_n`, `[1]`; without, nothing changes.
    pub fn weighted(self, weights: Option<Floats<B>>) -> Self {
        let loss = match weights {
            Some(weights) => {
                let weights = weights.cast(self.loss.dtype());
                (self.loss * weights).sum()
            }
            None => self.loss,
        };
        Self { loss, ..self }
    }
}

/// A column of [`Scores::statistics`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Statistic {
    /// `−log P(y)`.
    Nll,
    /// `−Σ_v P(v) log P(v)`.
    Entropy,
    /// The likeliest word, the lowest of equals: a whole number, exact up to 2²⁴ in f32.
    Argmax,
    /// Its log-probability.
    MaxLogProb,
    /// `z_n`, before it is multiplied by `λ`.
    ZTerm,
}

impl Statistic {
    /// Number of columns.
    pub const COUNT: usize = 5;
}

/// The largest bias that masks its word: −∞, which GPU languages cannot write down, and what stands in for it.
pub const MASKING_BIAS: f64 = -3e38;
