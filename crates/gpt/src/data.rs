//! Sequences of a text and their batches.

use burn::tensor::{Device, Int, Tensor, TensorData};
use runs::data::Tokens;

/// Target of places behind the end of a text, which count for nothing.
pub const IGNORED: i64 = -100;

/// Sequences of a text: at most T tokens and one more, the last one's target.
#[derive(Debug, Clone)]
pub struct Windows {
    tokens: Tokens,
    context: usize,
    /// Distance between the starts of two sequences.
    stride: usize,
    count: usize,
}

impl Windows {
    /// A sequence of `context` tokens and a target from every place where the text has as many, for training.
    pub fn everywhere(tokens: Tokens, context: usize) -> Self {
        let count = tokens.len().saturating_sub(context);
        Self { tokens, context, stride: 1, count }
    }

    /// Sequences side by side that predict each token but the first once, for evaluation. The last may be shorter.
    pub fn side_by_side(tokens: Tokens, context: usize) -> Self {
        let count = tokens.len().saturating_sub(1).div_ceil(context);
        Self { tokens, context, stride: context, count }
    }

    /// Number of sequences.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// A sequence: its tokens, of which the last is a target alone.
    ///
    /// # Panics
    /// If there are fewer sequences.
    pub fn get(&self, index: usize) -> Vec<u32> {
        assert!(index < self.count, "sequence {index} of {}", self.count);
        let start = index * self.stride;
        let end = (start + self.context + 1).min(self.tokens.len());
        self.tokens.get(start..end)
    }
}

/// Sequences and the words that follow each of their tokens.
#[derive(Debug, Clone)]
pub struct Batch {
    /// `[B, T]`
    pub tokens: Tensor<2, Int>,
    /// `[B, T]`, [`IGNORED`] behind the end of a sequence that is shorter than others.
    pub targets: Tensor<2, Int>,
}

/// The batch of some sequences.
pub fn batch(sequences: &[Vec<u32>], device: &Device) -> Batch {
    let length = sequences.iter().map(|ids| ids.len() - 1).max().unwrap_or(0);
    let shape = [sequences.len(), length];
    let (mut tokens, mut targets) = (vec![0i64; shape[0] * length], vec![IGNORED; shape[0] * length]);
    let rows = tokens.chunks_mut(length.max(1)).zip(targets.chunks_mut(length.max(1)));
    for (ids, (tokens, targets)) in sequences.iter().zip(rows) {
        tokens.iter_mut().zip(ids).zip(targets).zip(&ids[1..]).for_each(|(((token, id), target), next)| {
            (*token, *target) = (i64::from(*id), i64::from(*next));
        });
    }
    let tensor = |ids| Tensor::from_data(TensorData::new(ids, shape), device);
    Batch { tokens: tensor(tokens), targets: tensor(targets) }
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use super::*;

    fn values(tensor: Tensor<2, Int>) -> Vec<i64> {
        tensor.into_data().iter().collect()
    }

    #[test]
    fn every_token_but_the_first_is_predicted_once() {
        for tokens in [2, 3, 7, 12, 13, 14, 50] {
            let ids = Tokens::Memory((0..tokens).collect());
            let windows = Windows::side_by_side(ids, 4);
            let sequences: Vec<_> = (0..windows.len()).map(|index| windows.get(index)).collect();
            let (mut read, mut predicted) = (vec![], vec![]);
            for sequences in sequences.chunks(3) {
                let batch = batch(sequences, &Device::flex());
                for (token, target) in values(batch.tokens).into_iter().zip(values(batch.targets)) {
                    if target != IGNORED {
                        assert_eq!(target, token + 1);
                        read.push(token);
                        predicted.push(target);
                    }
                }
            }
            assert_eq!(predicted, (1..i64::from(tokens)).collect::<Vec<_>>(), "{tokens} tokens");
            assert_eq!(read, (0..i64::from(tokens) - 1).collect::<Vec<_>>(), "{tokens} tokens");
        }
    }

    #[test]
    fn shorter_sequences_are_filled_with_ignored_targets() {
        let batch = batch(&[vec![1, 2, 3, 4], vec![5, 6]], &Device::flex());
        assert_eq!((batch.tokens.dims(), values(batch.tokens)), ([2, 3], vec![1, 2, 3, 5, 0, 0]));
        assert_eq!(values(batch.targets), [2, 3, 4, 6, IGNORED, IGNORED]);
    }

    #[test]
    fn training_sequences_are_whole_and_start_anywhere() {
        let windows = Windows::everywhere(Tokens::Memory((0..9).collect()), 4);
        let all: Vec<Vec<u32>> = (0..windows.len()).map(|index| windows.get(index)).collect();
        assert_eq!(all, (0..5).map(|start| (start..start + 5).collect()).collect::<Vec<Vec<u32>>>());
        assert_eq!(Windows::everywhere(Tokens::Memory(vec![1, 2, 3]), 3).len(), 0);
    }
}
