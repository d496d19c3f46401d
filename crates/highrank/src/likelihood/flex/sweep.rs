//! The sweep over chunks: product, rows, two products, next chunk.

use pulp::Arch;
use rayon::prelude::*;

use super::token::{Shared, Sums, Token, Upstream};
use crate::cpu::{Matrix, Real, Scratch, multiply};
use crate::likelihood::Wanted;

/// The likelihood's inputs as slices, row-major.
pub(super) struct Input<'a, T> {
    /// `[N·K, d]`
    pub(super) contexts: &'a [T],
    /// `[N, K]`
    pub(super) log_prior: Option<&'a [T]>,
    /// `[V, d]`
    pub(super) weight: &'a [T],
    pub(super) shared: Shared<'a, T>,
    /// `[N]`, all below V.
    pub(super) words: &'a [usize],
    pub(super) components: usize,
    pub(super) d: usize,
    pub(super) chunk_tokens: usize,
    pub(super) num_params: usize,
}

/// Gradients as vectors; empty where not wanted.
pub(super) struct Output<T> {
    pub(super) nll: Vec<T>,
    pub(super) contexts: Vec<T>,
    pub(super) log_prior: Vec<T>,
    pub(super) weight: Vec<T>,
    pub(super) bias: Vec<T>,
    pub(super) params: Vec<T>,
}

/// What one thread works with: its sums and its scratch.
struct Worker<T> {
    sums: Sums<T>,
    kept: Vec<T>,
    stats: Vec<[T; 2]>,
}

impl<T: Real> Output<T> {
    /// Room for the cross-entropies, and if `graded` for the wanted gradients.
    ///
    /// To be made by the calling thread: memory that pool threads allocate in turns is held by each of them.
    pub(super) fn new(input: &Input<'_, T>, graded: bool, wanted: Wanted) -> Self {
        let (tokens, components, vocab, d) =
            (input.words.len(), input.components, input.shared.vocab, input.d);
        let zeros = |wanted: bool, count: usize| vec![T::ZERO; if wanted && graded { count } else { 0 }];
        Self {
            nll: vec![T::ZERO; tokens],
            contexts: zeros(wanted.contexts, tokens * components * d),
            log_prior: zeros(wanted.log_prior && input.log_prior.is_some(), tokens * components),
            weight: zeros(wanted.weight, vocab * d),
            bias: zeros(wanted.bias && input.shared.bias.is_some(), vocab),
            params: zeros(true, input.num_params),
        }
    }
}

/// Cross-entropies, and with `upstream` the gradients that `output` has room for.
pub(super) fn run<T: Real>(input: &Input<'_, T>, upstream: Option<&[T]>, output: &mut Output<T>) {
    let (tokens, components, vocab, d) = (input.words.len(), input.components, input.shared.vocab, input.d);
    let graded = upstream.is_some();
    // Tokens are dealt to a fixed number of workers in runs of fixed length, whichever thread runs which: the sums, and
    // so the gradients, have the same bits in every run on a machine.
    let threads = rayon::current_num_threads();
    let mut workers: Vec<Worker<T>> = (0..threads)
        .map(|_| Worker {
            sums: Sums { bias: vec![T::ZERO; output.bias.len()], params: vec![T::ZERO; output.params.len()] },
            kept: vec![T::ZERO; if graded { input.shared.map.kept() * components * vocab } else { 0 }],
            stats: vec![[T::ZERO; 2]; components],
        })
        .collect();

    // As many chunks as the budget asks for, of one size: a short last chunk would read all of the decoder for few tokens.
    let chunk = tokens.div_ceil(tokens.div_ceil(input.chunk_tokens));
    let weight = Matrix::new(input.weight, vocab, d);
    let mut scratch = Scratch::new::<T>(chunk * components * vocab);
    let logits = scratch.values(chunk * components * vocab);
    let mut scales = vec![T::ZERO; chunk * components];
    let mut scaled = vec![T::ZERO; if output.weight.is_empty() { 0 } else { chunk * components * d }];
    for start in (0..tokens).step_by(chunk) {
        let end = tokens.min(start + chunk);
        let rows = (end - start) * components;
        let span = start * components * d..end * components * d;
        let contexts = &input.contexts[span.clone()];
        let logits = &mut logits[..rows * vocab];
        multiply(logits, Matrix::new(contexts, rows, d), weight.t(), false);

        sweep_rows(input, upstream, start, logits, &mut scales, output, &mut workers);

        let gradient = Matrix::new(logits, rows, vocab);
        if !output.contexts.is_empty() {
            let target = &mut output.contexts[span];
            multiply(target, gradient, weight, false);
            target.chunks_exact_mut(d).zip(&scales).for_each(|(row, scale)| {
                row.iter_mut().for_each(|x| *x *= *scale);
            });
        }
        if !output.weight.is_empty() {
            let scaled = &mut scaled[..rows * d];
            for ((scaled, context), scale) in
                scaled.chunks_exact_mut(d).zip(contexts.chunks_exact(d)).zip(&scales)
            {
                scaled.iter_mut().zip(context).for_each(|(y, x)| *y = *x * *scale);
            }
            multiply(&mut output.weight, gradient.t(), Matrix::new(scaled, rows, d), start > 0);
        }
    }
    for worker in &workers {
        add(&mut output.bias, &worker.sums.bias);
        add(&mut output.params, &worker.sums.params);
    }
    input.shared.map.unpack(&mut output.params);
}

