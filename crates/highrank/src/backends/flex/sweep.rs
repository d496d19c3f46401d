//! The sweep over chunks: product, rows, two products, next chunk.
//!
//! Contexts that a latent layer makes are made a block of chunks at a time, and their gradient is taken back through the
//! layer at the block's end. Those that words mix by gates are mixed likewise, with the products that gates need.
//!
//! What each product reads is rounded as [`Precision`](highrank_kernels::Precision) says. Rows of logits hold their gradient up to a factor
//! ([`token`](super::token)), which at full precision the products' small factors take. Where gradients are rounded it is
//! applied before that ([`Form`]).

use core::ops::Range;

use highrank_kernels::cpu::{Buffer, Real, multiply_rounded};
use rayon::prelude::*;

use super::call::{ContextGradient, Form, Input, Output, Source};
use super::deal::{Chunk, Workers};
use super::factor::Stored;
use super::gated;
use super::gated_rows::Rows;
use crate::ops::runs;

/// Values that a thread scales at a time: some microseconds' work.
const GRAIN: usize = 1 << 14;

/// What the chunks of a call work with, one after the other.
struct Work<T> {
    /// Tokens of a chunk.
    chunk: usize,
    logits: Buffer<T>,
    /// What each row of logits must be multiplied with to be its gradient.
    scales: Vec<T>,
    form: Form,
    /// The contexts times their scales, where gradients are [unscaled](Form::Unscaled).
    scaled: Buffer<T>,
    workers: Workers<T>,
}

/// Losses, and with an upstream gradient the gradients that there is room for.
pub(super) fn run<T: Real>(
    input: &Input<'_, T>,
    d_contexts: &mut ContextGradient<T>,
    output: &mut Output<T>,
) {
    let (tokens, components, vocab, d) = (input.goal.tokens(), input.components, input.shared.vocab, input.d);
    if tokens == 0 {
        return;
    }
    let block = even(tokens, input.block_tokens);
    let chunk = even(block, input.chunk_tokens);
    let form = Form::at::<T>(input.precision);
    let has_scaled = form == Form::Unscaled && output.weight.is_some();
    let mut work = Work {
        chunk,
        logits: Buffer::new(chunk * components * vocab),
        scales: vec![T::ZERO; chunk * components],
        form,
        scaled: Buffer::new(if has_scaled { chunk * components * d } else { 0 }),
        workers: Workers::new(input, output),
    };

    let size = |tokens: usize| tokens * components * d;
    match &input.contexts {
        Source::Given(contexts) => {
            let gradient = match d_contexts {
                ContextGradient::Given(gradient) => Some(&mut gradient[..]),
                _ => None,
            };
            run_block(input, 0..tokens, *contexts, None, gradient, output, &mut work);
        }
        Source::Latent(layer) => {
            let mut contexts = Buffer::new(size(block));
            let mut gradient =
                matches!(d_contexts, ContextGradient::Layer(_)).then(|| Buffer::new(size(block)));
            for (start, end) in runs(tokens, block) {
                let size = size(end - start);
                let contexts = &mut contexts[..size];
                let mut gradient = gradient.as_mut().map(|gradient| &mut gradient[..size]);
                layer.forward(start..end, contexts);
                let stored = Stored::Wide(&*contexts);
                run_block(input, start..end, stored, None, gradient.as_deref_mut(), output, &mut work);
                if let (ContextGradient::Layer(into), Some(gradient)) = (&mut *d_contexts, gradient) {
                    layer.backward(start..end, contexts, gradient, into);
                }
            }
        }
        Source::Gated(gates) => {
            let mut contexts = Buffer::new(size(block));
            let mut gradient = match d_contexts {
                ContextGradient::Gated(into) if into.prior.is_some() || into.latent.is_some() => {
                    Some(Buffer::new(size(block)))
                }
                _ => None,
            };
            let mut room = gated::Room::new(gates, block, matches!(d_contexts, ContextGradient::Gated(_)));
            for (start, end) in runs(tokens, block) {
                let size = size(end - start);
                let contexts = &mut contexts[..size];
                let mut gradient = gradient.as_mut().map(|gradient| &mut gradient[..size]);
                gates.mix(start..end, contexts);
                let (stored, rows) = (Stored::Wide(&*contexts), gates.products(start..end, &mut room));
                run_block(input, start..end, stored, Some(rows), gradient.as_deref_mut(), output, &mut work);
                if let ContextGradient::Gated(into) = &mut *d_contexts {
                    let d_weight = output.weight.as_deref_mut();
                    gates.backward(start..end, gradient.as_deref(), &mut room, into, d_weight);
                }
            }
        }
    }
    work.workers.finish(input, output);
}

