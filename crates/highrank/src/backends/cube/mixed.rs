//! The further visits of a mixture whose targets are more than one word a token, and of listed words.
//!
//! | kernel | a cube's work | a unit's work |
//! |---|---|---|
//! | [`mixed_log_probs`] | | a word of a token, all its components |
//! | [`token_sums`] | a token, then the next of its tokens | every `CUBE_DIM`-th word |
//! | [`shares`] | a row of logits, then the next of its rows | every `CUBE_DIM`-th word, listed or of all |

// A condition known when a kernel is compiled stands outside of one that is not; the language has no `is_multiple_of`.
#![allow(clippy::collapsible_if, clippy::manual_is_multiple_of)]

use cubecl::prelude::*;

use super::kernels::{Options, assigned_from, ratio, row, token};
use super::map::{Form, Numbers, is_masked, log_prob_of_word, logit, mapped};
use super::reduce::{LOWEST, cube_lowest_word, cube_max, cube_sum, shared_row};

/// `log P(v)` of every word of a mixture's tokens, `[tokens, V]`; [`LOWEST`] of a masked one.
#[cube(launch_unchecked)]
#[allow(clippy::too_many_arguments)]
pub(super) fn mixed_log_probs(
    products: &[f32],
    constants: &[f32],
    rows: &[f32],
    log_prior: &[f32],
    log_probs: &mut [f32],
    count: u32,
    vocab: u32,
    components: u32,
    numbers: Numbers,
    #[comptime] form: Form,
) {
    let mut at = ABSOLUTE_POS as u32;
    while at < count {
        let word = at % vocab;
        let first = at / vocab * components;
        let mut max = LOWEST.runtime();
        let mut sum = 0.0f32;
        for k in 0..components {
            let row = (first + k) as usize;
            let product = products[row * vocab as usize + word as usize];
            let row_max = rows[row::VALUES * row + row::MAX];
            let log_sum = rows[row::VALUES * row + row::LOG_SUM];
            let of_word =
                log_prob_of_word(product, constants, word as usize, row_max, log_sum, &numbers, form);
            let joint = of_word + log_prior[row];
            if joint > max {
                sum *= (max - joint).exp();
                max = joint;
            }
            sum += (joint - max).exp();
        }
        log_probs[at as usize] = max + sum.ln();
        at += CUBE_COUNT_X * CUBE_DIM_X;
    }
}

/// The sums over every token's words that the objective asks for: see [`token`].
#[cube(launch_unchecked)]
#[allow(clippy::too_many_arguments)]
pub(super) fn token_sums(
    log_probs: &[f32],
    constants: &[f32],
    token_values: &mut [f32],
    tokens: u32,
    vocab: u32,
    numbers: Numbers,
    #[comptime] form: Form,
    #[comptime] sums: Options,
) {
    let mut shared = shared_row();
    let mut token = CUBE_POS_X;
    while token < tokens {
        let start = token as usize * vocab as usize;
        let mut total = 0.0f32;
        let mut unmasked = 0.0f32;
        let mut entropy = 0.0f32;
        let mut max = LOWEST.runtime();
        let mut best = 0u32;
        let mut word = UNIT_POS_X;
        while word < vocab {
            if !is_masked(constants, word as usize, &numbers, form) {
                let log_prob = log_probs[start + word as usize];
                if comptime!(sums.level) {
                    total += log_prob;
                    unmasked += 1.0;
                }
                if comptime!(sums.statistics) {
                    entropy -= log_prob.exp() * log_prob;
                    if log_prob > max {
                        max = log_prob;
                        best = word;
                    }
                }
            }
            word += CUBE_DIM_X;
        }
        let place = token::VALUES * token as usize;
        if comptime!(sums.level) {
            let total = cube_sum(total, &mut shared);
            let unmasked = cube_sum(unmasked, &mut shared);
            if UNIT_POS_X == 0 {
                token_values[place + token::SUM] = total;
                token_values[place + token::COUNT] = unmasked;
            }
        }
        if comptime!(sums.statistics) {
            let entropy = cube_sum(entropy, &mut shared);
            let token_max = cube_max(max, &mut shared);
            let argmax = cube_lowest_word(max, token_max, best, &mut shared);
            if UNIT_POS_X == 0 {
                token_values[place + token::ENTROPY] = entropy;
                token_values[place + token::ARGMAX] = argmax;
                token_values[place + token::MAX] = token_max;
            }
        }
        token += CUBE_COUNT_X;
    }
}

