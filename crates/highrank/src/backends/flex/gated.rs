//! Native CPU kernel of a Mixtape's contexts and of the gates of its words on Burn's Flex backend.
//!
//! A chunk of tokens: the mixed contexts, which the likelihood reads like any others, and two products, three rows a token with
//! the decoder and three with the gates. While a token's row of logits is in cache, its [`Rows`] are added to it, and become
//! their own gradients. Then products take four gradients out of these; that of the decoder is added to its first rows in place.

use core::ops::Range;

use burn::backend::Flex;
use burn_flex::FlexTensor;
use highrank_kernels::cpu::{Buffer, Factor, Matrix, Real, contiguous, multiply_rounded, slice};
use highrank_kernels::{Floats, Precision};
use rayon::prelude::*;

use super::factor::Stored;
use super::gated_rows::{COMPONENTS, GATES, Rows, Terms, TokenSums};
use super::mix;
use super::slices::assert_length;
use crate::ops::{GatedArgs, GatedGradients, GatedInputs, GatedWanted, MixInputs};

/// Columns that a thread sums over all rows at a time.
const COLUMNS: usize = 256;

/// The arguments row-major, in the type of sums.
pub(super) struct Inputs {
    prior: FlexTensor,
    latent: FlexTensor,
    features: FlexTensor,
    base: FlexTensor,
    vectors: FlexTensor,
    /// `[3, S]`
    bias: FlexTensor,
    tokens: usize,
    words: usize,
    d: usize,
    d_gate: usize,
    precision: Precision,
}

impl Inputs {
    /// Of tensors in the type of sums, for a decoder `[V, d]` and so many components.
    ///
    /// # Panics
    /// If tensors do not fit each other, or there are several components.
    pub(super) fn new(args: &GatedArgs<Floats<Flex>>, components: usize, [vocab, d]: [usize; 2]) -> Self {
        assert_eq!(components, 1, "likelihood: components of contexts with gates");
        let (tokens, words, d_gate) = (args.tokens(), args.words(), args.d_gate());
        let inputs = Self {
            prior: contiguous(&args.prior),
            latent: contiguous(&args.latent),
            features: contiguous(&args.features),
            base: contiguous(&args.base),
            vectors: contiguous(&args.vectors),
            bias: contiguous(&args.bias.clone().transpose()),
            tokens,
            words,
            d,
            d_gate,
            precision: args.precision,
        };
        assert!(words <= vocab, "likelihood: gates of {words} words, but there are {vocab}");
        assert_length("mixing probabilities", Some(&inputs.prior), tokens * COMPONENTS);
        assert_length("latent contexts", Some(&inputs.latent), tokens * COMPONENTS * d);
        assert_length("gate features", Some(&inputs.features), tokens * GATES * d_gate);
        assert_length("gate logits", Some(&inputs.base), tokens * GATES);
        assert_length("gate biases", Some(&inputs.bias), GATES * words);
        inputs
    }

    /// On slices.
    pub(super) fn gates<'a, T: Real>(&'a self, decoder: Stored<'a, T>) -> Gates<'a, T> {
        let Self { words, d, d_gate, precision, .. } = *self;
        let terms =
            Terms { prior: slice(&self.prior), base: slice(&self.base), bias: slice(&self.bias), words };
        Gates {
            terms,
            latent: slice(&self.latent),
            features: slice(&self.features),
            vectors: Matrix::new(slice(&self.vectors), words, d_gate),
            weight: decoder.rows(0..words, d).factor(words, d),
            d,
            d_gate,
            precision,
        }
    }

    /// Room for the wanted gradients.
    pub(super) fn room<T: Real>(&self, wanted: GatedWanted) -> GateGradients<T> {
        let Self { tokens, words, d, d_gate, .. } = *self;
        let room = |wanted: bool, len: usize| wanted.then(|| Buffer::zeros(len));
        // Every token writes its own.
        let own = |wanted: bool, width: usize| wanted.then(|| Buffer::new(tokens * width));
        GatedInputs {
            prior: own(wanted.prior, COMPONENTS),
            latent: own(wanted.latent, COMPONENTS * d),
            features: own(wanted.features, GATES * d_gate),
            base: own(wanted.base, GATES),
            vectors: room(wanted.vectors, words * d_gate),
            bias: room(wanted.bias, GATES * words),
        }
    }

