//! Contexts that every word mixes by gates of its own: the offset of the first words' logits, and what its gradient is for the inputs.
//!
//! [`GatedArgs`] has the formula of the offset `e`. With `p_j = ∂/∂π_j`, which is `(h_j − h_4)ᵀ w_x` times the gradient of `e`:
//!
//! ```text
//! ∂γ₁ = γ₂ p₁ + (1 − γ₂) p₂ − γ₃ p₃      ∂γ₂ = γ₁ (p₁ − p₂)      ∂γ₃ = (1 − γ₁) p₃      ∂l = γ (1 − γ) ∂γ
//! ```
//!
//! The portable body: it runs on every backend, and native kernels are checked against it.

use highrank_kernels::Floats;

use super::parts::{add_part, joined};
use crate::math::sigmoid;
use crate::ops::gated::{COMPONENTS, GATES};
use crate::ops::{GatedArgs, GatedGradients, GatedInputs, GatedWanted, Kernels};

/// A run of tokens with the products that their gates are made of.
pub(crate) struct Chunk<B: Kernels> {
    args: GatedArgs<Floats<B>>,
    /// `W` of the words with gates, `[S, d]`
    weight: Floats<B>,
    /// `h_j − h_4`, `[tokens·3, d]`
    differences: Floats<B>,
    /// `t`, `[tokens·3, G]`
    features: Floats<B>,
    /// `(h_j − h_4)ᵀ w_x`, `[tokens, 3, S]`
    products: Floats<B>,
    /// `γ_j` and `1 − γ_j`, `[tokens, 3, S]`
    open: Floats<B>,
    closed: Floats<B>,
}

impl<B: Kernels> Chunk<B> {
    /// Of a few tokens, with the decoder's matrix, `[V, d]`.
    ///
    /// # Panics
    /// If more words have gates than there are.
    pub(crate) fn new(args: GatedArgs<Floats<B>>, decoder: &Floats<B>) -> Self {
        let (tokens, words, [vocab, d]) = (args.tokens(), args.words(), decoder.dims());
        assert!(words <= vocab, "likelihood: gates of {words} words, but there are {vocab}");
        let GatedInputs { latent, features, base, vectors, bias, .. } = args.inputs.clone();
        let weight = decoder.clone().rows(0..words);
        let latent = latent.reshape([tokens, COMPONENTS, d]);
        let last = latent.clone().narrow(1, GATES..COMPONENTS);
        let differences = (latent.narrow(1, 0..GATES) - last).reshape([tokens * GATES, d]);
        let features = features.reshape([tokens * GATES, args.d_gate()]);
        let product = |rows: &Floats<B>, of_words: Floats<B>| {
            B::product(rows.clone(), of_words.transpose(), args.precision).reshape([tokens, GATES, words])
        };
        let products = product(&differences, weight.clone());
        let logits = product(&features, vectors)
            + base.reshape([tokens, GATES, 1])
            + bias.transpose().reshape([1, GATES, words]);
        let (open, closed) = (sigmoid(logits.clone()), sigmoid(-logits));
        Self { args, weight, differences, features, products, open, closed }
    }

    /// The logits `[tokens, V]` with the offset of the first words, `e`.
    pub(crate) fn offset(&self, logits: Floats<B>) -> Floats<B> {
        let [first, second, third] = [0, 1, 2].map(|j| self.delta(j) * self.product(j));
        let offset = first + second + third;
        let ([rows, vocab], [tokens, words]) = (logits.dims(), offset.dims());
        assert_eq!(rows, tokens, "likelihood: gates of {tokens} tokens for {rows} rows of logits");
        match words == vocab {
            true => logits + offset,
            false => {
                let first = logits.clone().narrow(1, 0..words) + offset;
                Floats::cat(vec![first, logits.narrow(1, words..vocab)], 1)
            }
        }
    }

    /// For the gradient of the logits, `[tokens, V]`, those of both kinds of products, `(h_j − h_4)ᵀ w_x` and `l`,
    /// `[tokens·3, S]`; and their sums over a token's words: of `π̄` without the mixed context's part, `−Σ_x p_j`, and of `a`,
    /// `[tokens, 3]`.
    fn pull_back(&self, d_logits: &Floats<B>) -> [Floats<B>; 4] {
        let [tokens, _, words] = self.products.dims();
        let grad = d_logits.clone().narrow(1, 0..words);
        let rows = |parts: [Floats<B>; GATES]| {
            let parts = parts.map(|part| part.reshape([tokens, 1, words])).to_vec();
            Floats::cat(parts, 1)
        };
        let flat = |x: Floats<B>| x.reshape([tokens * GATES, words]);
        let pulls = [0, 1, 2].map(|j| grad.clone() * self.product(j));
        let prior = pulls.clone().map(|pull| -pull.sum_dim(1)).to_vec();
        let products = rows([0, 1, 2].map(|j| grad.clone() * self.delta(j)));

        let [one, two, three] = pulls;
        let [open, closed] = [&self.open, &self.closed].map(|all| [0, 1, 2].map(|j| self.part(all, j)));
        let d_open = rows([
            open[1].clone() * one.clone() + closed[1].clone() * two.clone() - open[2].clone() * three.clone(),
            open[0].clone() * (one - two),
            closed[0].clone() * three,
        ]);
        let gates = d_open * self.open.clone() * self.closed.clone();
        let base = gates.clone().sum_dim(2).reshape([tokens, GATES]);
        [flat(products), flat(gates), Floats::cat(prior, 1), base]
    }

