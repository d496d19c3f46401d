//! The visits of a chunk's logits that every call makes, and the small one of its tokens.
//!
//! | kernel | a cube's work | a unit's work |
//! |---|---|---|
//! | [`log_sum_exps`] | a row of logits, then the next of its rows | every `CUBE_DIM`-th word of it |
//! | [`scores`] | | a token's components, one after the other |
//! | [`gradient`] | a row of logits, then the next of its rows | every `CUBE_DIM`-th word of it |
//!
//! The same inputs give the same bits: a sum within a row is a tree in shared memory, and the sums of a PLIF's pieces are
//! whole numbers ([`fixed`](highrank_kernels::gpu::fixed)), which come out the same in any order.

// A condition known when a kernel is compiled stands outside of one that is not; the language has no `is_multiple_of`.
#![allow(clippy::collapsible_if, clippy::manual_is_multiple_of)]

use cubecl::prelude::*;

use super::map::{Form, Numbers, is_masked, is_of_masked, log_prob_of_word, logit, mapped, mapped_slope};
use super::pieces::OuterPieces;
use super::reduce::{LOWEST, cube_lowest_word, cube_max, cube_sum, shared_row};
use crate::ops::Statistic;

/// The values stored for a row of logits.
pub(super) mod row {
    /// The largest mapped logit. Where logits are large it has most digits of their log-sum-exp, so what is left of that
    /// stands apart: a log-probability near 0 keeps its own digits.
    pub const MAX: usize = 0;
    /// `log Σ_v e^{y_v − max}` of the mapped logits `y`.
    pub const LOG_SUM: usize = 1;
    /// The target's log-probability, [`LOWEST`] if it is masked; for the gradient the weight of its one-hot distribution.
    pub const TARGET: usize = 2;
    /// `Σ_i extra_i r_k(id_i)` of listed words; for the gradient the weight of the component's probabilities.
    pub const PROBS: usize = 3;
    /// `Σ_v r_k(v)` of a mixture over unmasked words; for the gradient that of the log-prior.
    pub const PRIOR: usize = 4;
    /// `log π_k − log Σ_k`, with a mapped logit relative to the maximum `log π_k p_k`; only for the gradient of levels, as what follows.
    pub const OFFSET: usize = 5;
    /// Upstream gradient times level.
    pub const LEVEL: usize = 6;
    /// The upstream gradient.
    pub const UPSTREAM: usize = 7;
    /// Of a token's first component, until its score is made: `Σ_i extra_i log P(id_i)` of listed words.
    pub const LISTED: usize = UPSTREAM;
    /// After the gradient, and of the values that it has read: what the row adds to the sums of a PLIF's outer pieces.
    pub const OUTER: usize = MAX;
    /// `Σ_v p_k(v) log P(v)` of a mixture; for the gradient the weight of `p_k log P`. Only for entropies.
    pub const ENTROPY: usize = 8;
    /// Number of values.
    pub const VALUES: usize = 9;
}

/// The values stored for a token's distribution.
pub(super) mod token {
    /// `Σ_v log P(v)` over unmasked words.
    pub const SUM: usize = 0;
    /// Number of unmasked words.
    pub const COUNT: usize = 1;
    /// `−Σ_v P(v) log P(v)`.
    pub const ENTROPY: usize = 2;
    /// The likeliest word.
    pub const ARGMAX: usize = 3;
    /// Its log-probability, [`LOWEST`] if all words are masked.
    pub const MAX: usize = 4;
    /// Number of values.
    pub const VALUES: usize = 5;
}

/// What kernels are compiled for, beside the [`Form`] of the logits. What a kernel does not read is off, so that it is compiled
/// once for all objectives that differ in no more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Options {
    /// Whether there are log-priors and with them log-probabilities; otherwise the only component has all of a word.
    pub(super) prior: bool,
    /// Whether there may be masked words.
    pub(super) masked: bool,
    /// Whether every unmasked word has a share of the target distribution; of [sums](token) those before the entropy.
    pub(super) level: bool,
    /// Whether targets are listed words instead of one a token.
    pub(super) listed: bool,
    /// Whether the loss has some of the entropy.
    pub(super) entropy: bool,
    pub(super) z_loss: bool,
    /// Whether statistics are asked for; of [sums](token) the entropy and what follows.
    pub(super) statistics: bool,
}

