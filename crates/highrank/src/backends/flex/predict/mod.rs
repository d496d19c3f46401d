//! Predictions: what log-probabilities, logits and draws do with the rows of a chunk.
//!
//! Everything is made once. Where there is one component, the product of a tensor of log-probabilities is made in the tensor
//! itself and finished there. Of a mixture, the row of log-probabilities is made once and written once, to the tensor or for
//! its reader; what is read or drawn needs no `[N, V]` at all.
//!
//! Rows are visited in runs of words, each with a maximum of its own, so that the parts of a row can be given to threads: few
//! tokens keep all of them busy. The result has the same bits however rows are spread.

mod draw;
mod mixture;
mod rows;
mod runs;
#[cfg(test)]
mod tests;

use core::ops::Range;

use burn::backend::Flex;
use highrank_kernels::Floats;
use highrank_kernels::cpu::{Buffer, Real, in_pool};

use super::call::{Call, as_read};
use super::contexts::TokenContexts;
use super::sweep::{self, Visitor};
use crate::ops::{Draw, Gradients, LikelihoodInput, LogProbs, Prediction};
use rows::{ChunkRows, Read};

/// Multiplications that one thread does before another one is awake.
const SHORT: usize = 1 << 17;

/// [`LikelihoodKernels::predict`](crate::likelihood::LikelihoodKernels::predict) with sums of type `T`.
///
/// - log_probs: a row as readers are given it
pub(super) fn run<T: Real>(
    input: LikelihoodInput<Floats<Flex>>,
    prediction: Prediction<'_>,
    log_probs: fn(&[T]) -> LogProbs<'_>,
) -> Option<Floats<Flex>> {
    let input = as_read(input);
    let chosen = match &prediction {
        Prediction::Draw(draw) => draw.components,
        _ => &[],
    };
    let call = Call::new(&input, chosen);
    let rows = match &prediction {
        Prediction::LogProbs => call.tokens,
        Prediction::Logits => call.tokens * call.components,
        Prediction::Read(_) | Prediction::Draw(_) => 0,
    };
    let mut out = Buffer::new(rows * call.logits.vocab);
    let read;
    let output = match prediction {
        Prediction::LogProbs => Output::LogProbs(&mut out),
        Prediction::Logits => Output::Logits(&mut out),
        Prediction::Read(reader) => {
            read = move |token: usize, row: &[T]| reader(token, log_probs(row));
            Output::Read(&read)
        }
        Prediction::Draw(draw) => Output::Draw(draw),
    };
    let is_tensor = matches!(output, Output::LogProbs(_) | Output::Logits(_));
    let work = || sweep::run(&call, &mut Predict::new(&call, output));
    // So little to do that waking other threads takes longer.
    match call.tokens == 1 && call.components * call.logits.vocab * call.d < SHORT {
        true => work(),
        false => in_pool(work),
    }
    is_tensor.then(|| Floats::new(out.into_tensor([rows, call.logits.vocab])))
}

/// What becomes of the rows.
enum Output<'a, T> {
    /// Log-probabilities are written, `[N, V]`.
    LogProbs(&'a mut [T]),
    /// Logits are, `[N·K, V]`.
    Logits(&'a mut [T]),
    Read(Read<'a, T>),
    Draw(Draw<'a>),
}

/// Predicts all tokens that it is shown.
struct Predict<'c, T> {
    call: &'c Call<'c, T>,
    output: Output<'c, T>,
    /// Whether the rows of a token are mixed.
    is_mixture: bool,
    /// Of a chunk, if their place is not in the output.
    logits: Buffer<T>,
}

impl<'c, T: Real> Predict<'c, T> {
    fn new(call: &'c Call<'c, T>, output: Output<'c, T>) -> Self {
        let is_mixture = call.log_prior.is_some() && !matches!(output, Output::Draw(_));
        let rows = match &output {
            Output::Logits(_) => 0,
            Output::LogProbs(_) if !is_mixture => 0,
            _ => call.chunk * call.rows_of_token(),
        };
        Self { call, output, is_mixture, logits: Buffer::new(rows * call.logits.vocab) }
    }
}

impl<T: Real> Visitor<T> for Predict<'_, T> {
    fn logits(&mut self, tokens: Range<usize>) -> &mut [T] {
        let of_token = self.call.rows_of_token() * self.call.logits.vocab;
        let span = tokens.start * of_token..tokens.end * of_token;
        match &mut self.output {
            Output::Logits(out) => &mut out[span],
            Output::LogProbs(out) if !self.is_mixture => &mut out[span],
            _ => &mut self.logits[..span.len()],
        }
    }

    fn visit(&mut self, tokens: Range<usize>, contexts: TokenContexts<'_, T>) {
        if let Some(gates) = contexts.gates {
            gates.add_to_each(self.logits(tokens.clone()));
        }
        let Self { call, is_mixture, .. } = *self;
        let (of_token, vocab) = (call.rows_of_token(), call.logits.vocab);
        let chunk = ChunkRows { call, tokens: tokens.clone() };
        let span = tokens.start * vocab..tokens.end * vocab;
        let in_chunk = (span.len() * of_token).min(self.logits.len());
        let logits = &mut self.logits[..in_chunk];
        match &mut self.output {
            Output::Logits(out) => chunk.logits(&mut out[span.start * of_token..span.end * of_token]),
            Output::LogProbs(out) if is_mixture => chunk.mixtures(logits, &mut out[span]),
            Output::LogProbs(out) => chunk.singles(&mut out[span], &|_, _| {}),
            Output::Read(read) if is_mixture => chunk.read_mixtures(logits, *read),
            Output::Read(read) => chunk.singles(logits, *read),
            Output::Draw(draw) => chunk.draw(logits, &draw.numbers[tokens.clone()], &mut draw.words[tokens]),
        }
    }

    fn gradients(&mut self) -> Option<&mut Gradients<Buffer<T>>> {
        None
    }
}
