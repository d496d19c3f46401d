//! A chunk's losses, and the gradients of its mapped logits and log-priors.

use burn::tensor::DType;
use highrank_kernels::{Bools, Floats, Ints};

use super::chunk::{Chunk, Softmax};
use crate::likelihood::sparse_targets::SparseTargets;
use crate::math::log_sum_exp_dim;
use crate::ops::{Kernels, Objective, Scores, Statistic, Targets};

/// The gradients of a chunk's mapped logits and log-priors.
pub(super) struct Scored<B: Kernels> {
    /// `∂/∂(f(z)/τ)`, `[tokens·K, V]`
    pub(super) d_mapped: Floats<B>,
    /// `[tokens, K]`
    pub(super) d_log_prior: Floats<B>,
}

/// A chunk scored in either way.
pub(super) enum Score<B: Kernels> {
    Words(Words<B>),
    General(General<B>),
}

impl<B: Kernels> Score<B> {
    /// By the shorter way where one word a token is all that is asked for. The objective is that of the chunk's tokens.
    pub(super) fn new(
        chunk: &Chunk<'_, B>,
        objective: &Objective<Floats<B>, Ints<B>>,
        sparse: Option<&SparseTargets<B>>,
    ) -> Self {
        match &objective.targets {
            Targets::Words(words) if objective.is_plain() => Self::Words(Words::score(chunk, words.clone())),
            _ => Self::General(General::score(chunk, objective, sparse)),
        }
    }

    /// What the objective asks for.
    pub(super) fn scores(
        &self,
        chunk: &Chunk<'_, B>,
        objective: &Objective<Floats<B>, Ints<B>>,
    ) -> Scores<Floats<B>> {
        let targets = &objective.targets;
        let infinite = infinite(chunk, targets, objective.class_weights.as_ref());
        match self {
            Self::Words(scored) => {
                let loss = or_infinite(scored.nll.clone(), infinite);
                Scores { loss, statistics: None, listed: None }
            }
            Self::General(scored) => Scores {
                loss: or_infinite(scored.loss(), infinite),
                statistics: objective.statistics.then(|| scored.statistics(chunk, targets)),
                listed: scored.listed(chunk, targets),
            },
        }
    }

    /// Those of masked words are 0, whatever is computed of their logits.
    pub(super) fn gradients(self, chunk: &Chunk<'_, B>, upstream: Floats<B>) -> Scored<B> {
        let scored = match self {
            Self::Words(scored) => scored.gradients(upstream),
            Self::General(scored) => scored.gradients(upstream),
        };
        Scored { d_mapped: chunk.vocabulary.zero_masked(scored.d_mapped), ..scored }
    }
}

/// A chunk scored against one word a token, and nothing else asked for.
pub(super) struct Words<B: Kernels> {
    /// `[tokens]`
    nll: Floats<B>,
    /// `log π_k + log p_k(y)`, `[tokens, K]`
    joint: Floats<B>,
    /// Target of each row, `[tokens·K, 1]`
    word: Ints<B>,
    softmax: Softmax<B>,
}

impl<B: Kernels> Words<B> {
    pub(super) fn score(chunk: &Chunk<'_, B>, words: Ints<B>) -> Self {
        let word = words.reshape([chunk.tokens(), 1]).repeat_dim(1, chunk.components);
        let word = word.reshape([chunk.tokens() * chunk.components, 1]);
        let softmax = chunk.softmax();
        let at_target = softmax.shifted.clone().gather(1, word.clone());
        let joint = chunk.joint(at_target - softmax.sum.clone().log());
        let joint = joint.reshape([chunk.tokens(), chunk.components]);
        let nll = -log_sum_exp_dim(joint.clone(), 1).reshape([chunk.tokens()]);
        Self { nll, joint, word, softmax }
    }

    /// `∂/∂f(z_k) = u γ_k (softmax − onehot)`, `∂/∂log π_k = −u γ_k` for an upstream gradient `u [tokens]`.
    fn gradients(self, upstream: Floats<B>) -> Scored<B> {
        let tokens = self.nll.num_elements();
        let responsibility = (self.joint + self.nll.reshape([tokens, 1])).exp();
        let weight = responsibility * upstream.reshape([tokens, 1]);
        let Softmax { exp, sum, .. } = self.softmax;
        let row_weight = weight.clone().reshape(sum.shape());
        let d_mapped = exp * (row_weight.clone() / sum);
        Scored { d_mapped: d_mapped.scatter_add(1, self.word, -row_weight), d_log_prior: -weight }
    }
}