    /// The gradients as tensors.
    pub(super) fn finish<T: Real>(&self, made: GateGradients<T>) -> GatedGradients<Floats<Flex>> {
        let Self { tokens, words, d, d_gate, .. } = *self;
        let tensor = |values: Option<Buffer<T>>, shape: [usize; 2]| {
            values.map(|values| Floats::new(values.into_tensor(shape)))
        };
        GatedGradients {
            prior: tensor(made.prior, [tokens, COMPONENTS]),
            latent: tensor(made.latent, [tokens, COMPONENTS * d]),
            features: tensor(made.features, [tokens, GATES * d_gate]),
            base: tensor(made.base, [tokens, GATES]),
            vectors: tensor(made.vectors, [words, d_gate]),
            bias: tensor(made.bias, [GATES, words]).map(Floats::transpose),
        }
    }
}

/// The wanted gradients; that of the biases is `[3, S]`.
pub(super) type GateGradients<T> = GatedInputs<Option<Buffer<T>>>;

/// The inputs as slices.
pub(super) struct Gates<'a, T> {
    terms: Terms<'a, T>,
    /// `[N, 4·d]`
    latent: &'a [T],
    /// `[N, 3·G]`
    features: &'a [T],
    /// `[S, G]`
    vectors: Matrix<'a, T>,
    /// `[S, d]`
    weight: Factor<'a, T>,
    d: usize,
    d_gate: usize,
    precision: Precision,
}

/// What a run of tokens is worked on in.
pub(super) struct Room<T> {
    /// `h_j − h_4`, then its gradient, `[tokens·3, d]`
    differences: Buffer<T>,
    /// As [`Rows`] say, `[tokens·3, S]`
    products: Buffer<T>,
    gates: Buffer<T>,
    /// `[tokens]`, or nothing.
    sums: Vec<TokenSums<T>>,
}

impl<T: Real> Room<T> {
    /// For so many tokens, with gradients or without.
    pub(super) fn new(gates: &Gates<'_, T>, tokens: usize, is_graded: bool) -> Self {
        let rows = tokens * GATES;
        Self {
            differences: Buffer::new(rows * gates.d),
            products: Buffer::new(rows * gates.terms.words),
            gates: Buffer::new(rows * gates.terms.words),
            sums: vec![TokenSums::NONE; if is_graded { tokens } else { 0 }],
        }
    }
}

