//! The sweep for a decoder of few dimensions: no chunks, each thread takes its tokens alone.
//!
//! Such a product has so little arithmetic that writing the logits of a chunk and reading them back takes most of the time. So
//! a thread makes the products of a few tokens, visits their rows, and takes their gradients back, before these rows leave
//! its own cache. The decoder's gradient is summed by each thread for itself, and these sums are added in their order.
//!
//! At full precision the bias is a column of the decoder whose dimension is 1 in each context: neither adding it nor
//! summing its gradient is a pass over the rows.

use core::ops::Range;
use std::mem;

use burn::backend::Flex;
use highrank_kernels::cpu::{Buffer, Real, Thin, in_pool, scale_rounded};
use highrank_kernels::{Floats, Precision};
use rayon::prelude::*;

use super::call::{Form, Input, Output};
use super::deal::{Chunk, Worker, Workers};
use super::factor::Stored;
use crate::ops::{ContextSource, Likelihood};

/// Most dimensions for which this is faster: at full precision, and where products of bfloat16 may be twice as fast.
const MOST: usize = 24;
const MOST_ROUNDED: usize = 12;

/// Bytes of the logits that a thread makes at a time: what a decoder and its gradient leave of a second-level cache of a
/// megabyte.
const GROUP: usize = 384 << 10;

/// Rows of a group, unless a token has more: enough for reading the decoder to be worth it, and no more than can share the
/// first-level cache with some of its words.
const FEWEST_ROWS: usize = 8;
const MOST_ROWS: usize = 16;

/// The decoder as this sweep reads it, if it is thin: it has few dimensions, words have no gates, there are tokens for all
/// threads, and what all threads need for themselves is within the memory of a chunk.
///
/// At full precision its first column is the bias.
pub(super) fn decoder<T: Real>(
    input: &Likelihood<Floats<Flex>>,
    weight: Stored<'_, T>,
    bias: Option<&[T]>,
    is_graded: bool,
) -> Option<Thin<T>> {
    let (tokens, components, [vocab, d]) = (input.tokens(), input.components(), input.weight.dims());
    let threads = rayon::current_num_threads();
    let rows = group::<T>(components, vocab).min(tokens) * components;
    let sums = if is_graded { d + 1 } else { 0 };
    let needed = (threads * (rows + sums)).saturating_mul(vocab);
    // As many numbers as a chunk has, which is counted in the decoder's type.
    let most = match input.precision {
        Precision::Full => MOST,
        _ if is_graded => MOST_ROUNDED,
        _ => 0,
    };
    let is_thin = (1..=most).contains(&d)
        && !matches!(input.contexts, ContextSource::Gated(_))
        && tokens >= 2 * threads
        && needed <= input.chunk_bytes / input.weight.dtype().size();
    let first = bias.filter(|_| input.precision == Precision::Full);
    is_thin.then(|| in_pool(|| Thin::new(weight.factor(vocab, d), first, input.precision)))
}

/// Tokens whose rows a thread works on at a time.
fn group<T>(components: usize, vocab: usize) -> usize {
    let rows = (GROUP / (vocab * size_of::<T>()).max(1)).clamp(FEWEST_ROWS, MOST_ROWS);
    (rows / components).max(1)
}

/// What the threads work with.
pub(super) struct Sweep<T> {
    all: Vec<Own<T>>,
    form: Form,
    /// 1 if the decoder's first column is the bias, or 0.
    skip: usize,
}

/// What one thread works with beside what scores its tokens.
struct Own<T> {
    /// Of a group, `[rows, V]`.
    logits: Buffer<T>,
    /// What each row of logits must be multiplied with to be its gradient.
    scales: Vec<T>,
    /// The contexts of a group, `[rows, c]`.
    left: Buffer<T>,
    /// Their gradient, or nothing.
    back: Buffer<T>,
    /// That of the decoder, if wanted.
    sums: Option<Thin<T>>,
}

impl<T: Real> Sweep<T> {
    /// For a call whose decoder is thin. To be made by the calling thread, as [`Output::new`].
    pub(super) fn new(input: &Input<'_, T>, output: &Output<T>, has_gradient: bool) -> Option<Self> {
        let decoder = input.thin.as_ref()?;
        let (columns, vocab) = (decoder.columns(), input.shared.vocab);
        let skip = columns - input.d;
        let has_sums = output.weight.is_some() || skip > 0 && output.bias.is_some();
        let rows = group::<T>(input.components, vocab).min(input.goal.tokens()) * input.components;
        let own = || Own {
            logits: Buffer::new(rows * vocab),
            scales: vec![T::ZERO; rows],
            left: Buffer::new(rows * columns),
            back: Buffer::new(if has_gradient { rows * columns } else { 0 }),
            sums: has_sums.then(|| Thin::zeros(vocab, columns)),
        };
        let form = match input.precision {
            Precision::Full => Form::Unscaled,
            precision => Form::Rounded(precision),
        };
        Some(Self { all: (0..rayon::current_num_threads()).map(|_| own()).collect(), form, skip })
    }

