//! Sequences of different lengths for an LSTM, with little padding.

use awd_lstm::lstm::{Lstm, LstmState};
use burn::tensor::Tensor;

/// Share of a segment's sequences that must go on for it to go on: below it a smaller segment follows. More of them would save padding,
/// but each segment has gradients of the LSTM's weights, which are added up.
const GOING_ON: f64 = 0.6;

/// The order in which an LSTM runs over sequences: the longest first, cut in time into segments that only those sequences go
/// through that are not over.
///
/// A segment is `steps` steps of `rows` sequences, the first ones of the order. Its values are `[steps, rows]`, and those of all
/// segments follow each other: the *places*. A sequence that ends within a segment is padded to the segment's end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Packing {
    lengths: Vec<usize>,
    /// The sequences in the order of the rows: longest first, equal ones as they come.
    pub(super) order: Vec<usize>,
    /// Where every sequence is in the order.
    rank: Vec<usize>,
    segments: Vec<Segment>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Segment {
    /// Its first step.
    start: usize,
    steps: usize,
    rows: usize,
    /// Its first place.
    place: usize,
}

impl Packing {
    /// # Panics
    /// If there is no sequence, or one is empty.
    pub(super) fn new(lengths: &[usize]) -> Self {
        assert!(!lengths.is_empty(), "there are no sequences, but there must be at least 1");
        assert!(!lengths.contains(&0), "a sequence is empty, but must have at least 1 entry");
        let mut order: Vec<usize> = (0..lengths.len()).collect();
        order.sort_by_key(|&sequence| std::cmp::Reverse(lengths[sequence]));
        let mut rank = vec![0; order.len()];
        for (at, &sequence) in order.iter().enumerate() {
            rank[sequence] = at;
        }
        let (mut segments, mut start, mut place) = (Vec::new(), 0, 0);
        while start < lengths[order[0]] {
            let rows = order.partition_point(|&sequence| lengths[sequence] > start);
            // As long as enough of them go on: to the end of the last one that has to.
            let enough = ((rows as f64 * GOING_ON).ceil() as usize).max(1);
            let steps = lengths[order[enough - 1]] - start;
            segments.push(Segment { start, steps, rows, place });
            (start, place) = (start + steps, place + steps * rows);
        }
        Self { lengths: lengths.to_vec(), order, rank, segments }
    }

    /// Sequence and step of every place; the step is beyond the sequence where padding is.
    pub(super) fn places(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.segments.iter().flat_map(move |segment| {
            (segment.start..segment.start + segment.steps).flat_map(move |step| {
                self.order[..segment.rows].iter().map(move |&sequence| (sequence, step))
            })
        })
    }

    /// For every place a value of its sequence and step, or where padding is, `padding`.
    pub(super) fn values<T: Clone>(&self, padding: T, of: impl Fn(usize, usize) -> T) -> Vec<T> {
        let value = |(sequence, step)| match step < self.lengths[sequence] {
            true => of(sequence, step),
            false => padding.clone(),
        };
        self.places().map(value).collect()
    }

    /// The place of a step of a sequence.
    pub(super) fn place(&self, sequence: usize, step: usize) -> i32 {
        let at = self.segments.partition_point(|segment| segment.start <= step) - 1;
        let segment = self.segments[at];
        (segment.place + (step - segment.start) * segment.rows + self.rank[sequence]) as i32
    }

    /// The last place of every sequence, in the sequences' own order.
    pub(super) fn ends(&self) -> Vec<i32> {
        (0..self.lengths.len()).map(|sequence| self.place(sequence, self.lengths[sequence] - 1)).collect()
    }

    /// The places that are no padding: sequence after sequence, step after step.
    pub(super) fn filled(&self) -> Vec<i32> {
        let steps = |sequence: usize| (0..self.lengths[sequence]).map(move |step| (sequence, step));
        (0..self.lengths.len()).flat_map(steps).map(|(sequence, step)| self.place(sequence, step)).collect()
    }

