//! What a Mixtape's gates add to a token's row of logits, and the gradients that come back.
//!
//! [`GatedArgs`](crate::ops::GatedArgs) has the formula, and the portable body its gradient.

use highrank_kernels::cpu::{LANES, Real, share};
use highrank_kernels::vectorised;
use pulp::Arch;

use super::row::{Lanes, total};
use super::tensors::take;
use crate::ops::gated::{COMPONENTS, GATES};

/// What the backward visit of a token sums over its words.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct TokenSums<T> {
    /// `∂π_j`
    pub(super) leaves: [T; GATES],
    /// The gate logits' gradients.
    pub(super) gates: [T; GATES],
}

/// The products of a run of tokens, and what else the gates of their words are made of.
pub(super) struct GateRows<'a, T> {
    /// `π̄`, `[tokens, 4]`
    pub(super) prior: &'a [T],
    /// The part of a token's gate logits that all words share, `[tokens, 3]`
    pub(super) base: &'a [T],
    /// Of the words, `[3, S]`
    pub(super) bias: &'a [T],
    /// `(h_j − h_4)ᵀ w_x`, in the end its gradient, `[tokens·3, S]`
    pub(super) products: &'a mut [T],
    /// `v_xᵀ t_j`, then `γ_j` as [`stored`] has it, in the end the gradient of the gate's logit, `[tokens·3, S]`
    pub(super) gates: &'a mut [T],
    /// `[tokens]`, or nothing if no gradient is wanted.
    pub(super) sums: &'a mut [TokenSums<T>],
}

impl<T: Real> GateRows<'_, T> {
    /// Takes the first tokens, or as many as there are.
    pub(super) fn take(&mut self, tokens: usize) -> Self {
        let numbers = tokens * self.bias.len();
        let (prior, base);
        (prior, self.prior) = self.prior.split_at(self.prior.len().min(tokens * COMPONENTS));
        (base, self.base) = self.base.split_at(self.base.len().min(tokens * GATES));
        Self {
            prior,
            base,
            bias: self.bias,
            products: take(&mut self.products, numbers),
            gates: take(&mut self.gates, numbers),
            sums: take(&mut self.sums, tokens),
        }
    }

    /// Adds each token's offset to its row of logits, `[tokens, V]`.
    pub(super) fn add_to_each(mut self, logits: &mut [T]) {
        let tokens = self.base.len() / GATES;
        let rows = logits.chunks_exact_mut(logits.len() / tokens);
        share(rows.map(|row| (self.take(1), row)), |(mut of_token, row)| of_token.add_to(row));
    }

    /// `π̄` of the first token.
    fn prior(&self) -> [T; COMPONENTS] {
        *self.prior.first_chunk().expect("four leaves")
    }

    /// Of one token: adds its offset to its row of logits.
    pub(super) fn add_to(&mut self, row: &mut [T]) {
        let (prior, base) = (self.prior(), *self.base.first_chunk().expect("three gates"));
        let (bias, products, gates) = (self.bias, &*self.products, &mut *self.gates);
        vectorised!(Arch::new(), |prior: [T; COMPONENTS],
                                  base: [T; GATES],
                                  bias: &'a [T],
                                  products: &'a [T],
                                  gates: &'a mut [T],
                                  row: &'a mut [T]| {
            let (products, bias, gates) = (three(products), three(bias), three_mut(gates));
            let row = &mut row[..bias[0].len()];
            for first in (0..row.len()).step_by(LANES) {
                let mut all = [[T::ZERO; LANES]; GATES];
                for j in 0..GATES {
                    let (logits, bias) = (load(gates[j], first), load(bias[j], first));
                    for i in 0..LANES {
                        all[j][i] = stored(logits[i] + base[j] + bias[i]);
                    }
                    store(gates[j], first, &all[j]);
                }
                let [d1, d2, d3] = products.map(|row| load(row, first));
                let mut block = load(row, first);
                for i in 0..LANES {
                    let ([one, not_one], [two, not_two]) =
                        (open_and_closed(all[0][i]), open_and_closed(all[1][i]));
                    let [three, _] = open_and_closed(all[2][i]);
                    let (left, right) = (one * two - prior[0], one * not_two - prior[1]);
                    let below = not_one * three - prior[2];
                    block[i] += left.mul_add(d1[i], right.mul_add(d2[i], below * d3[i]));
                }
                store(row, first, &block);
            }
        });
    }

    /// Of one token, whose offset has been added: its rows become their own gradients, for the logits' gradient `row` times
    /// `scale`.
    pub(super) fn pull_back(&mut self, row: &[T], scale: T) {
        let prior = self.prior();
        let Some(sums) = self.sums.first_mut() else { return };
        let (products, gates) = (&mut *self.products, &mut *self.gates);
        *sums = vectorised!(Arch::new(), |prior: [T; COMPONENTS],
                                          products: &'a mut [T],
                                          gates: &'a mut [T],
                                          row: &'a [T],
                                          scale: T|
         -> TokenSums<T> {
            let (products, gates) = (three_mut(products), three_mut(gates));
            let row = &row[..products[0].len()];
            let mut leaves = [[T::ZERO; LANES]; GATES];
            let mut nodes = [[T::ZERO; LANES]; GATES];
            for first in (0..row.len()).step_by(LANES) {
                let grad = load(row, first);
                let mut d = [0, 1, 2].map(|j: usize| load(products[j], first));
                let mut l = [0, 1, 2].map(|j: usize| load(gates[j], first));
                for i in 0..LANES {
                    let g = grad[i] * scale;
                    let ([one, not_one], [two, not_two]) =
                        (open_and_closed(l[0][i]), open_and_closed(l[1][i]));
                    let [three, not_three] = open_and_closed(l[2][i]);
                    let [p1, p2, p3] = [g * d[0][i], g * d[1][i], g * d[2][i]];
                    d[0][i] = g * (one * two - prior[0]);
                    d[1][i] = g * (one * not_two - prior[1]);
                    d[2][i] = g * (not_one * three - prior[2]);
                    l[0][i] = one * not_one * (two * p1 + not_two * p2 - three * p3);
                    l[1][i] = two * not_two * one * (p1 - p2);
                    l[2][i] = three * not_three * not_one * p3;
                    leaves[0][i] += p1;
                    leaves[1][i] += p2;
                    leaves[2][i] += p3;
                    for j in 0..GATES {
                        nodes[j][i] += l[j][i];
                    }
                }
                for j in 0..GATES {
                    store(products[j], first, &d[j]);
                    store(gates[j], first, &l[j]);
                }
            }
            TokenSums { leaves: leaves.map(total), gates: nodes.map(total) }
        });
    }
}

