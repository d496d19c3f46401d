//! The sweep over chunks: product, rows, next chunk.
//!
//! Contexts that a latent layer makes, or that are mixed, are made a block of chunks at a time.

use core::ops::Range;

use highrank_kernels::Precision;
use highrank_kernels::cpu::{Buffer, multiply_rounded};

use super::super::call::Source;
use super::super::factor::Stored;
use super::super::gated;
use super::super::sweep::even;
use super::super::words::Words;
use super::deal::Chunk;
use super::task::{Sums, Task};
use crate::ops::{Draw, runs};

/// Multiplications that one thread does before another one is awake.
const SHORT: usize = 1 << 17;

/// What predictions read, as slices, row-major.
pub(super) struct Input<'a, T> {
    pub(super) contexts: Source<'a, T>,
    /// `[N, K]`
    pub(super) log_prior: Option<&'a [T]>,
    /// `[V, d]`
    pub(super) weight: Stored<'a, T>,
    pub(super) words: Words<'a, T>,
    /// `N`
    pub(super) tokens: usize,
    /// `K`
    pub(super) components: usize,
    pub(super) d: usize,
    /// Bytes of the largest logit matrix.
    pub(super) budget: usize,
    /// Of the products with the decoder.
    pub(super) precision: Precision,
}

/// What a call works with, chunk by chunk.
struct Work<'a, T> {
    task: Task<'a, T>,
    /// The component of each token that is asked for; nothing if all are.
    chosen: &'a [usize],
    /// Rows of logits that each token has.
    rows: usize,
    /// Whether they are mixed.
    mixes: bool,
    /// Tokens of a chunk.
    chunk: usize,
    /// Logits that have no place elsewhere.
    logits: Buffer<T>,
    /// Where words have gates.
    gates: Option<gated::Room<T>>,
}

impl<T: Sums> Input<'_, T> {
    /// Whether there is so little to do that waking other threads takes longer.
    pub(super) fn is_short(&self) -> bool {
        self.tokens == 1 && self.components * self.words.vocab * self.d < SHORT
    }

    /// Most tokens of a chunk with so many rows each, and of a block whose contexts are made at a time, half a chunk's bytes
    /// or as many as a chunk.
    fn most(&self, rows: usize) -> [usize; 2] {
        let of_gates = match &self.contexts {
            Source::Gated(gates) => gates.terms().width(),
            _ => 0,
        };
        let width = (rows * self.words.vocab).max(of_gates);
        let chunk = (self.budget / (width * size_of::<T>()).max(1)).max(1);
        let block = (self.budget / 2 / (self.components * self.d * size_of::<T>()).max(1)).max(1);
        match rows == self.components {
            true => [chunk, block.max(chunk) / chunk * chunk],
            // Each token's contexts are more than what becomes of them.
            false => [chunk.min(block), block],
        }
    }
}

/// Does the task.
pub(super) fn run<T: Sums>(input: &Input<'_, T>, task: Task<'_, T>) {
    let Input { tokens, components, d, .. } = *input;
    if tokens == 0 {
        return;
    }
    let chosen = match &task {
        Task::Draw(Draw { components, .. }) => *components,
        _ => &[],
    };
    let rows = if chosen.is_empty() { components } else { 1 };
    let mixes = input.log_prior.is_some() && chosen.is_empty();
    let [chunk, block] = input.most(rows);
    let block = match &input.contexts {
        Source::Given(_) if chosen.is_empty() => tokens,
        _ => even(tokens, block),
    };
    let chunk = even(block, chunk);
    let is_elsewhere = match &task {
        Task::Write(_) => !mixes,
        Task::Logits(_) => true,
        Task::Read(_) | Task::Draw(_) => false,
    };
    let logits = Buffer::new(if is_elsewhere { 0 } else { chunk * rows * input.words.vocab });
    let gates = match &input.contexts {
        Source::Gated(gates) => Some(gated::Room::new(gates, chunk, false)),
        _ => None,
    };
    let is_given = matches!(input.contexts, Source::Given(_));
    let mut work = Work { task, chosen, rows, mixes, chunk, logits, gates };
    let of_block = |room: bool, width: usize| Buffer::new(if room { block * width } else { 0 });
    let mut made = of_block(!is_given, components * d);
    let mut gathered = of_block(!chosen.is_empty(), d);
    for (start, end) in runs(tokens, block) {
        let width = components * d;
        let contexts = match &input.contexts {
            Source::Given(contexts) => contexts.rows(start..end, width),
            Source::Latent(layer) => {
                let made = &mut made[..(end - start) * width];
                layer.forward(start..end, made);
                Stored::Wide(&*made)
            }
            Source::Gated(gates) => {
                let made = &mut made[..(end - start) * width];
                gates.mix(start..end, made);
                Stored::Wide(&*made)
            }
        };
        let contexts = match work.chosen.is_empty() {
            true => contexts,
            false => {
                let chosen = &work.chosen[start..end];
                let gathered = &mut gathered[..(end - start) * d];
                gather(contexts, components, chosen, gathered);
                Stored::Wide(&*gathered)
            }
        };
        work.run_block(input, start..end, contexts);
    }
}