    /// For every place that of the step as far from the end of its sequence as it is from the beginning; padding stays.
    pub(super) fn reversal(&self) -> Vec<i32> {
        let places = self.places().enumerate();
        places
            .map(|(place, (sequence, step))| match self.lengths[sequence].checked_sub(step + 1) {
                Some(mirrored) => self.place(sequence, mirrored),
                None => place as i32,
            })
            .collect()
    }

    /// Runs an LSTM over the sequences.
    ///
    /// # Shapes
    /// - x: `[places, I]`
    /// - state: two times `[sequences, H]`, in the order of the rows
    /// - returns the hidden states `[places, H]`
    pub(super) fn run(&self, lstm: &Lstm, x: Tensor<2>, mut state: LstmState) -> Tensor<2> {
        let [_, input] = x.dims();
        let hidden = lstm.d_hidden();
        let outputs = self.segments.iter().map(|&Segment { steps, rows, place, .. }| {
            let x = x.clone().narrow(0, place, steps * rows).reshape([steps, rows, input]);
            let first = |tensor: &Tensor<2>| match tensor.dims()[0] == rows {
                true => tensor.clone(),
                false => tensor.clone().narrow(0, 0, rows),
            };
            let before = LstmState { hidden: first(&state.hidden), cell: first(&state.cell) };
            let (output, after) = lstm.forward(x, before, 0.0);
            state = after;
            output.reshape([steps * rows, hidden])
        });
        let mut outputs: Vec<Tensor<2>> = outputs.collect();
        match outputs.len() {
            1 => outputs.remove(0),
            _ => Tensor::cat(outputs, 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_has_a_place_of_its_own() {
        for lengths in [vec![1], vec![3, 3], vec![2, 7, 7, 1, 4], vec![40, 1, 1, 1, 1], (1..30).collect()] {
            let packing = Packing::new(&lengths);
            let places: Vec<(usize, usize)> = packing.places().collect();
            for (sequence, &length) in lengths.iter().enumerate() {
                for step in 0..length {
                    assert_eq!(
                        places[packing.place(sequence, step) as usize],
                        (sequence, step),
                        "{lengths:?}"
                    );
                }
            }
            let filled = packing.filled();
            assert_eq!(filled.len(), lengths.iter().sum::<usize>());
            let mut sorted = filled.clone();
            sorted.sort_unstable();
            sorted.dedup();
            assert_eq!(sorted.len(), filled.len());
            assert!(places.len() as f64 <= filled.len() as f64 / GOING_ON + 40.0, "{lengths:?}");
        }
    }

    #[test]
    fn padding_is_marked_and_sequences_are_reversed_in_themselves() {
        let lengths = [2, 4, 3, 3];
        let packing = Packing::new(&lengths);
        assert_eq!(packing.order, [1, 2, 3, 0]);
        let values = packing.values(-1, |sequence, step| (10 * sequence + step) as i32);
        let reversed: Vec<i32> = packing.reversal().iter().map(|&place| values[place as usize]).collect();
        for (sequence, &length) in lengths.iter().enumerate() {
            let of = |values: &[i32], step| values[packing.place(sequence, step) as usize];
            let forwards: Vec<i32> = (0..length).map(|step| of(&values, step)).collect();
            let mut backwards: Vec<i32> = (0..length).map(|step| of(&reversed, step)).collect();
            backwards.reverse();
            assert_eq!(forwards, backwards);
            assert_eq!(values[packing.ends()[sequence] as usize], (10 * sequence + length - 1) as i32);
        }
        assert_eq!(values.iter().filter(|&&value| value == -1).count(), values.len() - 12);
    }

    #[test]
    #[should_panic(expected = "a sequence is empty")]
    fn empty_sequences_are_refused() {
        Packing::new(&[2, 0]);
    }
}