/// A chunk scored against any objective, by way of its target distributions: `[tokens, V]` of a chunk, never of all.
///
/// With `r_k(v) = π_k p_k(v) / P(v)` and `s_k = Σ_v q_v r_k(v)`: `∂/∂f(z_k) = u (p_k (s_k + 2 λ π_k LSE_k) − q r_k)` and
/// `∂/∂log π_k = u (λ π_k LSE_k² − s_k)`, where `−q_v` is the gradient of the loss for `log P(v)`. What the loss has of an entropy or
/// a divergence adds to `q`, which is no distribution then.
pub(super) struct General<B: Kernels> {
    /// The part of the loss that the targets make, `[tokens]`.
    of_targets: Floats<B>,
    /// `q`, `[tokens, V]`
    q: Floats<B>,
    /// Of each row, `[tokens·K, V]`
    softmax: Softmax<B>,
    /// `log π_k + log p_k(v)`, `[tokens, K, V]`
    joint: Floats<B>,
    /// `log P(v)`, `[tokens, 1, V]`
    log_probs: Floats<B>,
    /// `LSE(f(z_k)/τ)`, `[tokens, K]`
    lse: Floats<B>,
    /// `π_k`, `[tokens, K]`
    prior: Floats<B>,
    /// `e`, and the entropy, both `[tokens, 1]`.
    entropy: Option<(Floats<B>, Floats<B>)>,
    /// `η`, `[tokens, 1]`.
    normaliser: Option<Floats<B>>,
    z_loss: f64,
}

impl<B: Kernels> General<B> {
    fn score(
        chunk: &Chunk<'_, B>,
        objective: &Objective<Floats<B>, Ints<B>>,
        sparse: Option<&SparseTargets<B>>,
    ) -> Self {
        let (tokens, components, vocab) = (chunk.tokens(), chunk.components, chunk.input.vocab());
        let softmax = chunk.softmax();
        let joint = chunk.joint(softmax.log_probs());
        let log_probs = log_sum_exp_dim(joint.clone(), 1);
        let lse = softmax.log_sum_exp().reshape([tokens, components]);
        let prior = match &chunk.log_prior {
            Some(prior) => prior.clone().exp(),
            None => lse.zeros_like().add_scalar(1.0),
        };
        let rows = log_probs.clone().reshape([tokens, vocab]);
        let (of_targets, mut q) = match &objective.targets {
            Targets::Model { teacher, divergence, .. } => {
                let of_teacher = super::log_probs::log_probs(teacher).cast(rows.dtype());
                let student = chunk.vocabulary.with_minus_infinity(rows.clone());
                divergence.of_rows(student, of_teacher)
            }
            _ => {
                let q = target_rows(chunk, objective, sparse);
                (-(q.clone() * rows.clone()).sum_dim(1).reshape([tokens]), q)
            }
        };
        let entropy = objective.entropy.clone().map(|factor| {
            let factor = factor.cast(rows.dtype()).reshape([tokens, 1]);
            let terms = entropy_terms(chunk, rows);
            q = q.clone() + terms.clone() * factor.clone();
            (factor, -terms.sum_dim(1))
        });
        let normaliser =
            objective.normaliser.clone().map(|factor| factor.cast(lse.dtype()).reshape([tokens, 1]));
        let z_loss = objective.z_loss;
        Self { of_targets, q, softmax, joint, log_probs, lse, prior, entropy, normaliser, z_loss }
    }

    /// `z_n`, `[tokens]`.
    fn z_term(&self) -> Floats<B> {
        let tokens = self.lse.shape()[0];
        (self.prior.clone() * self.lse.clone().square()).sum_dim(1).reshape([tokens])
    }

    /// `L_n`, `[tokens, 1]`.
    fn log_normaliser(&self) -> Floats<B> {
        (self.prior.clone() * self.lse.clone()).sum_dim(1)
    }