    /// A gate's part of `[tokens, 3, S]`.
    fn part(&self, all: &Floats<B>, j: usize) -> Floats<B> {
        let [tokens, _, words] = all.dims();
        all.clone().narrow(1, j..j + 1).reshape([tokens, words])
    }

    /// `(h_j − h_4)ᵀ w_x`, `[tokens, S]`.
    fn product(&self, j: usize) -> Floats<B> {
        self.part(&self.products, j)
    }

    /// `π_j − π̄_j`, `[tokens, S]`.
    fn delta(&self, j: usize) -> Floats<B> {
        let leaf = match j {
            0 => self.part(&self.open, 0) * self.part(&self.open, 1),
            1 => self.part(&self.open, 0) * self.part(&self.closed, 1),
            _ => self.part(&self.closed, 0) * self.part(&self.open, 2),
        };
        leaf - self.args.inputs.prior.clone().narrow(1, j..j + 1)
    }
}

/// Gradients summed or joined over the chunks and blocks so far.
#[derive(Default)]
pub(super) struct GatedParts<B: Kernels> {
    /// Of the block's chunks: what the offset adds to the gradients of `π̄` and `h`.
    of_chunks: [Vec<Floats<B>>; 2],
    inputs: GatedInputs<Vec<Floats<B>>>,
    /// Of the decoder rows of words with gates, `[S, d]`
    weight: Vec<Floats<B>>,
}

impl<B: Kernels> GatedParts<B> {
    /// What a chunk adds to the gradients for that of its logits, `[tokens, V]`, with or without that of the decoder.
    pub(super) fn add(&mut self, chunk: Chunk<B>, d_logits: &Floats<B>, wanted: GatedWanted, decoder: bool) {
        let [products, gates, prior, base] = chunk.pull_back(d_logits);
        let Chunk { args, weight, differences, features, .. } = chunk;
        let (tokens, words, d, precision) = (args.tokens(), args.words(), args.d_embedding(), args.precision);
        let ([of_prior, of_latent], inputs) = (&mut self.of_chunks, &mut self.inputs);
        if wanted.prior {
            let last = prior.clone().narrow(1, 0..1).zeros_like();
            of_prior.push(Floats::cat(vec![prior, last], 1));
        }
        if wanted.latent {
            let d_rows = B::product(products.clone(), weight, precision).reshape([tokens, GATES, d]);
            let d_last = -d_rows.clone().sum_dim(1);
            of_latent.push(Floats::cat(vec![d_rows, d_last], 1).reshape([tokens, COMPONENTS * d]));
        }
        if decoder {
            add_part(&mut self.weight, B::product(products.transpose(), differences, precision));
        }
        if wanted.base {
            inputs.base.push(base);
        }
        if wanted.bias {
            let of_words = gates.clone().reshape([tokens, GATES, words]).sum_dim(0);
            add_part(&mut inputs.bias, of_words.reshape([GATES, words]).transpose());
        }
        if wanted.features {
            let d_features = B::product(gates.clone(), args.inputs.vectors, precision);
            inputs.features.push(d_features.reshape([tokens, GATES * features.dims::<2>()[1]]));
        }
        if wanted.vectors {
            add_part(&mut inputs.vectors, B::product(gates.transpose(), features, precision));
        }
    }

    /// Ends a block: the gradient of its mixed contexts, `[tokens, d]`, is taken back to what they are mixed of.
    pub(super) fn add_block(&mut self, args: GatedArgs<Floats<B>>, grad: Floats<B>, wanted: GatedWanted) {
        let of_mix = [wanted.prior, wanted.latent];
        let [prior, latent] = B::mix_backward(args.inputs.prior, args.inputs.latent, grad, of_mix);
        let [of_prior, of_latent] = std::mem::take(&mut self.of_chunks);
        self.inputs.prior.extend(prior.map(|prior| prior + Floats::cat(of_prior, 0)));
        self.inputs.latent.extend(latent.map(|latent| latent + Floats::cat(of_latent, 0)));
    }

    /// The gradients, and that of the decoder with what the offset adds to its first rows.
    pub(super) fn finish(self, decoder: Option<Floats<B>>) -> (GatedGradients<Floats<B>>, Option<Floats<B>>) {
        let decoder = decoder.map(|decoder| match joined(self.weight) {
            Some(weight) => {
                let first = 0..weight.shape()[0];
                decoder.clone().assign_rows(first.clone(), decoder.rows(first) + weight)
            }
            None => decoder,
        });
        (self.inputs.map(joined), decoder)
    }
}