impl Options {
    /// Of kernels that sum over a token's words: no other values of [`token`] are computed.
    pub(super) fn of_sums(self) -> Self {
        Self { level: self.level, statistics: self.statistics || self.entropy, ..Self::default() }
    }

    /// Whether there are sums over a token's words.
    pub(super) const fn has_sums(self) -> bool {
        self.level || self.statistics || self.entropy
    }
}

/// Maximum and log-sum-exp of every row's mapped logits, and the target's log-probability, in one visit. Where a row is all of its
/// token's distribution, also the sums over its words that the objective asks for.
#[cube(launch_unchecked)]
#[allow(clippy::too_many_arguments)]
pub(super) fn log_sum_exps<I: Numeric>(
    products: &[f32],
    constants: &[f32],
    words: &[I],
    rows: &mut [f32],
    token_values: &mut [f32],
    count: u32,
    vocab: u32,
    components: u32,
    numbers: Numbers,
    #[comptime] form: Form,
    #[comptime] sums: Options,
    #[define(I)] _dtype: ElemType,
) {
    let mut shared = shared_row();
    let mut row = CUBE_POS_X;
    while row < count {
        let start = row as usize * vocab as usize;
        let mut max = LOWEST.runtime();
        // Relative to the unit's maximum so far: Σ e^y, Σ y and Σ y e^y.
        let mut sum = 0.0f32;
        let mut total = 0.0f32;
        let mut weighted = 0.0f32;
        let mut unmasked = 0u32;
        let mut best = 0u32;
        let mut word = UNIT_POS_X;
        while word < vocab {
            let product = products[start + word as usize];
            if !is_masked(constants, word as usize, &numbers, form) {
                let y = mapped(
                    logit(product, constants, word as usize, &numbers, form),
                    constants,
                    &numbers,
                    form,
                );
                if comptime!(sums.has_sums()) {
                    if y > max {
                        // The first time the difference may be infinite, and there is nothing to scale.
                        if unmasked > 0 {
                            let drop = max - y;
                            let scale = drop.exp();
                            weighted = scale * (weighted + drop * sum);
                            sum *= scale;
                            total += drop * f32::cast_from(unmasked);
                        }
                        max = y;
                        best = word;
                    }
                    let below = y - max;
                    let share = below.exp();
                    sum += share;
                    weighted += share * below;
                    total += below;
                    unmasked += 1;
                } else {
                    if y > max {
                        sum *= (max - y).exp();
                        max = y;
                    }
                    sum += (y - max).exp();
                }
            }
            word += CUBE_DIM_X;
        }
        let row_max = cube_max(max, &mut shared);
        let mut row_sum = cube_sum(sum * (max - row_max).exp(), &mut shared);
        if comptime!(form.bias) {
            // Nothing but masked words.
            if row_sum == 0.0 {
                row_sum = 1.0f32;
            }
        }
        let log_sum = row_sum.ln();
        if comptime!(sums.has_sums()) {
            let place = token::VALUES * row as usize;
            let mut drop = 0.0f32;
            if unmasked > 0 {
                drop = max - row_max;
            }
            let row_count = cube_sum(f32::cast_from(unmasked), &mut shared);
            if comptime!(sums.level) {
                let below = cube_sum(total + drop * f32::cast_from(unmasked), &mut shared);
                if UNIT_POS_X == 0 {
                    token_values[place + token::SUM] = below - row_count * log_sum;
                    token_values[place + token::COUNT] = row_count;
                }
            }
            if comptime!(sums.statistics) {
                let mean = cube_sum(drop.exp() * (weighted + drop * sum), &mut shared) / row_sum;
                let argmax = cube_lowest_word(max, row_max, best, &mut shared);
                if UNIT_POS_X == 0 {
                    token_values[place + token::ENTROPY] = log_sum - mean;
                    token_values[place + token::ARGMAX] = argmax;
                    let mut best = -log_sum;
                    if is_of_masked(row_max) {
                        best = LOWEST.runtime();
                    }
                    token_values[place + token::MAX] = best;
                }
            }
        }
        if UNIT_POS_X == 0 {
            let place = row::VALUES * row as usize;
            rows[place + row::MAX] = row_max;
            rows[place + row::LOG_SUM] = log_sum;
            let target = u32::cast_from(words[(row / components) as usize]);
            let mut at_target = numbers.nan;
            if target < vocab {
                let product = products[start + target as usize];
                at_target =
                    log_prob_of_word(product, constants, target as usize, row_max, log_sum, &numbers, form);
            }
            rows[place + row::TARGET] = at_target;
        }
        row += CUBE_COUNT_X;
    }
}