    fn loss(&self) -> Floats<B> {
        let mut loss = self.of_targets.clone();
        if self.z_loss != 0.0 {
            loss = loss + self.z_term().mul_scalar(self.z_loss);
        }
        if let Some((factor, entropy)) = &self.entropy {
            let tokens = loss.num_elements();
            loss = loss + (factor.clone() * entropy.clone()).reshape([tokens]);
        }
        if let Some(factor) = &self.normaliser {
            let tokens = loss.num_elements();
            loss = loss + (factor.clone() * self.log_normaliser()).reshape([tokens]);
        }
        loss
    }

    /// As [`Scores::listed`].
    fn listed(&self, chunk: &Chunk<'_, B>, targets: &Targets<Floats<B>, Ints<B>>) -> Option<Floats<B>> {
        let Targets::Listed { ids, .. } = targets else { return None };
        let [tokens, vocab] = self.q.dims();
        let log_probs = self.log_probs.clone().reshape([tokens, vocab]);
        let mut columns = vec![chunk.vocabulary.with_minus_infinity(log_probs).gather(1, ids.clone())];
        columns.extend(self.entropy.as_ref().map(|(_, entropy)| entropy.clone()));
        columns.extend(self.normaliser.as_ref().map(|_| {
            let normaliser = self.log_normaliser();
            match &chunk.vocabulary.masked {
                Some(masked) => {
                    let none = masked.no_word_left.at_least(0.5).expand(normaliser.shape());
                    normaliser.fill_where(none, f64::NEG_INFINITY)
                }
                None => normaliser,
            }
        }));
        Some(Floats::cat(columns, 1))
    }

    /// `[tokens, Statistic::COUNT]`
    pub(super) fn statistics(
        &self,
        chunk: &Chunk<'_, B>,
        targets: &Targets<Floats<B>, Ints<B>>,
    ) -> Floats<B> {
        let [tokens, vocab] = self.q.dims();
        let column = [tokens, 1];
        let log_probs = self.log_probs.clone().reshape([tokens, vocab]);
        let words = targets.words().clone();
        let nll = -log_probs.clone().gather(1, words.clone().reshape(column)).reshape([tokens]);
        let nll = or_infinite(nll, infinite(chunk, &Targets::Words(words), None));
        let entropy = -entropy_terms(chunk, log_probs.clone()).sum_dim(1);
        let lowest = if log_probs.dtype() == DType::F64 { f64::MIN } else { f32::MIN.into() };
        let (of_words, no_word_left) = match &chunk.vocabulary.masked {
            Some(masked) => (masked.fill(log_probs.clone(), lowest), Some(masked.no_word_left.at_least(0.5))),
            None => (log_probs.clone(), None),
        };
        let max = of_words.clone().max_dim(1);
        // The lowest of the words that reach the maximum: others count as beyond the vocabulary.
        let is_best = (of_words - max.clone()).at_least(0.0);
        let max = match no_word_left {
            Some(none) => {
                let none = none.expand(max.shape());
                max.fill_where(none, f64::NEG_INFINITY)
            }
            None => max,
        };
        let beyond = log_probs.zeros_like().add_scalar(vocab as f64).fill_where(is_best, 0.0);
        let number = Ints::<B>::arange(0..vocab as i64, &beyond.device()).float(beyond.dtype());
        let argmax = -(-(beyond + number.reshape([1, vocab]))).max_dim(1);
        let mut columns: Vec<_> = (0..Statistic::COUNT).map(|_| None).collect();
        columns[Statistic::Nll as usize] = Some(nll.reshape(column));
        columns[Statistic::Entropy as usize] = Some(entropy);
        columns[Statistic::Argmax as usize] = Some(argmax);
        columns[Statistic::MaxLogProb as usize] = Some(max);
        columns[Statistic::ZTerm as usize] = Some(self.z_term().reshape(column));
        Floats::cat(columns.into_iter().flatten().collect(), 1).detach()
    }