    /// A block of tokens; `contexts` and their gradient are those of the block.
    ///
    /// What a worker is dealt depends on the number of workers alone.
    pub(super) fn run_block(
        &mut self,
        input: &Input<'_, T>,
        block: Range<usize>,
        contexts: Stored<'_, T>,
        d_contexts: Option<&mut [T]>,
        output: &mut Output<T>,
        workers: &mut Workers<T>,
    ) {
        let (components, d, count) = (input.components, input.d, self.all.len());
        let bound = |worker: usize| worker * block.len() / count;
        let mut tokens = Chunk::new(block.clone(), output, components);
        let mut d_contexts = d_contexts.unwrap_or_default();
        let jobs = self.all.iter_mut().zip(workers.each()).enumerate().map(|(i, (own, worker))| {
            let range = bound(i)..bound(i + 1);
            let rows = range.start * components..range.end * components;
            let gradient = match d_contexts.is_empty() {
                true => &mut [],
                false => d_contexts.split_off_mut(..rows.len() * d).expect("a gradient of the block"),
            };
            let part = Part {
                tokens: tokens.take(range.len()),
                contexts: contexts.rows(rows, d),
                d_contexts: gradient,
            };
            (own, worker, part)
        });
        let jobs: Vec<_> = jobs.collect();
        let (form, skip) = (self.form, self.skip);
        jobs.into_par_iter().with_max_len(1).for_each(|(own, worker, part)| {
            own.run(input, worker, part, form, skip);
        });
    }

    /// Makes the gradients that are sums over all rows.
    pub(super) fn finish(&self, output: &mut Output<T>) {
        let sums: Vec<_> = self.all.iter().filter_map(|own| own.sums.as_ref()).collect();
        let Some(first) = sums.first() else { return };
        if let Some(weight) = &mut output.weight {
            Thin::sum(&sums, self.skip..first.columns(), weight);
        }
        if let Some(bias) = output.bias.as_mut().filter(|_| self.skip > 0) {
            Thin::sum(&sums, 0..1, bias);
        }
    }
}

/// Tokens that one thread takes.
struct Part<'a, T> {
    tokens: Chunk<'a, T>,
    /// `[tokens·K, d]`
    contexts: Stored<'a, T>,
    /// The same, or nothing.
    d_contexts: &'a mut [T],
}

impl<T: Real> Own<T> {
    /// Group after group.
    fn run(
        &mut self,
        input: &Input<'_, T>,
        worker: &mut Worker<T>,
        part: Part<'_, T>,
        form: Form,
        skip: usize,
    ) {
        let decoder = input.thin.as_ref().expect("a thin decoder");
        let Part { mut tokens, contexts, mut d_contexts } = part;
        let (components, vocab, d) = (input.components, input.shared.vocab, input.d);
        let (columns, each) = (decoder.columns(), group::<T>(components, vocab));
        let mut first = 0;
        while tokens.tokens() > 0 {
            let group = tokens.take(each);
            let rows = group.tokens() * components;
            let logits = &mut self.logits[..rows * vocab];
            let left = &mut self.left[..rows * columns];
            let scales = &mut self.scales[..rows];
            gather(contexts.rows(first..first + rows, d), left, d);
            if input.precision != Precision::Full {
                scale_rounded(left, T::ONE, input.precision);
            }
            first += rows;
            decoder.multiply(left, logits);
            worker.score(input, group.with_rows(logits, scales), form);
            if input.upstream.is_none() {
                continue;
            }

            let is_unscaled = form == Form::Unscaled;
            let back = (!d_contexts.is_empty()).then(|| &mut self.back[..rows * columns]);
            if is_unscaled && self.sums.is_some() {
                let rows = left.chunks_exact_mut(columns).zip(&*scales);
                rows.for_each(|(row, scale)| row.iter_mut().for_each(|x| *x *= *scale));
            }
            let sums = self.sums.as_mut().map(|sums| (&*left, sums));
            decoder.pull_back(logits, back, sums);
            if !d_contexts.is_empty() {
                let (gradients, rest) = mem::take(&mut d_contexts).split_at_mut(rows * d);
                d_contexts = rest;
                let rows = gradients.chunks_exact_mut(d).zip(self.back.chunks_exact(columns)).zip(&*scales);
                for ((gradient, back), scale) in rows {
                    let scale = if is_unscaled { *scale } else { T::ONE };
                    gradient.iter_mut().zip(&back[skip..]).for_each(|(to, x)| *to = *x * scale);
                }
            }
        }
    }
}

/// Rows of `d` numbers as rows of the left factor, which begin with as many ones as there is room for.
fn gather<T: Real>(contexts: Stored<'_, T>, left: &mut [T], d: usize) {
    fn rows<T: Real, U: Copy>(values: &[U], left: &mut [T], d: usize, number: impl Fn(U) -> T) {
        let columns = left.len() / (values.len() / d);
        for (row, values) in left.chunks_exact_mut(columns).zip(values.chunks_exact(d)) {
            let (ones, row) = row.split_at_mut(columns - d);
            ones.fill(T::ONE);
            row.iter_mut().zip(values).for_each(|(to, x)| *to = number(*x));
        }
    }
    match contexts {
        Stored::Wide(values) => rows(values, left, d, |x| x),
        Stored::Short(values) => rows(values, left, d, |x| T::of(x.to_f64())),
    }
}