/// The length of runs of at most `most` tokens that are as even as can be: a short last chunk would read all of the
/// decoder for few tokens.
pub(super) fn even(tokens: usize, most: usize) -> usize {
    tokens.div_ceil(tokens.div_ceil(most))
}

/// A block of tokens, chunk by chunk; `contexts`, their gradient and the rows of gates are those of the block.
fn run_block<T: Real>(
    input: &Input<'_, T>,
    block: Range<usize>,
    contexts: Stored<'_, T>,
    mut gates: Option<Rows<'_, T>>,
    mut d_contexts: Option<&mut [T]>,
    output: &mut Output<T>,
    work: &mut Work<T>,
) {
    let (components, vocab, d, precision) = (input.components, input.shared.vocab, input.d, input.precision);
    let weight = input.weight.factor(vocab, d);
    for (first, last) in runs(block.len(), work.chunk) {
        let start = block.start + first;
        let rows = (last - first) * components;
        let contexts = contexts.rows(first * components..last * components, d);
        let logits = &mut work.logits[..rows * vocab];
        let scales = &mut work.scales[..rows];
        multiply_rounded(logits, contexts.factor(rows, d), weight.t(), false, precision);

        let chunk = Chunk::new(start..block.start + last, output, components);
        let gates = gates.as_mut().map(|gates| gates.take(last - first));
        work.workers.score(input, chunk.with_rows(logits, scales).with_gates(gates), work.form);

        let gradient = work.form.factor(logits, rows, vocab);
        if let Some(d_contexts) = &mut d_contexts {
            let target = &mut d_contexts[first * components * d..last * components * d];
            multiply_rounded(target, gradient, weight, false, precision);
            if work.form == Form::Unscaled {
                scale(target, scales, d);
            }
        }
        if let Some(d_weight) = &mut output.weight {
            let contexts = match (work.form, contexts) {
                (Form::Unscaled, Stored::Wide(contexts)) => {
                    scale_to(&mut work.scaled[..rows * d], contexts, scales, d, |x| x)
                }
                (Form::Unscaled, Stored::Short(contexts)) => {
                    scale_to(&mut work.scaled[..rows * d], contexts, scales, d, |x| T::of(x.to_f64()))
                }
                _ => contexts,
            };
            multiply_rounded(d_weight, gradient.t(), contexts.factor(rows, d), start > 0, precision);
        }
    }
}

/// Rows of `d` values times a number each.
fn scale<T: Real>(rows: &mut [T], scales: &[T], d: usize) {
    let each = GRAIN.div_ceil(d.max(1));
    let parts = rows.par_chunks_mut(each * d).zip(scales.par_chunks(each));
    parts.for_each(|(rows, scales)| {
        for (row, scale) in rows.chunks_exact_mut(d).zip(scales) {
            row.iter_mut().for_each(|x| *x *= *scale);
        }
    });
}

/// As [`scale`], out of place.
fn scale_to<'a, T: Real, U: Copy + Sync>(
    out: &'a mut [T],
    rows: &[U],
    scales: &[T],
    d: usize,
    number: impl Fn(U) -> T + Sync,
) -> Stored<'a, T> {
    let each = GRAIN.div_ceil(d.max(1));
    let parts = out.par_chunks_mut(each * d).zip(rows.par_chunks(each * d)).zip(scales.par_chunks(each));
    parts.for_each(|((out, rows), scales)| {
        for ((out, row), scale) in out.chunks_exact_mut(d).zip(rows.chunks_exact(d)).zip(scales) {
            out.iter_mut().zip(row).for_each(|(y, x)| *y = number(*x) * *scale);
        }
    });
    Stored::Wide(out)
}
