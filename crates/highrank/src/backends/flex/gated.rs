//! Native CPU kernel of a Mixtape's contexts and of the gates of its words on Burn's Flex backend.
//!
//! A chunk of tokens: the mixed contexts, which the likelihood reads like any others, and two products, three rows a token with
//! the decoder and three with the gates. While a token's row of logits is in cache, its [`GateRows`] are added to it, and become
//! their own gradients. Then products take four gradients out of these; that of the decoder is added to its first rows in place.

use core::ops::Range;

use burn::backend::Flex;
use burn::tensor::DType;
use highrank_kernels::Floats;
use highrank_kernels::cpu::{Buffer, Factor, Matrix, Real, multiply, share};

use super::gate_rows::{GateRows, TokenSums};
use super::latent::add_columns;
use super::mix;
use super::tensors::{assert_length, row_major, values};
use crate::ops::gated::{COMPONENTS, GATES};
use crate::ops::{GatedArgs, GatedInputs};

/// The arguments row-major in the type of sums; the biases become `[3, S]`.
pub(super) fn as_read(args: GatedArgs<Floats<Flex>>, sums: DType) -> GatedArgs<Floats<Flex>> {
    let mut args = args.map(|tensor| tensor.cast(sums));
    args.inputs.bias = args.inputs.bias.transpose();
    args.map(row_major)
}

/// Contexts that each word mixes by gates of its own, and what a chunk of tokens is worked on in.
pub(super) struct Gated<'a, T> {
    /// [As they are read](as_read).
    args: &'a GatedArgs<Floats<Flex>>,
    /// Of the words with gates, `[S, d]`
    decoder: Factor<'a, T>,
    /// `h_j − h_4`, then its gradient, `[tokens·3, d]`
    differences: Buffer<T>,
    /// As [`GateRows`] say, `[tokens·3, S]`
    products: Buffer<T>,
    gates: Buffer<T>,
    /// `[tokens]`, or nothing.
    sums: Vec<TokenSums<T>>,
}

impl<'a, T: Real> Gated<'a, T> {
    /// With a decoder `[V, d]`, for at most `chunk` tokens at a time, with gradients or without.
    ///
    /// # Panics
    /// If tensors do not fit each other.
    pub(super) fn new(
        args: &'a GatedArgs<Floats<Flex>>,
        decoder: Factor<'a, T>,
        chunk: usize,
        is_graded: bool,
    ) -> Self {
        let (vocab, d) = (decoder.rows(), decoder.columns());
        let (tokens, words, d_gate) = (args.tokens(), args.words(), args.d_gate());
        assert!(words <= vocab, "likelihood: gates of {words} words, but there are {vocab}");
        assert_length("mixing probabilities", Some(&args.inputs.prior), tokens * COMPONENTS);
        assert_length("latent contexts", Some(&args.inputs.latent), tokens * COMPONENTS * d);
        assert_length("gate features", Some(&args.inputs.features), tokens * GATES * d_gate);
        assert_length("gate logits", Some(&args.inputs.base), tokens * GATES);
        assert_length("gate biases", Some(&args.inputs.bias), GATES * words);
        let rows = chunk * GATES;
        Self {
            args,
            decoder: decoder.block(0..words, 0..d),
            differences: Buffer::new(rows * d),
            products: Buffer::new(rows * words),
            gates: Buffer::new(rows * words),
            sums: vec![TokenSums::default(); if is_graded { chunk } else { 0 }],
        }
    }

    /// Some tokens' `π̄` and contexts, and their sizes.
    fn mixture(&self, tokens: &Range<usize>) -> (mix::Sizes, &'a [T], &'a [T]) {
        let GatedInputs { prior, latent, .. } = &self.args.inputs;
        let sizes = [tokens.len(), COMPONENTS, self.args.d_embedding()];
        (sizes, rows_of(prior, tokens), rows_of(latent, tokens))
    }

