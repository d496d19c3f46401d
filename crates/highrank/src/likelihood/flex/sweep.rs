//! The sweep over chunks: product, rows, two products, next chunk.

use pulp::Arch;
use rayon::prelude::*;

use super::token::{Shared, Sums, Token, Upstream};
use crate::cpu::{Product, Real};
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
    logits: Vec<T>,
    stats: Vec<[T; 3]>,
}

/// Cross-entropies, and with `upstream` the wanted gradients.
pub(super) fn run<T: Real>(input: &Input<'_, T>, upstream: Option<&[T]>, wanted: Wanted) -> Output<T> {
    let (tokens, components, vocab, d) = (input.words.len(), input.components, input.shared.vocab, input.d);
    let graded = upstream.is_some();
    let zeros = |wanted: bool, count: usize| vec![T::ZERO; if wanted && graded { count } else { 0 }];
    let mut output = Output {
        nll: vec![T::ZERO; tokens],
        contexts: zeros(wanted.contexts, tokens * components * d),
        log_prior: zeros(wanted.log_prior && input.log_prior.is_some(), tokens * components),
        weight: zeros(wanted.weight, vocab * d),
        bias: vec![],
        params: vec![],
    };
    // Tokens are dealt to a fixed number of workers in runs of fixed length, whichever thread runs which: the sums, and
    // so the gradients, have the same bits in every run on a machine.
    let threads = rayon::current_num_threads();
    let keep_logits = graded && !input.shared.map.is_identity();
    let mut workers: Vec<Worker<T>> = (0..threads)
        .map(|_| Worker {
            sums: Sums {
                bias: zeros(wanted.bias && input.shared.bias.is_some(), vocab),
                params: zeros(true, input.num_params),
            },
            logits: vec![T::ZERO; if keep_logits { components * vocab } else { 0 }],
            stats: vec![[T::ZERO; 3]; components],
        })
        .collect();

    let chunk = input.chunk_tokens.min(tokens);
    let mut logits = vec![T::ZERO; chunk * components * vocab];
    for start in (0..tokens).step_by(chunk) {
        let end = tokens.min(start + chunk);
        let rows = (end - start) * components;
        let contexts = &input.contexts[start * components * d..end * components * d];
        let logits = &mut logits[..rows * vocab];
        Product { m: rows, n: vocab, k: d }.run(logits, (contexts, d, 1), (input.weight, 1, d), false);

        sweep_rows(input, upstream, start, logits, &mut output, &mut workers);

        if !graded {
            continue;
        }
        if wanted.contexts {
            let target = &mut output.contexts[start * components * d..end * components * d];
            Product { m: rows, n: d, k: vocab }.run(target, (logits, vocab, 1), (input.weight, d, 1), false);
        }
        if wanted.weight {
            let shape = Product { m: vocab, n: d, k: rows };
            shape.run(&mut output.weight, (logits, 1, vocab), (contexts, d, 1), start > 0);
        }
    }
    for worker in &workers {
        add(&mut output.bias, &worker.sums.bias);
        add(&mut output.params, &worker.sums.params);
    }
    output
}

/// Scores a chunk's tokens, the workers side by side; with an upstream gradient the logits become their gradient.
fn sweep_rows<T: Real>(
    input: &Input<'_, T>,
    upstream: Option<&[T]>,
    start: usize,
    logits: &mut [T],
    output: &mut Output<T>,
    workers: &mut [Worker<T>],
) {
    let (components, vocab) = (input.components, input.shared.vocab);
    let tokens = logits.len() / (components * vocab);
    let run = tokens.div_ceil(workers.len());
    let nll = &mut output.nll[start..start + tokens];
    let d_log_prior: Vec<&mut [T]> = match output.log_prior.is_empty() {
        true => workers.iter().map(|_| &mut [][..]).collect(),
        false => output.log_prior[start * components..(start + tokens) * components]
            .chunks_mut(run * components)
            .collect(),
    };
    let parts = logits.chunks_mut(run * components * vocab).zip(nll.chunks_mut(run)).zip(d_log_prior);
    let arch = Arch::new();
    let jobs: Vec<_> = parts.zip(workers).enumerate().collect();
    jobs.into_par_iter().for_each(|(part, (((rows, nll), d_log_prior), worker))| {
        let first = start + part * run;
        for (i, (rows, nll)) in rows.chunks_exact_mut(components * vocab).zip(nll).enumerate() {
            let token = first + i;
            let d_log_prior = match d_log_prior.is_empty() {
                true => &mut [][..],
                false => &mut d_log_prior[i * components..(i + 1) * components],
            };
            *nll = arch.dispatch(Token {
                shared: &input.shared,
                rows,
                log_prior: input.log_prior.map(|prior| &prior[token * components..(token + 1) * components]),
                word: input.words[token],
                stats: &mut worker.stats,
                upstream: upstream.map(|upstream| Upstream {
                    nll: upstream[token],
                    d_log_prior,
                    logits: &mut worker.logits,
                    sums: &mut worker.sums,
                }),
            });
        }
    });
}

fn add<T: Real>(sum: &mut Vec<T>, part: &[T]) {
    if sum.is_empty() {
        sum.extend_from_slice(part);
        return;
    }
    sum.iter_mut().zip(part).for_each(|(sum, x)| *sum += *x);
}
