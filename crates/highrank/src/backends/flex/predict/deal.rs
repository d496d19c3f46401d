//! A chunk's rows, dealt to threads: tokens, or runs of words where there are few tokens.

use highrank_kernels::cpu::Buffer;
use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use super::super::words::Words;
use super::draw::Pick;
use super::mixture::{Rows, Weight, weigh};
use super::runs::{Part, RUN};
use super::task::Sums;
use crate::ops::{Drawn, LogProbs};

/// Values below which one thread visits all: some ten microseconds' work.
const GRAIN: usize = 1 << 15;

/// What log-probabilities are given to.
pub(super) type Read<'r> = &'r (dyn Fn(usize, LogProbs<'_>) + Sync);

/// A run of tokens whose products with the decoder have been made.
pub(super) struct Chunk<'a, T> {
    pub(super) words: &'a Words<'a, T>,
    /// The first token.
    pub(super) first: usize,
    pub(super) tokens: usize,
    /// Rows of each token.
    pub(super) rows: usize,
    /// Of the tokens, `[tokens, rows]`; nothing where rows are not mixed.
    pub(super) log_prior: &'a [T],
}

impl<T: Sums> Chunk<'_, T> {
    /// Whether threads share the rows: there are too few tokens for each thread to have some of its own.
    fn is_thin(&self) -> bool {
        let threads = rayon::current_num_threads();
        threads > 1 && self.tokens < 2 * threads && self.tokens * self.rows * self.words.vocab >= GRAIN
    }

    /// The log-priors of the chunk's token `n`.
    fn log_prior(&self, n: usize) -> &[T] {
        &self.log_prior[n * self.rows..(n + 1) * self.rows]
    }

    /// Visits all runs of rows `[rows, V]`, each with its row's number; the parts `[rows, runs]`.
    fn visit(&self, rows: &mut [T], step: impl Fn(usize) -> Step + Sync) -> Vec<Part> {
        let (words, arch) = (self.words, Arch::new());
        let runs: Vec<_> = runs_of(rows, words.vocab).collect();
        let visit = |(row, first, run)| arch.dispatch(Visit { words, first, run, step: step(row) });
        match runs.len() > 1 {
            true => runs.into_par_iter().map(visit).collect(),
            false => runs.into_iter().map(visit).collect(),
        }
    }

    /// Turns products into logits, −∞ for masked words.
    pub(super) fn logits(&self, rows: &mut [T]) {
        self.visit(rows, |_| Step::Logits);
    }

    /// Turns the products of one row a token into log-probabilities, and has them read.
    pub(super) fn singles(&self, rows: &mut [T], read: Option<Read<'_>>) {
        let (words, vocab, arch) = (self.words, self.words.vocab, Arch::new());
        let read = |n: usize, row: &[T]| {
            if let Some(read) = read {
                read(self.first + n, T::log_probs(row));
            }
        };
        if !self.is_thin() {
            rows.par_chunks_exact_mut(vocab).enumerate().for_each(|(n, row)| {
                arch.dispatch(Single { words, row });
                read(n, row);
            });
            return;
        }
        let parts = self.visit(rows, |_| Step::Measure);
        let wholes: Vec<_> = parts.chunks_exact(words.runs()).map(whole).collect();
        self.visit(rows, |row| Step::Normalise(wholes[row]));
        rows.par_chunks_exact(vocab).enumerate().for_each(|(n, row)| read(n, row));
    }

    /// Writes the log-probabilities `[tokens, V]` of mixtures, for the products of their components.
    pub(super) fn mixtures(&self, rows: &mut [T], out: &mut [T]) {
        let (words, vocab, arch) = (self.words, self.words.vocab, Arch::new());
        let of_token = self.rows * vocab;
        if !self.is_thin() {
            let tokens = rows.par_chunks_exact_mut(of_token).zip(out.par_chunks_exact_mut(vocab));
            tokens.enumerate().for_each_init(
                || Room::new(words, self.rows),
                |room, (n, (rows, out))| {
                    arch.dispatch(Mixture { words, rows, log_prior: self.log_prior(n), room, out });
                },
            );
            return;
        }
        let parts = self.visit(rows, |_| Step::Exponentials);
        let mut weights = vec![Weight::NONE; parts.len()];
        let of_weights = self.rows * words.runs();
        for (n, weights) in weights.chunks_exact_mut(of_weights).enumerate() {
            weigh(&parts[n * of_weights..(n + 1) * of_weights], self.log_prior(n), weights);
        }
        let runs: Vec<_> = runs_of(out, vocab).collect();
        runs.into_par_iter().for_each(|(n, first, out)| {
            let rows = Rows { words, values: &rows[n * of_token..(n + 1) * of_token] };
            let weights = &weights[n * of_weights + first / RUN * self.rows..][..self.rows];
            arch.dispatch(Mix { rows, first, weights, out });
        });
    }

    /// Has the log-probabilities of mixtures read.
    pub(super) fn read_mixtures(&self, rows: &mut [T], read: Read<'_>) {
        let (words, vocab, arch) = (self.words, self.words.vocab, Arch::new());
        let read = |n: usize, row: &[T]| read(self.first + n, T::log_probs(row));
        if self.is_thin() {
            let mut out = Buffer::new(self.tokens * vocab);
            self.mixtures(rows, &mut out);
            out.par_chunks_exact(vocab).enumerate().for_each(|(n, row)| read(n, row));
            return;
        }
        rows.par_chunks_exact_mut(self.rows * vocab).enumerate().for_each_init(
            || (Room::new(words, self.rows), Buffer::new(vocab)),
            |(room, out), (n, rows)| {
                arch.dispatch(Mixture { words, rows, log_prior: self.log_prior(n), room, out });
                read(n, out);
            },
        );
    }

    /// Draws a word of each token, for the products of its only row.
    pub(super) fn draw(&self, rows: &mut [T], numbers: &[f64], drawn: &mut [Drawn]) {
        let (words, vocab, arch) = (self.words, self.words.vocab, Arch::new());
        if self.is_thin() {
            let parts = self.visit(rows, |_| Step::Measure);
            let rows = rows.chunks_exact(vocab).zip(parts.chunks_exact(words.runs()));
            for ((row, parts), (number, drawn)) in rows.zip(numbers.iter().zip(drawn)) {
                *drawn = arch.dispatch(Pick { row, parts, number: *number });
            }
            return;
        }
        let tokens = rows.par_chunks_exact_mut(vocab).zip(numbers).zip(drawn);
        tokens.for_each_init(
            || vec![Part::NONE; words.runs()],
            |parts, ((row, number), drawn)| {
                arch.dispatch(Measure { words, row, parts });
                *drawn = arch.dispatch(Pick { row, parts, number: *number });
            },
        );
    }
}