/// Three rows of equal length.
#[inline(always)]
fn three<T>(rows: &[T]) -> [&[T]; GATES] {
    let (first, rest) = rows.split_at(rows.len() / GATES);
    let (second, third) = rest.split_at(first.len());
    [first, second, third]
}

/// As [`three`], to be changed.
#[inline(always)]
fn three_mut<T>(rows: &mut [T]) -> [&mut [T]; GATES] {
    let (first, rest) = rows.split_at_mut(rows.len() / GATES);
    let (second, third) = rest.split_at_mut(first.len());
    [first, second, third]
}

/// A block of a row, 0 beyond its end. The visits work on copies of blocks, of which a compiler sees that they do not overlap.
#[inline(always)]
fn load<T: Real>(row: &[T], first: usize) -> Lanes<T> {
    let rest = &row[first..];
    match rest.first_chunk::<LANES>() {
        Some(block) => *block,
        None => {
            let mut block = [T::ZERO; LANES];
            block[..rest.len()].copy_from_slice(rest);
            block
        }
    }
}

/// Puts a block back.
#[inline(always)]
fn store<T: Real>(row: &mut [T], first: usize, block: &Lanes<T>) {
    let rest = &mut row[first..];
    match rest.first_chunk_mut::<LANES>() {
        Some(place) => *place = *block,
        None => {
            let count = rest.len();
            rest.copy_from_slice(&block[..count]);
        }
    }
}

/// The smaller of `γ = σ(l)` and `1 − γ`, with a minus if it is the latter: a difference from 1 would have lost the digits of
/// whichever is nearly 0.
#[inline(always)]
fn stored<T: Real>(logit: T) -> T {
    let t = (-logit.abs()).exp_of_bounded();
    let smaller = t / (T::ONE + t);
    if logit < T::ZERO { smaller } else { -smaller }
}

/// `γ` and `1 − γ` of what is [`stored`].
#[inline(always)]
fn open_and_closed<T: Real>(stored: T) -> [T; 2] {
    let smaller = stored.abs();
    let larger = T::ONE - smaller;
    // By the sign alone, as the smaller may be 0.
    let is_open = stored.has_minus();
    [if is_open { larger } else { smaller }, if is_open { smaller } else { larger }]
}
