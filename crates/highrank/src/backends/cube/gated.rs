//! Contexts with gates: what they add to the logits of the first words, and the gradients of the products that make it.
//!
//! | kernel | a cube's work | a unit's work |
//! |---|---|---|
//! | [`offset`] | | a word of a token, all its gates |
//! | [`gradients`] | a token, then the next of its tokens | every `CUBE_DIM`-th word with gates |
//!
//! The formulas are those of [`GatedArgs`] and of the portable body. The products and their gradients, `[tokens·3, S]` of a
//! chunk, share memory.

use burn::tensor::DType;
use cubecl::prelude::*;
use highrank_kernels::gpu::{
    CubeBackend, CubeTensor, contiguous, empty, expect, one_cube_each, one_unit_each,
};
use highrank_kernels::{Floats, launch};

use super::reduce::{cube_sum, shared_row};
use crate::likelihood::gated::{Factors, ProductGradients};
use crate::ops::GatedArgs;

/// The inner nodes of the tree of gates.
const GATES: usize = GatedArgs::<()>::GATES;

/// Its leaves.
const COMPONENTS: usize = GatedArgs::<()>::COMPONENTS;

/// Sums over a token's words: of the priors' gradients, then of the gates'.
const SUMS: usize = 2 * GATES;

/// The gates of a run of tokens.
pub(super) struct Gates {
    factors: Factors<CubeBackend>,
    /// `(h_j − h_4)ᵀ w_x`, `[tokens·3, S]`
    products: CubeTensor,
    /// `v_xᵀ t_j`, `[tokens·3, S]`; with [`add_offset`](Self::add_offset) `l`.
    logits: CubeTensor,
    /// `[tokens, 4]`
    prior: CubeTensor,
}

impl Gates {
    /// Of a few tokens, with the decoder's matrix, `[V, d]`; all in f32.
    ///
    /// # Panics
    /// If more words have gates than there are, or a shape is not what the others' say.
    pub(super) fn new(args: GatedArgs<Floats<CubeBackend>>, decoder: &Floats<CubeBackend>) -> Self {
        let (tokens, words) = (args.tokens(), args.words());
        let prior = contiguous(args.inputs.prior.clone());
        let factors = Factors::new(args, decoder);
        let [products, logits] = [factors.products(), factors.gate_products()].map(contiguous);
        expect(&prior, "priors of words without gates", [tokens, COMPONENTS], DType::F32);
        for (product, what) in [(&products, "contexts with gates"), (&logits, "gates")] {
            expect(product, what, [tokens * GATES, words], DType::F32);
        }
        Self { factors, products, logits, prior }
    }

    /// Adds `e` to the first `S` of each token's logits, `[tokens, V]`, in their memory.
    pub(super) fn add_offset(&self, logits: &CubeTensor) {
        let [_, vocab] = logits.meta.shape().dims();
        let args = &self.factors.args;
        let (tokens, words) = (args.tokens(), args.words());
        expect(logits, "logits", [tokens, vocab], DType::F32);
        let [base, bias] = [&args.inputs.base, &args.inputs.bias].map(|x| contiguous(x.clone()));
        expect(&base, "gates' part of a token", [tokens, GATES], DType::F32);
        expect(&bias, "gates' biases", [words, GATES], DType::F32);
        let count = tokens * words;
        // SAFETY: tokens, words and the vocabulary are the shapes of the memory, which were checked, and no more words have
        // gates than there are; logits and products have no owner that reads them before they are whole.
        unsafe {
            launch!(
                logits, one_unit_each(logits, count), offset;
                logits, self.products, self.logits, self.prior, base, bias;
                count as u32, words as u32, vocab as u32
            );
        }
    }

    /// The gradients of the products, after [`add_offset`](Self::add_offset), for that of the logits, `[tokens, V]`.
    pub(super) fn pull_back(
        self,
        d_logits: &Floats<CubeBackend>,
    ) -> (Factors<CubeBackend>, ProductGradients<CubeBackend>) {
        let [_, vocab] = d_logits.dims();
        let (tokens, words) = (self.factors.args.tokens(), self.factors.args.words());
        let d_logits = contiguous(d_logits.clone());
        expect(&d_logits, "gradient of the logits", [tokens, vocab], DType::F32);
        let sums = empty(&d_logits, [tokens, SUMS], DType::F32);
        // SAFETY: as above.
        unsafe {
            launch!(
                d_logits, one_cube_each(&d_logits, tokens), gradients;
                d_logits, self.products, self.logits, self.prior, sums;
                tokens as u32, words as u32, vocab as u32
            );
        }
        let sums = Floats::new(sums);
        let gradients = ProductGradients {
            products: Floats::new(self.products),
            gates: Floats::new(self.logits),
            prior: sums.clone().narrow(1, 0..GATES),
            base: sums.narrow(1, GATES..SUMS),
        };
        (self.factors, gradients)
    }
}