/// Numbers of an objective that no kernel is compiled for.
#[derive(Clone, Copy, Debug, CubeType, CubeLaunch)]
pub(super) struct Weights {
    /// `1 − ε`.
    pub(super) keep: f32,
    /// `λ`.
    pub(super) z_loss: f32,
    /// The loss of a masked word.
    pub(super) infinity: f32,
}

/// Loss and [statistics](crate::ops::Statistic) of every token. Where there is an upstream gradient, each of its rows gets
/// the weights that [`gradient`] reads.
///
/// - factors: the level of each token, and after them what each token's entropy is multiplied with
#[cube(launch_unchecked)]
#[allow(clippy::too_many_arguments)]
pub(super) fn scores(
    rows: &mut [f32],
    log_prior: &[f32],
    upstream: &[f32],
    token_values: &[f32],
    factors: &[f32],
    loss: &mut [f32],
    columns: &mut [f32],
    tokens: u32,
    components: u32,
    weights: Weights,
    #[comptime] options: Options,
    #[comptime] has_upstream: bool,
) {
    let mut token = ABSOLUTE_POS as u32;
    while token < tokens {
        let first = token as usize * components as usize;
        let mut max = LOWEST.runtime();
        for k in 0..components {
            let row = first + k as usize;
            let joint = joint(rows[row::VALUES * row + row::TARGET], log_prior, row, options.prior);
            if joint > max {
                max = joint;
            }
        }
        let mut sum = 0.0f32;
        for k in 0..components {
            let row = first + k as usize;
            let joint = joint(rows[row::VALUES * row + row::TARGET], log_prior, row, options.prior);
            sum += (joint - max).exp();
        }
        let log_prob = max + sum.ln();
        // In every component, or in none. Not by the maximum, which NaN leaves as low.
        let mut is_impossible = false.runtime();
        if comptime!(options.masked) {
            is_impossible = is_of_masked(rows[row::VALUES * first + row::TARGET]);
        }

        let place = token::VALUES * token as usize;
        let mut cross_entropy = -log_prob;
        if comptime!(options.listed) {
            cross_entropy = -rows[row::VALUES * first + row::LISTED];
        } else if comptime!(options.level) {
            cross_entropy *= weights.keep;
        }
        if comptime!(options.level) {
            cross_entropy -= factors[token as usize] * token_values[place + token::SUM];
        }
        if comptime!(!options.listed) {
            cross_entropy = or_infinite(cross_entropy, weights.infinity, is_impossible);
        }
        let mut z_term = 0.0f32;
        if comptime!(options.z_loss || options.statistics) {
            for k in 0..components {
                let row = first + k as usize;
                let lse = log_sum_exp(
                    rows[row::VALUES * row + row::MAX],
                    rows[row::VALUES * row + row::LOG_SUM],
                    options.masked,
                );
                z_term += prior(log_prior, row, options.prior) * lse * lse;
            }
        }
        if comptime!(options.z_loss) {
            cross_entropy += weights.z_loss * z_term;
        }
        let mut of_entropy = 0.0f32;
        if comptime!(options.entropy) {
            let first = if comptime!(options.level) { tokens as usize } else { 0usize.runtime() };
            of_entropy = factors[first + token as usize];
            cross_entropy += of_entropy * token_values[place + token::ENTROPY];
        }
        loss[token as usize] = cross_entropy;
        if comptime!(options.statistics) {
            let column = comptime!(Statistic::COUNT) * token as usize;
            columns[column + comptime!(Statistic::Nll as usize)] =
                or_infinite(-log_prob, weights.infinity, is_impossible);
            columns[column + comptime!(Statistic::Entropy as usize)] = token_values[place + token::ENTROPY];
            columns[column + comptime!(Statistic::Argmax as usize)] = token_values[place + token::ARGMAX];
            let best = token_values[place + token::MAX];
            columns[column + comptime!(Statistic::MaxLogProb as usize)] =
                -or_infinite(-best, weights.infinity, is_of_masked(best));
            columns[column + comptime!(Statistic::ZTerm as usize)] = z_term;
        }

        if comptime!(has_upstream) {
            let upstream = upstream[token as usize];
            for k in 0..components {
                let row = first + k as usize;
                let of_row = row::VALUES * row;
                // Σ_v q_v r_k(v), of the target alone and of all words.
                let joint = joint(rows[of_row + row::TARGET], log_prior, row, options.prior);
                let mut at_target = (joint - log_prob).exp();
                if is_impossible {
                    at_target = 0.0f32;
                }
                if comptime!(options.level && !options.listed) {
                    at_target *= weights.keep;
                }
                let mut share = at_target;
                if comptime!(options.listed) {
                    share = rows[of_row + row::PROBS];
                }
                if comptime!(options.level) {
                    let everywhere = if comptime!(options.prior) {
                        rows[of_row + row::PRIOR]
                    } else {
                        token_values[place + token::COUNT]
                    };
                    share += factors[token as usize] * everywhere;
                    if comptime!(options.prior) {
                        rows[of_row + row::OFFSET] = log_prior[row] - rows[of_row + row::LOG_SUM];
                    }
                    rows[of_row + row::LEVEL] = upstream * factors[token as usize];
                }
                if comptime!(options.listed) {
                    rows[of_row + row::UPSTREAM] = upstream;
                }
                let mut of_probs = share;
                let mut of_prior = -share;
                if comptime!(options.z_loss) {
                    let lse =
                        log_sum_exp(rows[of_row + row::MAX], rows[of_row + row::LOG_SUM], options.masked);
                    let pull = weights.z_loss * prior(log_prior, row, options.prior) * lse;
                    of_probs += 2.0 * pull;
                    of_prior += pull * lse;
                }
                if comptime!(options.entropy) {
                    let mut mean = -token_values[place + token::ENTROPY];
                    if comptime!(options.prior) {
                        mean = rows[of_row + row::ENTROPY];
                    }
                    let pull = of_entropy * prior(log_prior, row, options.prior);
                    of_probs += pull * mean;
                    of_prior -= pull * mean;
                    rows[of_row + row::ENTROPY] = upstream * pull;
                }
                rows[of_row + row::TARGET] = upstream * at_target;
                rows[of_row + row::PROBS] = upstream * of_probs;
                rows[of_row + row::PRIOR] = upstream * of_prior;
            }
        }
        token += CUBE_COUNT_X * CUBE_DIM_X;
    }
}

