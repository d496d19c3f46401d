//! A chunk's rows, spread over threads: by tokens, and by runs of words as well where there are few tokens.

use core::ops::Range;

use highrank_kernels::cpu::{Buffer, Real, share, share_with};
use highrank_kernels::vectorised;
use pulp::Arch;

use super::super::all_words::RUN;
use super::super::call::Call;
use super::super::mapped_logits::MappedLogits;
use super::draw::pick;
use super::mixture::{Weight, mix, weigh};
use super::runs::{LogSumExp, Step};
use crate::ops::Drawn;

/// What log-probabilities are given to, with their token's number.
pub(super) type Read<'a, T> = &'a (dyn Fn(usize, &[T]) + Sync);

/// Values below which one thread visits all: some ten microseconds' work.
const GRAIN: usize = 1 << 15;

/// A run of tokens whose products with the decoder have been made.
pub(super) struct ChunkRows<'a, T> {
    pub(super) call: &'a Call<'a, T>,
    pub(super) tokens: Range<usize>,
}

impl<T: Real> ChunkRows<'_, T> {
    /// Whether threads share the rows: there are too few tokens for each thread to have some of its own.
    fn is_thin(&self) -> bool {
        let threads = rayon::current_num_threads();
        let tokens = self.tokens.len();
        threads > 1
            && tokens < 2 * threads
            && tokens * self.call.rows_of_token() * self.call.logits.vocab >= GRAIN
    }

    /// Does `work` for each of a token's jobs: threads share them if they share the chunk's rows.
    fn each<J: Send>(&self, jobs: impl Iterator<Item = J>, work: impl Fn(J) + Sync) {
        if self.is_thin() { share(jobs, work) } else { jobs.for_each(work) }
    }

    /// Does a step with each run of a token's rows; the runs' sums, `[rows, runs]`.
    fn step(&self, rows: &mut [T], step: Step) -> Vec<LogSumExp> {
        let (logits, arch) = (&self.call.logits, Arch::new());
        let mut sums = vec![LogSumExp::NONE; rows.len() / logits.vocab * logits.runs()];
        let runs = rows.chunks_exact_mut(logits.vocab).flat_map(|row| row.chunks_mut(RUN).enumerate());
        self.each(runs.zip(&mut sums), |((i, run), sum)| {
            let first = i * RUN;
            *sum = vectorised!(arch, |logits: &'a MappedLogits<'a, T>,
                                      first: usize,
                                      run: &'a mut [T],
                                      step: Step|
             -> LogSumExp { logits.step(first, run, step) });
        });
        sums
    }

    /// Turns products into logits, −∞ for masked words.
    pub(super) fn logits(&self, rows: &mut [T]) {
        share(rows.chunks_exact_mut(self.call.logits.vocab), |row| {
            self.step(row, Step::Logits);
        });
    }

    /// Turns the products of one row a token into log-probabilities, and has them read.
    pub(super) fn singles(&self, rows: &mut [T], read: Read<'_, T>) {
        share(rows.chunks_exact_mut(self.call.logits.vocab).enumerate(), |(n, row)| {
            let whole = LogSumExp::of(&self.step(row, Step::Measure));
            self.step(row, Step::Normalise(whole));
            read(self.tokens.start + n, row);
        });
    }

    /// Writes the log-probabilities `[tokens, V]` of mixtures, for the products of their components.
    pub(super) fn mixtures(&self, rows: &mut [T], out: &mut [T]) {
        let vocab = self.call.logits.vocab;
        let tokens = rows.chunks_exact_mut(self.call.components * vocab).zip(out.chunks_exact_mut(vocab));
        share(tokens.enumerate(), |(n, (rows, out))| self.mixture(n, rows, out));
    }

    /// Writes the log-probabilities of one mixture; its rows become exponentials.
    fn mixture(&self, n: usize, rows: &mut [T], out: &mut [T]) {
        let (logits, arch) = (&self.call.logits, Arch::new());
        let sums = self.step(rows, Step::Exponentials);
        let mut weights = vec![Weight::default(); sums.len()];
        let components = self.call.components;
        weigh(&sums, self.call.log_prior_of(self.tokens.start + n, 0..components), &mut weights);
        let runs = out.chunks_mut(RUN).zip(weights.chunks_exact(components)).enumerate();
        let rows = &*rows;
        self.each(runs, |(i, (out, weights))| {
            let first = i * RUN;
            vectorised!(arch, |logits: &'a MappedLogits<'a, T>,
                               rows: &'a [T],
                               first: usize,
                               weights: &'a [Weight<T>],
                               out: &'a mut [T]| {
                mix(logits, rows, first, weights, out);
            });
        });
    }

    /// Has the log-probabilities of mixtures read.
    pub(super) fn read_mixtures(&self, rows: &mut [T], read: Read<'_, T>) {
        let vocab = self.call.logits.vocab;
        let tokens = rows.chunks_exact_mut(self.call.components * vocab).enumerate();
        share_with(
            tokens,
            || Buffer::new(vocab),
            |out, (n, rows)| {
                self.mixture(n, rows, out);
                read(self.tokens.start + n, out);
            },
        );
    }

    /// Draws a word of each token, for the products of its only row.
    pub(super) fn draw(&self, rows: &mut [T], numbers: &[f64], drawn: &mut [Drawn]) {
        let arch = Arch::new();
        let tokens = rows.chunks_exact_mut(self.call.logits.vocab).zip(numbers).zip(drawn);
        share(tokens, |((row, number), drawn)| {
            let sums = self.step(row, Step::Measure);
            let (sums, number) = (&*sums, *number);
            *drawn = vectorised!(arch, |row: &'a [T], sums: &'a [LogSumExp], number: f64| -> Drawn {
                pick(row, sums, number)
            });
        });
    }
}