/// `1 / (1 + e^{−x})`, whose smallest values have all their digits.
#[cube]
fn sigmoid(x: f32) -> f32 {
    let small = (-x.abs()).exp();
    let mut share = small;
    if x >= 0.0 {
        share = 1.0f32;
    }
    share / (1.0 + small)
}

/// `l` in the place of the gates' products, and the logits with `e`.
#[cube(launch_unchecked)]
#[allow(clippy::too_many_arguments)]
fn offset(
    logits: &mut [f32],
    products: &[f32],
    gates: &mut [f32],
    prior: &[f32],
    base: &[f32],
    bias: &[f32],
    count: u32,
    words: u32,
    vocab: u32,
) {
    let mut at = ABSOLUTE_POS as u32;
    while at < count {
        let token = (at / words) as usize;
        let word = (at % words) as usize;
        let first = GATES * token * words as usize + word;
        let second = first + words as usize;
        let third = second + words as usize;
        let l_1 = gates[first] + base[GATES * token] + bias[GATES * word];
        let l_2 = gates[second] + base[GATES * token + 1] + bias[GATES * word + 1];
        let l_3 = gates[third] + base[GATES * token + 2] + bias[GATES * word + 2];
        gates[first] = l_1;
        gates[second] = l_2;
        gates[third] = l_3;
        let of_token = COMPONENTS * token;
        let delta_1 = sigmoid(l_1) * sigmoid(l_2) - prior[of_token];
        let delta_2 = sigmoid(l_1) * sigmoid(-l_2) - prior[of_token + 1];
        let delta_3 = sigmoid(-l_1) * sigmoid(l_3) - prior[of_token + 2];
        logits[token * vocab as usize + word] +=
            delta_1 * products[first] + delta_2 * products[second] + delta_3 * products[third];
        at += CUBE_COUNT_X * CUBE_DIM_X;
    }
}

/// The gradients of both kinds of products in their places, and every token's sums.
#[cube(launch_unchecked)]
#[allow(clippy::too_many_arguments)]
fn gradients(
    d_logits: &[f32],
    products: &mut [f32],
    gates: &mut [f32],
    prior: &[f32],
    sums: &mut [f32],
    tokens: u32,
    words: u32,
    vocab: u32,
) {
    let mut shared = shared_row();
    let mut token = CUBE_POS_X;
    while token < tokens {
        let start = token as usize * vocab as usize;
        let of_gates = GATES * token as usize * words as usize;
        let of_token = COMPONENTS * token as usize;
        let mut prior_1 = 0.0f32;
        let mut prior_2 = 0.0f32;
        let mut prior_3 = 0.0f32;
        let mut base_1 = 0.0f32;
        let mut base_2 = 0.0f32;
        let mut base_3 = 0.0f32;
        let mut word = UNIT_POS_X;
        while word < words {
            let first = of_gates + word as usize;
            let second = first + words as usize;
            let third = second + words as usize;
            let open_1 = sigmoid(gates[first]);
            let open_2 = sigmoid(gates[second]);
            let open_3 = sigmoid(gates[third]);
            let closed_1 = sigmoid(-gates[first]);
            let closed_2 = sigmoid(-gates[second]);
            let closed_3 = sigmoid(-gates[third]);
            let grad = d_logits[start + word as usize];
            let pull_1 = grad * products[first];
            let pull_2 = grad * products[second];
            let pull_3 = grad * products[third];
            products[first] = grad * (open_1 * open_2 - prior[of_token]);
            products[second] = grad * (open_1 * closed_2 - prior[of_token + 1]);
            products[third] = grad * (closed_1 * open_3 - prior[of_token + 2]);
            let d_open = open_2 * pull_1 + closed_2 * pull_2 - open_3 * pull_3;
            let d_1 = d_open * open_1 * closed_1;
            let d_2 = open_1 * (pull_1 - pull_2) * open_2 * closed_2;
            let d_3 = closed_1 * pull_3 * open_3 * closed_3;
            gates[first] = d_1;
            gates[second] = d_2;
            gates[third] = d_3;
            prior_1 -= pull_1;
            prior_2 -= pull_2;
            prior_3 -= pull_3;
            base_1 += d_1;
            base_2 += d_2;
            base_3 += d_3;
            word += CUBE_DIM_X;
        }
        let prior_1 = cube_sum(prior_1, &mut shared);
        let prior_2 = cube_sum(prior_2, &mut shared);
        let prior_3 = cube_sum(prior_3, &mut shared);
        let base_1 = cube_sum(base_1, &mut shared);
        let base_2 = cube_sum(base_2, &mut shared);
        let base_3 = cube_sum(base_3, &mut shared);
        if UNIT_POS_X == 0 {
            let place = SUMS * token as usize;
            sums[place] = prior_1;
            sums[place + 1] = prior_2;
            sums[place + 2] = prior_3;
            sums[place + 3] = base_1;
            sums[place + 4] = base_2;
            sums[place + 5] = base_3;
        }
        token += CUBE_COUNT_X;
    }
}