/// `log π_k + log p_k(y)` of a row, whose target has the log-probability `at_target`.
#[cube]
fn joint(at_target: f32, log_prior: &[f32], row: usize, #[comptime] has_prior: bool) -> f32 {
    if comptime!(has_prior) { at_target + log_prior[row] } else { at_target }
}

/// `π_k` of a row.
#[cube]
fn prior(log_prior: &[f32], row: usize, #[comptime] has_prior: bool) -> f32 {
    if comptime!(has_prior) { log_prior[row].exp() } else { 1.0f32.runtime() }
}

/// The log-sum-exp of a row, 0 if all words are masked.
#[cube]
fn log_sum_exp(max: f32, log_sum: f32, #[comptime] masked: bool) -> f32 {
    let mut lse = max + log_sum;
    if comptime!(masked) {
        if is_of_masked(max) {
            lse = 0.0f32;
        }
    }
    lse
}

/// A cross-entropy, infinite if it is that of a masked word.
#[cube]
fn or_infinite(cross_entropy: f32, infinity: f32, is_impossible: bool) -> f32 {
    let mut value = cross_entropy;
    if is_impossible {
        value = infinity;
    }
    value
}

/// `∂/∂z = (s p_k − q r_k) ∂(f(z)/τ)/∂z` in the place of the products, with the rows' weights `s` from [`scores`]. For one
/// word a token that is `w (p_k − onehot_y)`; a mixture's `r_k(v) = π_k p_k(v) / P(v)` comes from its log-probabilities in
/// `of_words`, and of listed words from what they are assigned there, whose memory then holds what they add. An entropy adds
/// `−s' p_k log P`, with the weights `s'`.
///
/// Each unit makes its own words, listed ones too, so none reads what another writes. A PLIF's gradients are summed by piece,
/// before the division by the temperature: see [`OuterPieces::add`].
#[cube(launch_unchecked)]
#[allow(clippy::too_many_arguments)]
pub(super) fn gradient<I: Numeric>(
    products: &mut [f32],
    constants: &[f32],
    words: &[I],
    rows: &mut [f32],
    of_words: &mut [f32],
    unit: &[f32],
    inner: &[Atomic<u32>],
    count: u32,
    vocab: u32,
    components: u32,
    length: u32,
    numbers: Numbers,
    #[comptime] form: Form,
    #[comptime] options: Options,
    #[comptime] has_pieces: bool,
    #[define(I)] _dtype: ElemType,
) {
    let mut shared = shared_row();
    let assigned = assigned_from(count / components, vocab, options.prior);
    let mut row = CUBE_POS_X;
    while row < count {
        let start = row as usize * vocab as usize;
        let token = row / components;
        let place = row::VALUES * row as usize;
        let max = rows[place + row::MAX];
        let log_sum = rows[place + row::LOG_SUM];
        let of_probs = rows[place + row::PROBS];
        let mut outer = OuterPieces::new();
        if comptime!(options.listed) {
            let upstream = rows[place + row::UPSTREAM];
            for i in 0..length {
                let word = u32::cast_from(words[(token * length + i) as usize]);
                if word < vocab && word % CUBE_DIM_X == UNIT_POS_X {
                    let at = assigned + (row * length + i) as usize;
                    let mut slope = 0.0f32;
                    if !is_masked(constants, word as usize, &numbers, form) {
                        let z =
                            logit(products[start + word as usize], constants, word as usize, &numbers, form);
                        let g = -upstream * of_words[at];
                        slope = g * mapped_slope(z, constants, &numbers, form);
                        if comptime!(has_pieces) {
                            outer.add(g, z, unit[0], inner, &numbers);
                        }
                    }
                    of_words[at] = slope;
                }
            }
        }
        let mut word = UNIT_POS_X;
        while word < vocab {
            let at = start + word as usize;
            if is_masked(constants, word as usize, &numbers, form) {
                products[at] = 0.0;
            } else {
                let z = logit(products[at], constants, word as usize, &numbers, form);
                let y = mapped(z, constants, &numbers, form) - max;
                let share = (y - log_sum).exp();
                let mut g = of_probs * share;
                if comptime!(options.entropy) {
                    let log_prob = if comptime!(options.prior) {
                        of_words[token as usize * vocab as usize + word as usize]
                    } else {
                        y - log_sum
                    };
                    g -= rows[place + row::ENTROPY] * share * log_prob;
                }
                if comptime!(options.level) {
                    let level = rows[place + row::LEVEL];
                    if comptime!(options.prior) {
                        let log_prob = of_words[token as usize * vocab as usize + word as usize];
                        g -= level * ratio(y + rows[place + row::OFFSET] - log_prob);
                    } else {
                        g -= level;
                    }
                }
                if comptime!(!options.listed) {
                    if word == u32::cast_from(words[token as usize]) {
                        g -= rows[place + row::TARGET];
                    }
                }
                products[at] = g * mapped_slope(z, constants, &numbers, form);
                if comptime!(has_pieces) {
                    outer.add(g, z, unit[0], inner, &numbers);
                }
            }
            word += CUBE_DIM_X;
        }
        if comptime!(options.listed) {
            for i in 0..length {
                let word = u32::cast_from(words[(token * length + i) as usize]);
                if word < vocab && word % CUBE_DIM_X == UNIT_POS_X {
                    products[start + word as usize] += of_words[assigned + (row * length + i) as usize];
                }
            }
        }
        if comptime!(has_pieces) {
            // Every unit has read the row's values: sums wait for all of them.
            outer.write(rows, place + row::OUTER, &mut shared);
        }
        row += CUBE_COUNT_X;
    }
}

/// Where what listed words are assigned, `[tokens·K, m]`, begins in the memory that it shares with a mixture's
/// log-probabilities, `[tokens, V]`. After it come the log-probabilities of the listed words, `[tokens, m]`.
#[cube]
pub(super) fn assigned_from(tokens: u32, vocab: u32, #[comptime] has_prior: bool) -> usize {
    if comptime!(has_prior) { tokens as usize * vocab as usize } else { 0usize.runtime() }
}

/// `e^x` of a ratio that is at most 1 but for rounding.
#[cube]
pub(super) fn ratio(x: f32) -> f32 {
    let mut negative = x;
    if x > 0.0 {
        negative = 0.0f32;
    }
    negative.exp()
}