    /// Some tokens' features, `[tokens·3, G]`.
    fn features(&self, tokens: &Range<usize>) -> Matrix<'a, T> {
        let features = rows_of(&self.args.inputs.features, tokens);
        Matrix::new(features, tokens.len() * GATES, self.args.d_gate())
    }

    /// `[S, G]`
    fn vectors(&self) -> Matrix<'a, T> {
        Matrix::new(values(&self.args.inputs.vectors), self.args.words(), self.args.d_gate())
    }

    /// Writes some tokens' mixed contexts, `[tokens, d]`.
    pub(super) fn write(&self, tokens: Range<usize>, out: &mut [T]) {
        let (sizes, prior, latent) = self.mixture(&tokens);
        mix::mixed(sizes, prior, latent, out);
    }

    /// Both products of some tokens.
    pub(super) fn products(&mut self, tokens: Range<usize>) -> GateRows<'_, T> {
        let GatedArgs { inputs, precision } = self.args;
        let (d, rows) = (self.args.d_embedding(), tokens.len() * GATES);
        let count = rows * self.args.words();
        let (features, vectors, (_, _, latent)) =
            (self.features(&tokens), self.vectors(), self.mixture(&tokens));
        let differences = &mut self.differences[..rows * d];
        let each = differences.chunks_exact_mut(GATES * d).zip(latent.chunks_exact(COMPONENTS * d));
        share(each, |(differences, latent)| {
            let (contexts, last) = latent.split_at(GATES * d);
            for (out, context) in differences.chunks_exact_mut(d).zip(contexts.chunks_exact(d)) {
                out.iter_mut().zip(context.iter().zip(last)).for_each(|(out, (h, last))| *out = *h - *last);
            }
        });
        let differences = Matrix::new(&*differences, rows, d);
        let (products, gates) = (&mut self.products[..count], &mut self.gates[..count]);
        multiply(products, differences, self.decoder.t(), false, *precision);
        multiply(gates, features, vectors.t(), false, *precision);
        let (prior, base) = (rows_of(&inputs.prior, &tokens), rows_of(&inputs.base, &tokens));
        let count = tokens.len().min(self.sums.len());
        let sums = &mut self.sums[..count];
        GateRows { prior, base, bias: values(&inputs.bias), products, gates, sums }
    }

    /// Takes back the gradients that some tokens' rows have become: makes the tokens' gradients, and adds to those of words and,
    /// if given, to the decoder's, `[V, d]`. That of the mixed contexts is `[tokens, d]`, or not needed.
    pub(super) fn pull_back(
        &mut self,
        tokens: Range<usize>,
        d_contexts: Option<&[T]>,
        made: &mut GatedInputs<Option<Buffer<T>>>,
        d_decoder: Option<&mut [T]>,
    ) {
        let GatedArgs { precision, .. } = *self.args;
        let (d, words, d_gate) = (self.args.d_embedding(), self.args.words(), self.args.d_gate());
        let (rows, is_first) = (tokens.len() * GATES, tokens.start == 0);
        let of = |width: usize| tokens.start * width..tokens.end * width;
        let (features, vectors, (sizes, prior, latent)) =
            (self.features(&tokens), self.vectors(), self.mixture(&tokens));
        let differences = &mut self.differences[..rows * d];
        let (products, gates) = (&self.products[..rows * words], &self.gates[..rows * words]);
        let sums = &self.sums[..tokens.len()];
        if let Some(out) = &mut made.base {
            let each = out[of(GATES)].chunks_exact_mut(GATES).zip(sums);
            each.for_each(|(out, sums)| out.copy_from_slice(&sums.gates));
        }
        if let Some(out) = &mut made.bias {
            add_columns(out, gates);
        }
        let (products, gates) = (Matrix::new(products, rows, words), Matrix::new(gates, rows, words));
        if let Some(out) = d_decoder {
            let differences = Matrix::new(&*differences, rows, d);
            multiply(&mut out[..words * d], products.t(), differences, true, precision);
        }
        if let Some(out) = &mut made.vectors {
            multiply(out, gates.t(), features, !is_first, precision);
        }
        if let Some(out) = &mut made.features {
            multiply(&mut out[of(GATES * d_gate)], gates, vectors, false, precision);
        }

        let Some(d_contexts) = d_contexts else { return };
        let mut d_prior = made.prior.as_deref_mut().map(|out| &mut out[of(COMPONENTS)]);
        let mut d_latent = made.latent.as_deref_mut().map(|out| &mut out[of(COMPONENTS * d)]);
        let into = [d_prior.as_deref_mut(), d_latent.as_deref_mut()];
        mix::pull_back(sizes, prior, latent, d_contexts, into);
        if let Some(out) = d_prior {
            for (out, sums) in out.chunks_exact_mut(COMPONENTS).zip(sums) {
                out.iter_mut().zip(sums.leaves).for_each(|(out, sum)| *out -= sum);
            }
        }
        if let Some(out) = d_latent {
            multiply(differences, products, self.decoder, false, precision);
            let each = out.chunks_exact_mut(COMPONENTS * d).zip(differences.chunks_exact(GATES * d));
            share(each, |(out, back)| {
                let (contexts, last) = out.split_at_mut(GATES * d);
                contexts.iter_mut().zip(back).for_each(|(out, g)| *out += *g);
                for back in back.chunks_exact(d) {
                    last.iter_mut().zip(back).for_each(|(last, g)| *last -= *g);
                }
            });
        }
    }
}

/// The values of some tokens in a matrix that has a row for each.
fn rows_of<'a, T: Real>(matrix: &'a Floats<Flex>, tokens: &Range<usize>) -> &'a [T] {
    let [_, width] = matrix.dims();
    &values(matrix)[tokens.start * width..tokens.end * width]
}