/// The runs of all rows, each with its row's number and its first word.
fn runs_of<T>(rows: &mut [T], vocab: usize) -> impl Iterator<Item = (usize, usize, &mut [T])> {
    rows.chunks_mut(vocab)
        .enumerate()
        .flat_map(|(row, values)| values.chunks_mut(RUN).enumerate().map(move |(i, run)| (row, i * RUN, run)))
}

/// The whole of a row's parts.
fn whole(parts: &[Part]) -> Part {
    parts.iter().fold(Part::NONE, |whole, part| whole.and(*part))
}

/// What is done to a run.
#[derive(Debug, Clone, Copy)]
enum Step {
    Logits,
    Measure,
    Exponentials,
    Normalise(Part),
}

struct Visit<'v, 'a, T> {
    words: &'v Words<'a, T>,
    first: usize,
    run: &'v mut [T],
    step: Step,
}

impl<T: Sums> WithSimd for Visit<'_, '_, T> {
    type Output = Part;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) -> Part {
        let Self { words, first, run, step } = self;
        match step {
            Step::Logits => words.logits(first, run),
            Step::Measure => return words.measure(first, run),
            Step::Exponentials => return words.measured_exponentials(first, run),
            Step::Normalise(whole) => words.normalise(first, run, whole),
        }
        Part::NONE
    }
}

/// Measures all runs of a row.
struct Measure<'v, 'a, T> {
    words: &'v Words<'a, T>,
    row: &'v mut [T],
    parts: &'v mut [Part],
}

impl<T: Sums> WithSimd for Measure<'_, '_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) {
        for (i, (run, part)) in self.row.chunks_mut(RUN).zip(self.parts).enumerate() {
            *part = self.words.measure(i * RUN, run);
        }
    }
}

/// Makes log-probabilities of a row's products.
struct Single<'v, 'a, T> {
    words: &'v Words<'a, T>,
    row: &'v mut [T],
}

impl<T: Sums> WithSimd for Single<'_, '_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) {
        let Self { words, row } = self;
        let mut whole = Part::NONE;
        for (i, run) in row.chunks_mut(RUN).enumerate() {
            whole = whole.and(words.measure(i * RUN, run));
        }
        for (i, run) in row.chunks_mut(RUN).enumerate() {
            words.normalise(i * RUN, run, whole);
        }
    }
}

/// What a thread keeps of a token's rows.
struct Room<T> {
    parts: Vec<Part>,
    weights: Vec<Weight<T>>,
}

impl<T: Sums> Room<T> {
    fn new(words: &Words<'_, T>, rows: usize) -> Self {
        let runs = rows * words.runs();
        Self { parts: vec![Part::NONE; runs], weights: vec![Weight::NONE; runs] }
    }
}

/// Makes the log-probabilities of a mixture of its rows of products, which become exponentials.
struct Mixture<'v, 'a, T> {
    words: &'v Words<'a, T>,
    rows: &'v mut [T],
    log_prior: &'v [T],
    room: &'v mut Room<T>,
    out: &'v mut [T],
}

impl<T: Sums> WithSimd for Mixture<'_, '_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) {
        let Self { words, rows, log_prior, room, out } = self;
        let runs = rows.chunks_exact_mut(words.vocab).flat_map(|row| row.chunks_mut(RUN).enumerate());
        for ((i, run), part) in runs.zip(&mut room.parts) {
            *part = words.measured_exponentials(i * RUN, run);
        }
        weigh(&room.parts, log_prior, &mut room.weights);
        let rows = Rows { words, values: rows };
        let weights = room.weights.chunks_exact(log_prior.len());
        for (i, (out, weights)) in out.chunks_mut(RUN).zip(weights).enumerate() {
            rows.mix(i * RUN, weights, out);
        }
    }
}

/// Makes a run of a mixture's log-probabilities.
struct Mix<'v, 'a, T> {
    rows: Rows<'v, T>,
    first: usize,
    weights: &'a [Weight<T>],
    out: &'v mut [T],
}

impl<T: Sums> WithSimd for Mix<'_, '_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) {
        self.rows.mix(self.first, self.weights, self.out);
    }
}
