//! Pairs as padded arrays of integers.

use std::collections::HashMap;
use std::ops::Range;

use super::split::{Pair, Split};
use super::vocabulary::{BOD, BOS, EOS, PAD};

/// Rows of different lengths in one array, filled up with zeros at their ends.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Padded {
    /// The array `[rows, width]`, row-major.
    pub values: Vec<i32>,
    /// Length of every row.
    pub lengths: Vec<usize>,
    /// Length of the longest row.
    pub width: usize,
}

impl Padded {
    /// Pads some rows.
    pub fn new<R: AsRef<[i32]>>(rows: &[R]) -> Self {
        // Ids are padded by zeros, too.
        const { assert!(PAD == 0) };
        let lengths: Vec<usize> = rows.iter().map(|row| row.as_ref().len()).collect();
        let width = lengths.iter().copied().max().unwrap_or(0);
        let mut values = vec![0; rows.len() * width];
        for (at, row) in rows.iter().enumerate() {
            values[at * width..][..row.as_ref().len()].copy_from_slice(row.as_ref());
        }
        Self { values, lengths, width }
    }

    fn of_ids<'a>(rows: impl IntoIterator<Item = &'a [u32]>) -> Self {
        let rows: Vec<Vec<i32>> =
            rows.into_iter().map(|row| row.iter().map(|&id| id as i32).collect()).collect();
        Self::new(&rows)
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.lengths.len()
    }

    /// A row without its padding.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn row(&self, row: usize) -> &[i32] {
        &self.values[row * self.width..][..self.lengths[row]]
    }

    /// Number of values that are no padding.
    pub fn count(&self) -> usize {
        self.lengths.iter().sum()
    }
}

/// What an encoder reads: every utterance once, and which of them each of P contexts consists of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contexts {
    /// Token ids of the distinct utterances `[U, L]`, with `<s>` and `</s>`.
    pub utterances: Padded,
    /// Rows of `utterances` that each context consists of `[P, C]`, oldest first.
    pub entries: Padded,
    /// 1 for an entry whose speaker responds, else 0 `[P, C]`. It has the lengths of `entries`.
    pub floor: Padded,
}

impl Contexts {
    /// The contexts of some pairs, of at most `window` entries each.
    ///
    /// # Panics
    /// If `split` lacks a pair.
    pub fn new(split: &Split, pairs: &[Pair], window: usize) -> Self {
        let mut rows: HashMap<(usize, usize), i32> = HashMap::new();
        let mut utterances: Vec<&[u32]> = Vec::new();
        let (mut entries, mut floor) = (Vec::new(), Vec::new());
        for &pair in pairs {
            let context = split.context(pair, window);
            let row_of = |turn| {
                *rows.entry((pair.dialogue, turn)).or_insert_with(|| {
                    utterances.push(split.entry(pair.dialogue, turn));
                    utterances.len() as i32 - 1
                })
            };
            entries.push(context.clone().map(row_of).collect::<Vec<i32>>());
            floor.push(context.map(|turn| i32::from(split.is_own(pair, turn))).collect::<Vec<i32>>());
        }
        Self {
            utterances: Padded::of_ids(utterances),
            entries: Padded::new(&entries),
            floor: Padded::new(&floor),
        }
    }

    /// One context: the beginning of a dialogue and the entries that were spoken since, each with whether its speaker is to
    /// respond now. The last `window` of them count.
    ///
    /// ```
    /// use seq2seq::data::{Contexts, DialogConfig, SPECIAL};
    ///
    /// let vocabulary = SPECIAL.map(String::from).to_vec().into();
    /// let entry = DialogConfig::default().entry("how are you", &vocabulary);
    /// let context = Contexts::of_history(&[(entry, false)], 4);
    /// assert_eq!(context.utterances.rows(), 2);
    /// assert_eq!(context.floor.row(0), [0, 0]);
    /// ```
    pub fn of_history(history: &[(Vec<u32>, bool)], window: usize) -> Self {
        let beginning = std::iter::once((&[BOS, BOD, EOS][..], false));
        let spoken = history.iter().map(|(entry, own)| (entry.as_slice(), *own));
        let seen = (history.len() + 1).saturating_sub(window);
        let (utterances, floor): (Vec<&[u32]>, Vec<i32>) =
            beginning.chain(spoken).skip(seen).map(|(entry, own)| (entry, i32::from(own))).unzip();
        let entries: Vec<i32> = (0..utterances.len() as i32).collect();
        Self {
            utterances: Padded::of_ids(utterances),
            entries: Padded::new(&[entries]),
            floor: Padded::new(&[floor]),
        }
    }
}

