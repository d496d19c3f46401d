//! A chunk's rows, spread over threads: by tokens, or by runs of words where there are few tokens.

use highrank_kernels::cpu::{Buffer, Real, share, share_with};
use pulp::{Arch, Simd, WithSimd};

use super::super::all_words::RUN;
use super::super::mapped_logits::MappedLogits;
use super::draw::Pick;
use super::mixture::{Mix, Weight, weigh};
use super::runs::LogSumExp;
use crate::ops::Drawn;

/// What log-probabilities are given to, with their token's number.
pub(super) type Read<'a, T> = &'a (dyn Fn(usize, &[T]) + Sync);

/// Values below which one thread visits all: some ten microseconds' work.
const GRAIN: usize = 1 << 15;

/// A run of tokens whose products with the decoder have been made.
pub(super) struct ChunkRows<'a, T> {
    pub(super) logits: &'a MappedLogits<'a, T>,
    /// The first token.
    pub(super) first: usize,
    pub(super) tokens: usize,
    /// Rows of each token.
    pub(super) of_token: usize,
    /// Of the tokens, `[tokens, of_token]`; nothing where rows are not mixed.
    pub(super) log_prior: &'a [T],
}

impl<T: Real> ChunkRows<'_, T> {
    /// Whether threads share the rows: there are too few tokens for each thread to have some of its own.
    fn is_thin(&self) -> bool {
        let threads = rayon::current_num_threads();
        threads > 1 && self.tokens < 2 * threads && self.tokens * self.of_token * self.logits.vocab >= GRAIN
    }

    /// The log-priors of the chunk's token `n`.
    fn log_prior(&self, n: usize) -> &[T] {
        &self.log_prior[n * self.of_token..(n + 1) * self.of_token]
    }

    /// Does a step with each run of some rows, one after the other; leaves the runs' sums, `[rows, runs]`.
    fn step(&self, rows: &mut [T], sums: &mut [LogSumExp], step: Step) {
        let (logits, arch) = (self.logits, Arch::new());
        for ((_, first, run), sum) in runs_of(rows, logits.vocab).zip(sums) {
            *sum = arch.dispatch(Run { logits, first, run, step });
        }
    }

    /// Does a step with each run of rows that threads share, each with its row's number; the runs' sums, `[rows, runs]`.
    fn step_shared(&self, rows: &mut [T], step: impl Fn(usize) -> Step + Sync) -> Vec<LogSumExp> {
        let (logits, arch) = (self.logits, Arch::new());
        let runs: Vec<_> = runs_of(rows, logits.vocab).collect();
        let mut sums = vec![LogSumExp::NONE; runs.len()];
        share(runs.into_iter().zip(&mut sums), |((row, first, run), sum)| {
            *sum = arch.dispatch(Run { logits, first, run, step: step(row) });
        });
        sums
    }

    /// Turns products into logits, −∞ for masked words.
    pub(super) fn logits(&self, rows: &mut [T]) {
        self.step_shared(rows, |_| Step::Logits);
    }

    /// Turns the products of one row a token into log-probabilities, and has them read.
    pub(super) fn singles(&self, rows: &mut [T], read: Read<'_, T>) {
        let (logits, vocab) = (self.logits, self.logits.vocab);
        if !self.is_thin() {
            let no_sums = || vec![LogSumExp::NONE; logits.runs()];
            share_with(rows.chunks_exact_mut(vocab).enumerate(), no_sums, |sums, (n, row)| {
                self.step(row, sums, Step::Measure);
                let whole = LogSumExp::of(sums);
                self.step(row, sums, Step::Normalise(whole));
                read(self.first + n, row);
            });
            return;
        }
        let sums = self.step_shared(rows, |_| Step::Measure);
        let wholes: Vec<_> = sums.chunks_exact(logits.runs()).map(LogSumExp::of).collect();
        self.step_shared(rows, |row| Step::Normalise(wholes[row]));
        share(rows.chunks_exact(vocab).enumerate(), |(n, row)| read(self.first + n, row));
    }

    /// Writes the log-probabilities `[tokens, V]` of mixtures, for the products of their components.
    pub(super) fn mixtures(&self, rows: &mut [T], out: &mut [T]) {
        let (logits, vocab, arch) = (self.logits, self.logits.vocab, Arch::new());
        let of_token = self.of_token * vocab;
        if !self.is_thin() {
            let tokens = rows.chunks_exact_mut(of_token).zip(out.chunks_exact_mut(vocab));
            share_with(
                tokens.enumerate(),
                || MixtureBuffers::new(logits, self.of_token),
                |buffers, (n, (rows, out))| self.mixture(n, rows, buffers, out),
            );
            return;
        }
        let sums = self.step_shared(rows, |_| Step::Exponentials);
        let mut weights = vec![Weight::default(); sums.len()];
        let of_weights = self.of_token * logits.runs();
        for (n, weights) in weights.chunks_exact_mut(of_weights).enumerate() {
            weigh(&sums[n * of_weights..(n + 1) * of_weights], self.log_prior(n), weights);
        }
        share(runs_of(out, vocab), |(n, first, out)| {
            let rows = &rows[n * of_token..(n + 1) * of_token];
            let weights = &weights[n * of_weights + first / RUN * self.of_token..][..self.of_token];
            arch.dispatch(Mix { logits, rows, first, weights, out });
        });
    }

    /// Writes the log-probabilities of one mixture; its rows become exponentials.
    fn mixture(&self, n: usize, rows: &mut [T], buffers: &mut MixtureBuffers<T>, out: &mut [T]) {
        let (logits, arch) = (self.logits, Arch::new());
        let MixtureBuffers { sums, weights } = buffers;
        self.step(rows, sums, Step::Exponentials);
        weigh(sums, self.log_prior(n), weights);
        for (i, (out, weights)) in out.chunks_mut(RUN).zip(weights.chunks_exact(self.of_token)).enumerate() {
            arch.dispatch(Mix { logits, rows, first: i * RUN, weights, out });
        }
    }

    /// Has the log-probabilities of mixtures read.
    pub(super) fn read_mixtures(&self, rows: &mut [T], read: Read<'_, T>) {
        let (logits, vocab) = (self.logits, self.logits.vocab);
        if self.is_thin() {
            let mut out = Buffer::new(self.tokens * vocab);
            self.mixtures(rows, &mut out);
            share(out.chunks_exact(vocab).enumerate(), |(n, row)| read(self.first + n, row));
            return;
        }
        share_with(
            rows.chunks_exact_mut(self.of_token * vocab).enumerate(),
            || (MixtureBuffers::new(logits, self.of_token), Buffer::new(vocab)),
            |(buffers, out), (n, rows)| {
                self.mixture(n, rows, buffers, out);
                read(self.first + n, out);
            },
        );
    }

    /// Draws a word of each token, for the products of its only row.
    pub(super) fn draw(&self, rows: &mut [T], numbers: &[f64], drawn: &mut [Drawn]) {
        let (logits, vocab, arch) = (self.logits, self.logits.vocab, Arch::new());
        if self.is_thin() {
            let sums = self.step_shared(rows, |_| Step::Measure);
            let rows = rows.chunks_exact(vocab).zip(sums.chunks_exact(logits.runs()));
            for ((row, sums), (number, drawn)) in rows.zip(numbers.iter().zip(drawn)) {
                *drawn = arch.dispatch(Pick { row, sums, number: *number });
            }
            return;
        }
        share_with(
            rows.chunks_exact_mut(vocab).zip(numbers).zip(drawn),
            || vec![LogSumExp::NONE; logits.runs()],
            |sums, ((row, number), drawn)| {
                self.step(row, sums, Step::Measure);
                *drawn = arch.dispatch(Pick { row, sums, number: *number });
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

/// What is done to a run.
#[derive(Debug, Clone, Copy)]
enum Step {
    Logits,
    Measure,
    Exponentials,
    Normalise(LogSumExp),
}

/// A run of a row, from word `first` on.
struct Run<'v, 'a, T> {
    logits: &'v MappedLogits<'a, T>,
    first: usize,
    run: &'v mut [T],
    step: Step,
}

impl<T: Real> WithSimd for Run<'_, '_, T> {
    type Output = LogSumExp;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) -> LogSumExp {
        let Self { logits, first, run, step } = self;
        match step {
            Step::Logits => logits.logits(first, run),
            Step::Measure => return logits.measure(first, run),
            Step::Exponentials => return logits.measured_exponentials(first, run),
            Step::Normalise(whole) => logits.normalise(first, run, whole),
        }
        LogSumExp::NONE
    }
}

/// What a thread works with, mixture by mixture.
struct MixtureBuffers<T> {
    /// `[K, runs]`
    sums: Vec<LogSumExp>,
    /// `[runs, K]`
    weights: Vec<Weight<T>>,
}

impl<T: Real> MixtureBuffers<T> {
    fn new(logits: &MappedLogits<'_, T>, components: usize) -> Self {
        let runs = components * logits.runs();
        Self { sums: vec![LogSumExp::NONE; runs], weights: vec![Weight::default(); runs] }
    }
}