    fn gradients(self, upstream: Floats<B>) -> Scored<B> {
        let [tokens, vocab] = self.q.dims();
        let Softmax { exp, sum, .. } = self.softmax;
        let prior = self.prior;
        let (shape, [_, components]) = (exp.shape(), self.lse.dims());
        let upstream = upstream.reshape([tokens, 1]);
        let q = (self.q * upstream.clone()).reshape([tokens, 1, vocab]);
        let assigned = (self.joint - self.log_probs).exp() * q;
        let total = assigned.clone().sum_dim(2).reshape([tokens, components]);
        let mut d_log_prior = -total.clone();
        let mut of_probs = total;
        if self.z_loss != 0.0 {
            let pull = prior.clone() * self.lse.clone() * upstream.clone().mul_scalar(self.z_loss);
            d_log_prior = d_log_prior + pull.clone() * self.lse.clone();
            of_probs = of_probs + pull.mul_scalar(2.0);
        }
        if let Some(factor) = self.normaliser {
            let pull = prior * (factor * upstream);
            d_log_prior = d_log_prior + pull.clone() * self.lse;
            of_probs = of_probs + pull;
        }
        let d_mapped = exp * (of_probs.reshape([shape[0], 1]) / sum) - assigned.reshape(shape);
        Scored { d_mapped, d_log_prior }
    }
}

/// `P(v) log P(v)` of log-probabilities `[tokens, V]`, 0 for masked words.
fn entropy_terms<B: Kernels>(chunk: &Chunk<'_, B>, log_probs: Floats<B>) -> Floats<B> {
    chunk.vocabulary.with_minus_infinity(log_probs.clone()).exp() * log_probs
}

/// `w q̃ = w ((1 − ε) q + ε/V')`, `[tokens, V]`.
fn target_rows<B: Kernels>(
    chunk: &Chunk<'_, B>,
    objective: &Objective<Floats<B>, Ints<B>>,
    sparse: Option<&SparseTargets<B>>,
) -> Floats<B> {
    let unmasked = || chunk.vocabulary.unmasked(&chunk.logits);
    match (sparse, &objective.targets) {
        (None, Targets::Distributions { rows, .. }) => {
            let dtype = chunk.logits.dtype();
            let rows = rows.clone().cast(dtype);
            let rows = match objective.label_smoothing {
                0.0 => rows,
                smoothing => {
                    let count = unmasked().sum_dim(1).clamp(1.0, f32::MAX.into());
                    rows.mul_scalar(1.0 - smoothing) + unmasked().mul_scalar(smoothing) / count
                }
            };
            match &objective.class_weights {
                Some(weights) => rows * weights.clone().cast(dtype).reshape([1, chunk.input.vocab()]),
                None => rows,
            }
        }
        (Some(sparse), _) => sparse.rows(chunk.start, chunk.end, unmasked()),
        (None, _) => unreachable!("words and teachers have sparse targets"),
    }
}

/// The tokens whose targets have some of a masked word, `[tokens]`: its probability is 0, and their cross-entropy +∞. Words of
/// weight 0 add nothing to it, masked or not.
fn infinite<B: Kernels>(
    chunk: &Chunk<'_, B>,
    targets: &Targets<Floats<B>, Ints<B>>,
    class_weights: Option<&Floats<B>>,
) -> Option<Bools<B>> {
    let masked = chunk.vocabulary.masked.as_ref()?;
    let dtype = chunk.logits.dtype();
    // 1 for words that count, `[V]`.
    let counts =
        class_weights.map(|weights| weights.zeros_like().fill_where(weights.above(0.0), 1.0).cast(dtype));
    let of_words = |ids: Ints<B>| {
        let is_masked = masked.of_words(ids.clone(), dtype);
        match &counts {
            Some(counts) => {
                let count = ids.num_elements();
                is_masked.clone() * counts.clone().select(0, ids.reshape([count])).reshape(is_masked.shape())
            }
            None => is_masked,
        }
    };
    let mass = match targets.clone() {
        Targets::Words(words) => of_words(words),
        Targets::Teacher { ids, probs, .. } => {
            (of_words(ids) * probs.cast(dtype)).sum_dim(1).reshape([chunk.tokens()])
        }
        Targets::Distributions { rows, .. } => {
            let rows = rows.cast(dtype);
            masked.mass(match &counts {
                Some(counts) => rows * counts.clone().reshape([1, chunk.input.vocab()]),
                None => rows,
            })
        }
        Targets::Listed { .. } | Targets::Model { .. } => return None,
    };
    Some(mass.above(0.0))
}

/// The cross-entropies, infinite where said.
fn or_infinite<B: Kernels>(cross_entropy: Floats<B>, infinite: Option<Bools<B>>) -> Floats<B> {
    match infinite {
        Some(infinite) => cross_entropy.fill_where(infinite, f64::INFINITY),
        None => cross_entropy,
    }
}