/// Some pairs for a model: what the encoder reads, and what the decoder reads and predicts, one row a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// The contexts, in the order of the responses.
    pub contexts: Contexts,
    /// Inputs `<s> w₁ … w_n` `[P, R]`.
    pub inputs: Padded,
    /// Targets `w₁ … w_n </s>` `[P, R]`. They have the lengths of `inputs`.
    pub targets: Padded,
}

impl Batch {
    /// The contexts of at most `window` entries, and the responses, of some pairs.
    ///
    /// # Panics
    /// If `split` lacks a pair.
    pub fn new(split: &Split, pairs: &[Pair], window: usize) -> Self {
        let responses = |part: fn(usize) -> Range<usize>| {
            Padded::of_ids(pairs.iter().map(|pair| {
                let entry = split.entry(pair.dialogue, pair.turn);
                &entry[part(entry.len())]
            }))
        };
        Self {
            contexts: Contexts::new(split, pairs, window),
            inputs: responses(|length| 0..length - 1),
            targets: responses(|length| 1..length),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::split::tests::split_of;

    #[test]
    fn rows_are_padded_to_the_longest() {
        let padded = Padded::new(&[vec![1, 2, 3], vec![], vec![4]]);
        assert_eq!(padded.values, [1, 2, 3, 0, 0, 0, 4, 0, 0]);
        assert_eq!((padded.rows(), padded.width, padded.count()), (3, 3, 4));
        assert_eq!((padded.row(0), padded.row(1), padded.row(2)), (&[1, 2, 3][..], &[][..], &[4][..]));
        assert_eq!(Padded::new::<Vec<i32>>(&[]), Padded::default());
    }

    fn split() -> Split {
        split_of(&[&["A: a b", "B: c", "B: a a a", "A: b"], &["A: c", "A: b", "B: a"]], &["a", "b", "c"])
    }

    #[test]
    fn each_utterance_is_there_once() {
        let split = split();
        let pairs: Vec<Pair> = split.pairs().collect();
        let Batch { contexts, inputs, targets } = Batch::new(&split, &pairs, 2);
        let Contexts { utterances, entries, floor } = &contexts;
        // Entries 0 to 2 of one dialogue, 0 and 1 of the other.
        assert_eq!(utterances.lengths, [3, 4, 3, 3, 3]);
        assert_eq!(utterances.row(1), [2, 5, 6, 3]);
        assert_eq!(entries.values, [0, 0, 0, 1, 1, 2, 3, 0, 3, 4]);
        assert_eq!(entries.lengths, [1, 2, 2, 1, 2]);
        assert_eq!(floor.values, [0, 0, 0, 0, 0, 1, 0, 0, 0, 1]);
        assert_eq!(floor.lengths, entries.lengths);
        assert_eq!((inputs.row(2), targets.row(2)), (&[2, 5, 5, 5][..], &[5, 5, 5, 3][..]));
        assert_eq!(inputs.lengths, targets.lengths);
        assert_eq!(targets.count(), split.response_tokens());
    }

    #[test]
    fn gathered_entries_are_the_contexts() {
        let split = split();
        let mut pairs: Vec<Pair> = split.pairs().collect();
        // Any order, and a pair that occurs twice.
        pairs.reverse();
        pairs.push(pairs[2]);
        for window in [1, 2, 3, 9] {
            let contexts = Contexts::new(&split, &pairs, window);
            for (at, &pair) in pairs.iter().enumerate() {
                let gathered: Vec<&[i32]> = contexts
                    .entries
                    .row(at)
                    .iter()
                    .map(|&row| contexts.utterances.row(row as usize))
                    .collect();
                let expected: Vec<Vec<i32>> = (pair.turn.saturating_sub(window)..pair.turn)
                    .map(|turn| split.entry(pair.dialogue, turn).iter().map(|&id| id as i32).collect())
                    .collect();
                assert_eq!(gathered, expected);
            }
        }
        let empty = Batch::new(&split, &[], 4);
        assert_eq!((empty.contexts.utterances.rows(), empty.inputs.rows()), (0, 0));
        assert_eq!(Contexts::new(&split, &pairs, 0).entries.width, 0);
    }

    #[test]
    fn a_history_is_the_context_of_its_pair() {
        let split = split();
        let pair = Pair { dialogue: 0, turn: 3 };
        let history: Vec<(Vec<u32>, bool)> =
            (1..3).map(|turn| (split.entry(0, turn).to_vec(), split.is_own(pair, turn))).collect();
        for window in [0, 1, 2, 3, 9] {
            assert_eq!(Contexts::of_history(&history, window), Contexts::new(&split, &[pair], window));
        }
    }
}