/// Sums of `r_k(v) = π_k p_k(v) / P(v)` over a row's words: `Σ_i extra_i r_k(id_i)` over a list, with its terms in
/// `of_words`; over all unmasked words `Σ_v r_k(v)`, for levels, and `Σ_v p_k(v) log P(v)`, for entropies. The same pass computes
/// `Σ_i extra_i log P(id_i)` of every token, and leaves each `log P(id_i)` after the terms.
#[cube(launch_unchecked)]
#[allow(clippy::too_many_arguments)]
pub(super) fn shares<I: Numeric>(
    products: &[f32],
    constants: &[f32],
    words: &[I],
    extra: &[f32],
    log_prior: &[f32],
    of_words: &mut [f32],
    rows: &mut [f32],
    count: u32,
    vocab: u32,
    components: u32,
    length: u32,
    numbers: Numbers,
    #[comptime] form: Form,
    #[comptime] options: Options,
    #[define(I)] _dtype: ElemType,
) {
    let mut shared = shared_row();
    let assigned = assigned_from(count / components, vocab, options.prior);
    let log_probs = assigned + count as usize * length as usize;
    let mut row = CUBE_POS_X;
    while row < count {
        let token = row / components;
        let start = row as usize * vocab as usize;
        let of_token = token as usize * vocab as usize;
        let place = row::VALUES * row as usize;
        let max = rows[place + row::MAX];
        let log_sum = rows[place + row::LOG_SUM];
        if comptime!(options.listed) {
            let mut share = 0.0f32;
            let mut sum = 0.0f32;
            let mut i = UNIT_POS_X;
            while i < length {
                let at = (token * length + i) as usize;
                let word = u32::cast_from(words[at]);
                let mut log_prob = numbers.nan;
                let mut part = numbers.nan;
                let mut is_impossible = false.runtime();
                if word < vocab {
                    let product = products[start + word as usize];
                    if is_masked(constants, word as usize, &numbers, form) {
                        is_impossible = true;
                        // Without any probability it adds nothing.
                        part = 0.0f32;
                        log_prob = 0.0f32;
                        if extra[at] > 0.0 {
                            log_prob = -numbers.infinity;
                        }
                    } else {
                        let z = logit(product, constants, word as usize, &numbers, form);
                        let y = mapped(z, constants, &numbers, form) - max - log_sum;
                        if comptime!(options.prior) {
                            log_prob = of_words[of_token + word as usize];
                            part = ratio(y + log_prior[row as usize] - log_prob);
                        } else {
                            log_prob = y;
                            part = 1.0f32;
                        }
                    }
                }
                part *= extra[at];
                share += part;
                sum += extra[at] * log_prob;
                of_words[assigned + (row * length + i) as usize] = part;
                if row % components == 0 {
                    if is_impossible {
                        log_prob = -numbers.infinity;
                    }
                    of_words[log_probs + at] = log_prob;
                }
                i += CUBE_DIM_X;
            }
            let share = cube_sum(share, &mut shared);
            let sum = cube_sum(sum, &mut shared);
            if UNIT_POS_X == 0 {
                rows[place + row::PROBS] = share;
                if row % components == 0 {
                    rows[place + row::LISTED] = sum;
                }
            }
        }
        if comptime!(options.level || options.entropy) {
            let mut total = 0.0f32;
            let mut mean = 0.0f32;
            let mut word = UNIT_POS_X;
            while word < vocab {
                if !is_masked(constants, word as usize, &numbers, form) {
                    let z = logit(products[start + word as usize], constants, word as usize, &numbers, form);
                    let y = mapped(z, constants, &numbers, form) - max - log_sum;
                    let log_prob = of_words[of_token + word as usize];
                    if comptime!(options.level) {
                        total += ratio(y + log_prior[row as usize] - log_prob);
                    }
                    if comptime!(options.entropy) {
                        mean += y.exp() * log_prob;
                    }
                }
                word += CUBE_DIM_X;
            }
            if comptime!(options.level) {
                let total = cube_sum(total, &mut shared);
                if UNIT_POS_X == 0 {
                    rows[place + row::PRIOR] = total;
                }
            }
            if comptime!(options.entropy) {
                let mean = cube_sum(mean, &mut shared);
                if UNIT_POS_X == 0 {
                    rows[place + row::ENTROPY] = mean;
                }
            }
        }
        row += CUBE_COUNT_X;
    }
}