/// The chosen one of each token's contexts, of which there are `[tokens, components, d]`.
fn gather<T: Sums>(contexts: Stored<'_, T>, components: usize, chosen: &[usize], out: &mut [T]) {
    let d = out.len() / chosen.len();
    for (token, (component, out)) in chosen.iter().zip(out.chunks_exact_mut(d)).enumerate() {
        let row = token * components + component;
        match contexts.rows(row..row + 1, d) {
            Stored::Wide(context) => out.copy_from_slice(context),
            Stored::Short(context) => {
                out.iter_mut().zip(context).for_each(|(out, x)| *out = T::of(f64::from(*x)));
            }
        }
    }
}

impl<T: Sums> Work<'_, T> {
    /// The chunks of tokens whose contexts are `contexts`.
    fn run_block(&mut self, input: &Input<'_, T>, block: Range<usize>, contexts: Stored<'_, T>) {
        let (vocab, d, of_token) = (input.words.vocab, input.d, self.rows);
        let weight = input.weight.factor(vocab, d);
        for (first, last) in runs(block.len(), self.chunk) {
            let tokens = block.start + first..block.start + last;
            let rows = tokens.start * of_token..tokens.end * of_token;
            let count = rows.len();
            let contexts = contexts.rows(first * of_token..last * of_token, d).factor(count, d);
            let (of_chunk, gates) = (tokens.clone(), &mut self.gates);
            let mut product = |out: &mut [T]| {
                multiply_rounded(out, contexts, weight.t(), false, input.precision);
                if let (Source::Gated(source), Some(room)) = (&input.contexts, gates.as_mut()) {
                    source.products(of_chunk.clone(), room).add_to_each(out);
                }
            };
            let own = &mut self.logits;
            let log_prior = match input.log_prior.filter(|_| self.mixes) {
                Some(log_prior) => &log_prior[rows.clone()],
                None => &[],
            };
            let chunk = Chunk {
                words: &input.words,
                first: tokens.start,
                tokens: tokens.len(),
                rows: of_token,
                log_prior,
            };
            let of_tokens = tokens.start * vocab..tokens.end * vocab;
            match &mut self.task {
                Task::Logits(out) => {
                    let out = &mut out[rows.start * vocab..rows.end * vocab];
                    product(out);
                    chunk.logits(out);
                }
                Task::Write(out) if !self.mixes => {
                    let out = &mut out[of_tokens];
                    product(out);
                    chunk.singles(out, None);
                }
                Task::Write(out) => {
                    let logits = &mut own[..count * vocab];
                    product(logits);
                    chunk.mixtures(logits, &mut out[of_tokens]);
                }
                Task::Read(read) => {
                    let logits = &mut own[..count * vocab];
                    product(logits);
                    match self.mixes {
                        true => chunk.read_mixtures(logits, *read),
                        false => chunk.singles(logits, Some(*read)),
                    }
                }
                Task::Draw(draw) => {
                    let logits = &mut own[..count * vocab];
                    product(logits);
                    chunk.draw(logits, &draw.numbers[tokens.clone()], &mut draw.words[tokens]);
                }
            }
        }
    }
}
