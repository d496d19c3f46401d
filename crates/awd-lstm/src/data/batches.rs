//! A token stream cut into parallel columns.

use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor, TensorData};

use crate::error::{Error, Result};

/// A token stream cut into `B` contiguous columns of equal length; the remainder is dropped.
///
/// Column `b` holds the tokens `b·rows .. (b+1)·rows` of the stream. Walking down the rows with a carried
/// hidden state reads `B` places of the text at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batches {
    /// Row-major `[rows, batch]`, so that a window of rows is one slice.
    ids: Vec<i32>,
    rows: usize,
    batch: usize,
}

/// Some consecutive rows and the words that follow each of their tokens.
#[derive(Debug, Clone)]
pub struct Window<B: Backend> {
    /// Inputs `[T, B]`.
    pub tokens: Tensor<B, 2, Int>,
    /// The next word of each input `[T, B]`.
    pub targets: Tensor<B, 2, Int>,
}

impl Batches {
    /// Cuts `ids` into `batch` columns of at least `min_rows` rows. `what` names the stream in an error.
    ///
    /// Two rows make one prediction a column; training wants three, since its last row is never a step of
    /// its own.
    ///
    /// # Errors
    /// [`Error::InvalidSetting`] if `batch` is 0, [`Error::CorpusTooShort`] if the stream is too short.
    pub fn new(what: &'static str, ids: &[u32], batch: usize, min_rows: usize) -> Result<Self> {
        if batch == 0 {
            return Err(Error::invalid("batch", batch, "at least 1"));
        }
        let rows = ids.len() / batch;
        if rows < min_rows {
            return Err(Error::CorpusTooShort { what, tokens: ids.len(), batch, needed: min_rows * batch });
        }
        let mut transposed = Vec::with_capacity(rows * batch);
        for row in 0..rows {
            transposed.extend((0..batch).map(|column| ids[column * rows + row] as i32));
        }
        Ok(Self { ids: transposed, rows, batch })
    }

    /// Length of a column in tokens.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of columns.
    pub fn batch(&self) -> usize {
        self.batch
    }

    /// Number of predicted tokens: `(rows − 1) · batch`.
    pub fn predictions(&self) -> usize {
        self.rows.saturating_sub(1) * self.batch
    }

    /// The rows `start .. start + length` as inputs, with the rows one further on as targets.
    ///
    /// A window that would run over the end is shortened to what has targets.
    ///
    /// # Panics
    /// If no row from `start` on has a target, or `length` is 0.
    pub fn window<B: Backend>(&self, start: usize, length: usize, device: &B::Device) -> Window<B> {
        let length = length.min((self.rows - 1).saturating_sub(start));
        assert!(length > 0, "rows {start}.. of {} have no targets", self.rows);
        let rows = |first: usize| {
            let ids = self.ids[first * self.batch..(first + length) * self.batch].to_vec();
            Tensor::from_data(TensorData::new(ids, [length, self.batch]), device)
        };
        Window { tokens: rows(start), targets: rows(start + 1) }
    }

    /// The windows of `length` rows that cover every prediction once, in order, as for evaluation; the last
    /// one may be shorter.
    pub fn windows<'a, B: Backend>(
        &'a self,
        length: usize,
        device: &'a B::Device,
    ) -> impl Iterator<Item = Window<B>> + 'a {
        (0..self.rows.saturating_sub(1))
            .step_by(length.max(1))
            .map(move |start| self.window(start, length.max(1), device))
    }
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use super::*;
    use burn::backend::Flex;

    fn values(tensor: Tensor<Flex, 2, Int>) -> Vec<i32> {
        tensor.into_data().to_vec().unwrap()
    }

    #[test]
    fn columns_are_contiguous_and_the_remainder_is_dropped() {
        let ids: Vec<u32> = (0..14).collect();
        let batches = Batches::new("text", &ids, 3, 2).unwrap();
        assert_eq!((batches.rows(), batches.batch(), batches.predictions()), (4, 3, 9));
        let window = batches.window::<Flex>(0, 3, &Default::default());
        assert_eq!(window.tokens.dims(), [3, 3]);
        assert_eq!(values(window.tokens), [0, 4, 8, 1, 5, 9, 2, 6, 10]);
        assert_eq!(values(window.targets), [1, 5, 9, 2, 6, 10, 3, 7, 11]);
    }

    #[test]
    fn a_window_stops_where_targets_do() {
        let ids: Vec<u32> = (0..10).collect();
        let batches = Batches::new("text", &ids, 2, 2).unwrap();
        let window = batches.window::<Flex>(3, 35, &Default::default());
        assert_eq!(window.tokens.dims(), [1, 2]);
        assert_eq!(values(window.targets), [4, 9]);
    }

    #[test]
    fn windows_cover_every_prediction_once() {
        let ids: Vec<u32> = (0..23).collect();
        for length in [1, 2, 5, 10, 11, 50] {
            let batches = Batches::new("text", &ids, 2, 2).unwrap();
            let device = Default::default();
            let windows: Vec<Window<Flex>> = batches.windows(length, &device).collect();
            let targets: Vec<i32> = windows.into_iter().flat_map(|window| values(window.targets)).collect();
            assert_eq!(targets.len(), batches.predictions(), "length {length}");
            let expected: Vec<i32> = (1..11).flat_map(|row| [row, row + 11]).collect();
            assert_eq!(targets, expected, "length {length}");
        }
    }

    #[test]
    fn too_short_a_stream_is_refused() {
        let error = Batches::new("the training text", &[1, 2, 3, 4, 5], 2, 3).unwrap_err().to_string();
        let expected = "the training text is shorter than one batch: 5 tokens, but 2 columns need at least 6";
        assert_eq!(error, expected);
        assert!(Batches::new("text", &[1, 2], 0, 2).is_err());
        assert!(Batches::new("text", &[1, 2, 3, 4], 2, 2).is_ok());
    }
}
