//! Predictions composed of Burn's operations, read back chunk by chunk.

use burn::tensor::{DType, TensorData};
use highrank_kernels::{Floats, Ints};

use super::{context_tensor, log_probs, logits};
use crate::likelihood::draw_in_order;
use crate::ops::{ContextSource, Draw, Kernels, LikelihoodInput, LogProbs, Prediction};

/// What is predicted of every token; a tensor, if one was asked for.
pub fn predict<B: Kernels>(
    input: &LikelihoodInput<Floats<B>>,
    prediction: Prediction<'_>,
) -> Option<Floats<B>> {
    match prediction {
        Prediction::LogProbs => Some(log_probs(input)),
        Prediction::Logits => Some(logits(input)),
        Prediction::Read(read) => {
            let mut token = 0;
            for chunk in input.clone().into_chunks() {
                for_each_row(log_probs(&chunk).into_data(), input.vocab(), |row| {
                    read(token, row);
                    token += 1;
                });
            }
            None
        }
        Prediction::Draw(draw) => {
            draw_words(input.clone(), draw);
            None
        }
    }
}

fn draw_words<B: Kernels>(input: LikelihoodInput<Floats<B>>, draw: Draw<'_>) {
    let Draw { components, numbers, words } = draw;
    let input = match components.is_empty() {
        true => input,
        false => of_components(input, components),
    };
    let mut slots = words.iter_mut().zip(numbers);
    let vocab = input.vocab();
    for chunk in input.into_chunks() {
        let rows: Vec<f64> = log_probs(&chunk).into_data().iter::<f64>().collect();
        for (row, (word, number)) in rows.chunks_exact(vocab).zip(slots.by_ref()) {
            *word = draw_in_order(row, *number);
        }
    }
}

/// One component of each token, and no other.
fn of_components<B: Kernels>(
    input: LikelihoodInput<Floats<B>>,
    components: &[usize],
) -> LikelihoodInput<Floats<B>> {
    let (count, [_, d]) = (input.components(), input.weight.dims());
    let rows: Vec<i64> = components.iter().enumerate().map(|(n, k)| (n * count + k) as i64).collect();
    let rows = Ints::converted(TensorData::new(rows, [components.len()]), &input.weight.device());
    let contexts = context_tensor(input.contexts, d).select(0, rows);
    LikelihoodInput { contexts: ContextSource::Given(contexts), log_prior: None, ..input }
}

fn for_each_row(rows: TensorData, vocab: usize, mut read: impl FnMut(LogProbs<'_>)) {
    const EXPECT: &str = "log-probabilities have the type of sums";
    match rows.dtype() {
        DType::F64 => {
            let rows = rows.as_slice::<f64>().expect(EXPECT);
            rows.chunks_exact(vocab).for_each(|row| read(LogProbs::F64(row)));
        }
        _ => {
            let rows = rows.as_slice::<f32>().expect(EXPECT);
            rows.chunks_exact(vocab).for_each(|row| read(LogProbs::F32(row)));
        }
    }
}
