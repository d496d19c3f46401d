//! Native CPU kernel of predictions on Burn's Flex backend: one sweep over the tokens, in which everything is made once.
//!
//! A chunk of tokens: one matrix product, then every token's rows in one visit while they are in cache. Where there is one
//! component, the product of a tensor of log-probabilities is made in the tensor itself and finished there. Of a mixture, the
//! row of log-probabilities is made once and written once, to the tensor or for its reader; what is read or drawn needs no
//! `[N, V]` at all.
//!
//! Rows are visited in runs of words, each with a maximum of its own, so that the parts of a row can be dealt to threads: few
//! tokens keep all of them busy. The result has the same bits however rows are dealt.
//!
//! | file | job |
//! |---|---|
//! | `task.rs` | what becomes of the rows |
//! | `sweep.rs` | chunks and products |
//! | `deal.rs` | tokens, or runs of words, to threads |
//! | `runs.rs` | a row of logits, run by run |
//! | `mixture.rs` | a run of a mixture's log-probabilities |
//! | `draw.rs` | a word by a row of logits |

mod deal;
mod draw;
mod mixture;
mod runs;
mod sweep;
mod task;
#[cfg(test)]
mod tests;

use burn::backend::Flex;
use burn::tensor::DType;
use highrank_kernels::Floats;
use highrank_kernels::cpu::{Buffer, contiguous, in_pool, slice};

use super::call::{Contexts, contexts_as_read};
use super::factor::{Stored, as_factor};
use super::slices::assert_length;
use super::vocabulary::Vocabulary;
use super::words::Words;
use crate::logit_map::CpuMap;
use crate::ops::{Likelihood, Prediction};
use task::{Sums, Task};

/// [`LikelihoodKernels::predict`](crate::likelihood::LikelihoodKernels::predict) on Flex.
pub(super) fn predict(input: Likelihood<Floats<Flex>>, prediction: Prediction<'_>) -> Option<Floats<Flex>> {
    match input.wide() {
        DType::F64 => run::<f64>(input, prediction),
        _ => run::<f32>(input, prediction),
    }
}

fn run<T: Sums>(input: Likelihood<Floats<Flex>>, prediction: Prediction<'_>) -> Option<Floats<Flex>> {
    let sums = input.wide();
    let (tokens, components, [vocab, d]) = (input.tokens(), input.components(), input.weight.dims());
    let small = |tensor: Option<Floats<Flex>>| tensor.map(|tensor| contiguous(&tensor.cast(sums)));
    let (log_prior, params, bias) = (small(input.log_prior), small(input.map_params), small(input.bias));
    assert_length("log_prior", log_prior.as_ref(), tokens * components);
    assert_length("bias", bias.as_ref(), vocab);
    let weight = contiguous(&as_factor(input.weight, sums));
    let vocabulary = Vocabulary::<T>::new(bias);
    let contexts = Contexts::new(&contexts_as_read(input.contexts, sums), components, [vocab, d]);
    let kernel = sweep::Input {
        contexts: contexts.source(Stored::new(&weight)),
        log_prior: log_prior.as_ref().map(slice),
        weight: Stored::new(&weight),
        words: Words {
            vocab,
            bias: vocabulary.bias(),
            masked: &vocabulary.masked,
            map: CpuMap::new(input.map, params.as_ref().map_or(&[][..], slice)),
            temperature: T::of(input.temperature),
        },
        tokens,
        components,
        d,
        budget: input.chunk_bytes,
        precision: input.precision,
    };
    let made = |rows: usize, write: &dyn Fn(&mut Buffer<T>)| {
        let mut out = Buffer::new(rows * vocab);
        write(&mut out);
        Some(Floats::new(out.into_tensor([rows, vocab])))
    };
    let sweep = |task: Task<'_, T>| match kernel.is_short() {
        true => sweep::run(&kernel, task),
        false => in_pool(|| sweep::run(&kernel, task)),
    };
    match prediction {
        Prediction::LogProbs => made(tokens, &|out| sweep(Task::Write(out))),
        Prediction::Logits => made(tokens * components, &|out| sweep(Task::Logits(out))),
        Prediction::Read(read) => {
            sweep(Task::Read(read));
            None
        }
        Prediction::Draw(draw) => {
            sweep(Task::Draw(draw));
            None
        }
    }
}