impl<'a, T: Real> Gates<'a, T> {
    pub(super) fn terms(&self) -> Terms<'a, T> {
        self.terms
    }

    /// Some tokens' `π̄` and contexts, and their sizes.
    fn mixture(&self, tokens: &Range<usize>) -> (mix::Sizes, &'a [T], &'a [T]) {
        let sizes = mix::Sizes { tokens: tokens.len(), components: COMPONENTS, d: self.d };
        let of = |width: usize| tokens.start * width..tokens.end * width;
        (sizes, &self.terms.prior[of(COMPONENTS)], &self.latent[of(COMPONENTS * self.d)])
    }

    /// Some tokens' features, `[tokens·3, G]`.
    fn features(&self, tokens: &Range<usize>) -> Matrix<'a, T> {
        let width = GATES * self.d_gate;
        let values = &self.features[tokens.start * width..tokens.end * width];
        Matrix::new(values, tokens.len() * GATES, self.d_gate)
    }

    /// Writes some tokens' mixed contexts, `[tokens, d]`.
    pub(super) fn mix(&self, tokens: Range<usize>, out: &mut [T]) {
        let (sizes, prior, latent) = self.mixture(&tokens);
        mix::mixed(&sizes, prior, latent, out);
    }

    /// Both products of some tokens.
    pub(super) fn products<'r>(&'r self, tokens: Range<usize>, room: &'r mut Room<T>) -> Rows<'r, T> {
        let (d, rows, count) = (self.d, tokens.len() * GATES, tokens.len() * self.terms.width());
        let (_, _, latent) = self.mixture(&tokens);
        let differences = &mut room.differences[..rows * d];
        let each = differences.par_chunks_exact_mut(GATES * d).zip(latent.par_chunks_exact(COMPONENTS * d));
        each.for_each(|(differences, latent)| {
            let (contexts, last) = latent.split_at(GATES * d);
            for (out, context) in differences.chunks_exact_mut(d).zip(contexts.chunks_exact(d)) {
                out.iter_mut().zip(context.iter().zip(last)).for_each(|(out, (h, last))| *out = *h - *last);
            }
        });
        let differences = Matrix::new(&*differences, rows, d);
        let (products, gates) = (&mut room.products[..count], &mut room.gates[..count]);
        multiply_rounded(products, differences, self.weight.t(), false, self.precision);
        multiply_rounded(gates, self.features(&tokens), self.vectors.t(), false, self.precision);
        Rows::new(self.terms, tokens, products, gates, &mut room.sums)
    }

    /// Takes back the gradients that some tokens' rows have become: makes the tokens' gradients, and adds to those of words and,
    /// if given, to the decoder's, `[V, d]`. That of the mixed contexts is `[tokens, d]`, or not needed.
    pub(super) fn backward(
        &self,
        tokens: Range<usize>,
        d_contexts: Option<&[T]>,
        room: &mut Room<T>,
        made: &mut GateGradients<T>,
        decoder: Option<&mut [T]>,
    ) {
        let (d, words, precision) = (self.d, self.terms.words, self.precision);
        let (rows, is_first) = (tokens.len() * GATES, tokens.start == 0);
        let of = |width: usize| tokens.start * width..tokens.end * width;
        let Room { differences, products, gates, sums } = room;
        let differences = &mut differences[..rows * d];
        let (products, gates) = (&products[..rows * words], &gates[..rows * words]);
        let sums = &sums[..tokens.len()];
        if let Some(out) = &mut made.base {
            let each = out[of(GATES)].chunks_exact_mut(GATES).zip(sums);
            each.for_each(|(out, sums)| out.copy_from_slice(&sums.gates));
        }
        if let Some(out) = &mut made.bias {
            out.par_chunks_mut(COLUMNS).enumerate().for_each(|(part, out)| {
                let columns = part * COLUMNS..part * COLUMNS + out.len();
                for rows in gates.chunks_exact(GATES * words) {
                    out.iter_mut().zip(&rows[columns.clone()]).for_each(|(sum, g)| *sum += *g);
                }
            });
        }
        let (products, gates) = (Matrix::new(products, rows, words), Matrix::new(gates, rows, words));
        if let Some(out) = decoder {
            let differences = Matrix::new(&*differences, rows, d);
            multiply_rounded(&mut out[..words * d], products.t(), differences, true, precision);
        }
        if let Some(out) = &mut made.vectors {
            multiply_rounded(out, gates.t(), self.features(&tokens), !is_first, precision);
        }
        if let Some(out) = &mut made.features {
            multiply_rounded(&mut out[of(GATES * self.d_gate)], gates, self.vectors, false, precision);
        }

        let Some(d_contexts) = d_contexts else { return };
        let mut d_prior = made.prior.as_deref_mut().map(|out| &mut out[of(COMPONENTS)]);
        let mut d_latent = made.latent.as_deref_mut().map(|out| &mut out[of(COMPONENTS * d)]);
        let (sizes, prior, latent) = self.mixture(&tokens);
        let into = MixInputs { prior: d_prior.as_deref_mut(), latent: d_latent.as_deref_mut() };
        mix::pull_back(&sizes, prior, latent, d_contexts, into);
        if let Some(out) = d_prior {
            for (out, sums) in out.chunks_exact_mut(COMPONENTS).zip(sums) {
                out.iter_mut().zip(sums.leaves).for_each(|(out, sum)| *out -= sum);
            }
        }
        if let Some(out) = d_latent {
            multiply_rounded(differences, products, self.weight, false, precision);
            let each = out.par_chunks_exact_mut(COMPONENTS * d).zip(differences.par_chunks_exact(GATES * d));
            each.for_each(|(out, back)| {
                let (contexts, last) = out.split_at_mut(GATES * d);
                contexts.iter_mut().zip(back).for_each(|(out, g)| *out += *g);
                for back in back.chunks_exact(d) {
                    last.iter_mut().zip(back).for_each(|(last, g)| *last -= *g);
                }
            });
        }
    }
}