/// Scores a chunk's tokens, the workers side by side; with an upstream gradient the logits become their gradient.
fn sweep_rows<T: Real>(
    input: &Input<'_, T>,
    upstream: Option<&[T]>,
    start: usize,
    logits: &mut [T],
    scales: &mut [T],
    output: &mut Output<T>,
    workers: &mut [Worker<T>],
) {
    let (components, vocab) = (input.components, input.shared.vocab);
    let tokens = logits.len() / (components * vocab);
    let run = tokens.div_ceil(workers.len());
    let nll = &mut output.nll[start..start + tokens];
    let d_log_prior = match output.log_prior.is_empty() {
        true => &mut [][..],
        false => &mut output.log_prior[start * components..(start + tokens) * components],
    };
    let mut d_log_prior = shares(d_log_prior, run * components);
    let mut scales = shares(scales, run * components);
    let parts = logits.chunks_mut(run * components * vocab).zip(nll.chunks_mut(run));
    let jobs: Vec<_> = parts
        .zip(workers)
        .enumerate()
        .map(|(part, (rows_and_nll, worker))| {
            (start + part * run, rows_and_nll, d_log_prior(), scales(), worker)
        })
        .collect();
    let arch = Arch::new();
    jobs.into_par_iter().for_each(|(first, (rows, nll), d_log_prior, scales, worker)| {
        let mut d_log_prior = shares(d_log_prior, components);
        let mut scales = shares(scales, components);
        for (i, (rows, nll)) in rows.chunks_exact_mut(components * vocab).zip(nll).enumerate() {
            let token = first + i;
            *nll = arch.dispatch(Token {
                shared: &input.shared,
                rows,
                log_prior: input.log_prior.map(|prior| &prior[token * components..(token + 1) * components]),
                word: input.words[token],
                stats: &mut worker.stats,
                upstream: upstream.map(|upstream| Upstream {
                    nll: upstream[token],
                    d_log_prior: d_log_prior(),
                    kept: &mut worker.kept,
                    scales: scales(),
                    sums: &mut worker.sums,
                }),
            });
        }
    });
}

/// Hands out a slice in shares of `length`, the last as long as it happens to be, and then empty ones.
fn shares<'a, T>(mut slice: &'a mut [T], length: usize) -> impl FnMut() -> &'a mut [T] {
    move || {
        let length = length.min(slice.len());
        let (share, rest) = std::mem::take(&mut slice).split_at_mut(length);
        slice = rest;
        share
    }
}

fn add<T: Real>(sum: &mut [T], part: &[T]) {
    sum.iter_mut().zip(part).for_each(|(sum, x)| *sum += *x);
}
