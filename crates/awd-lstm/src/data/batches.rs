//! A token stream cut into parallel columns.

use burn::tensor::{Device, Int, Tensor, TensorData};

use runs::data::{TokenFile, Tokens};
use runs::error::{Error, Result, check};

/// A token stream cut into `B` contiguous columns of equal length; the remainder is dropped.
///
/// Column `b` holds the tokens `b·rows .. (b+1)·rows` of the stream. Walking down the rows with a carried
/// hidden state reads `B` places of the text at once.
#[derive(Debug, Clone)]
pub struct Batches {
    ids: Ids,
    rows: usize,
    batch: usize,
}

/// Where the tokens are.
#[derive(Debug, Clone)]
enum Ids {
    /// In memory, row-major `[rows, batch]`, so that a window of rows is one slice.
    Memory(Vec<i32>),
    /// In a file, in the order of the text: column `b` starts at token `b·rows`.
    Disk(TokenFile),
}

/// Some consecutive rows and the words that follow each of their tokens.
#[derive(Debug, Clone)]
pub struct Window {
    /// Inputs `[T, B]`.
    pub tokens: Tensor<2, Int>,
    /// The next word of each input `[T, B]`.
    pub targets: Tensor<2, Int>,
}

impl Window {
    /// `count` columns of the window from `start` on.
    ///
    /// # Panics
    /// If it has fewer.
    pub fn columns(&self, start: usize, count: usize) -> Self {
        Self {
            tokens: self.tokens.clone().narrow(1, start, count),
            targets: self.targets.clone().narrow(1, start, count),
        }
    }
}

impl Batches {
    /// Cuts `ids` into `batch` columns of at least `min_rows` rows. `what` names the stream in an error.
    ///
    /// Two rows make one prediction a column. Training needs three, since a single last row is no step of its own.
    ///
    /// # Errors
    /// [`Error::InvalidSetting`] if `batch` is 0, [`Error::CorpusTooShort`] if the stream is too short.
    pub fn new(what: &'static str, ids: &[u32], batch: usize, min_rows: usize) -> Result<Self> {
        let rows = rows_of(what, ids.len(), batch, min_rows)?;
        let mut transposed = Vec::with_capacity(rows * batch);
        for row in 0..rows {
            transposed.extend((0..batch).map(|column| ids[column * rows + row] as i32));
        }
        Ok(Self { ids: Ids::Memory(transposed), rows, batch })
    }

    /// As [`new`](Self::new), of a text that may be in a file. It then stays there: a window is read when it is asked for.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn of(what: &'static str, tokens: &Tokens, batch: usize, min_rows: usize) -> Result<Self> {
        match tokens {
            Tokens::Memory(ids) => Self::new(what, ids, batch, min_rows),
            Tokens::Disk(file) => {
                let rows = rows_of(what, file.len(), batch, min_rows)?;
                Ok(Self { ids: Ids::Disk(file.clone()), rows, batch })
            }
        }
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

    /// The rows `start .. start + length` as inputs, and the rows one further on as targets.
    ///
    /// A window that would pass the end is shortened to the rows that have targets.
    ///
    /// # Panics
    /// If no row from `start` on has a target, or `length` is 0; if a file of tokens cannot be read any more.
    pub fn window(&self, start: usize, length: usize, device: &Device) -> Window {
        let length = length.min((self.rows - 1).saturating_sub(start));
        assert!(length > 0, "rows {start}.. of {} have no targets", self.rows);
        let read;
        let ids = match &self.ids {
            Ids::Memory(ids) => &ids[start * self.batch..(start + length + 1) * self.batch],
            Ids::Disk(file) => {
                read = self.read(file, start, length + 1);
                &read
            }
        };
        let rows =
            |ids: &[i32]| Tensor::from_data(TensorData::new(ids.to_vec(), [length, self.batch]), device);
        Window { tokens: rows(&ids[..length * self.batch]), targets: rows(&ids[self.batch..]) }
    }

    /// The rows `start .. start + length` of a file, row-major.
    fn read(&self, file: &TokenFile, start: usize, length: usize) -> Vec<i32> {
        let mut rows = vec![0; length * self.batch];
        let mut column = vec![0; length];
        for b in 0..self.batch {
            file.read(b * self.rows + start, &mut column);
            rows.iter_mut().skip(b).step_by(self.batch).zip(&column).for_each(|(row, &id)| *row = id as i32);
        }
        rows
    }

    /// The windows of `length` rows that cover every prediction once, in order, as for evaluation. The last may be shorter.
    pub fn windows<'a>(&'a self, length: usize, device: &'a Device) -> impl Iterator<Item = Window> + 'a {
        (0..self.rows.saturating_sub(1))
            .step_by(length.max(1))
            .map(move |start| self.window(start, length.max(1), device))
    }
}

/// Length of the columns of a stream of `tokens` tokens.
pub(crate) fn rows_of(what: &'static str, tokens: usize, batch: usize, min_rows: usize) -> Result<usize> {
    check(batch > 0, "batch", batch, "at least 1")?;
    let rows = tokens / batch;
    if rows < min_rows {
        return Err(Error::CorpusTooShort { what, tokens, batch, needed: min_rows.saturating_mul(batch) });
    }
    Ok(rows)
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    fn values(tensor: Tensor<2, Int>) -> Vec<i32> {
        tensor.into_data().iter().collect()
    }

    #[test]
    fn columns_are_contiguous_and_the_remainder_is_dropped() {
        let ids: Vec<u32> = (0..14).collect();
        let batches = Batches::new("text", &ids, 3, 2).unwrap();
        assert_eq!((batches.rows(), batches.batch(), batches.predictions()), (4, 3, 9));
        let window = batches.window(0, 3, &Device::flex());
        assert_eq!(window.tokens.dims(), [3, 3]);
        assert_eq!(values(window.tokens), [0, 4, 8, 1, 5, 9, 2, 6, 10]);
        assert_eq!(values(window.targets), [1, 5, 9, 2, 6, 10, 3, 7, 11]);
    }

    #[test]
    fn a_window_stops_where_targets_do() {
        let ids: Vec<u32> = (0..10).collect();
        let batches = Batches::new("text", &ids, 2, 2).unwrap();
        let window = batches.window(3, 35, &Device::flex());
        assert_eq!(window.tokens.dims(), [1, 2]);
        assert_eq!(values(window.targets), [4, 9]);
    }

    #[test]
    fn windows_cover_every_prediction_once() {
        let ids: Vec<u32> = (0..23).collect();
        for length in [1, 2, 5, 10, 11, 50] {
            let batches = Batches::new("text", &ids, 2, 2).unwrap();
            let device = Device::flex();
            let windows: Vec<Window> = batches.windows(length, &device).collect();
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
        let many = Batches::new("text", &[1, 2], usize::MAX / 2 + 1, 2).unwrap_err().to_string();
        assert!(many.ends_with(&format!("at least {}", usize::MAX)), "{many}");
        assert!(Batches::new("text", &[1, 2], 0, 2).is_err());
        assert!(Batches::new("text", &[1, 2, 3, 4], 2, 2).is_ok());
    }

    #[test]
    fn a_file_has_the_windows_of_memory() {
        let device = Device::flex();
        let mut rng = Pcg64Mcg::seed_from_u64(3);
        for _ in 0..200 {
            let (batch, rows) = (rng.random_range(1..9), rng.random_range(2..40));
            let length = batch * rows + rng.random_range(0..batch);
            let ids: Vec<u32> = (0..length).map(|_| rng.random_range(0..1000)).collect();
            let memory = Batches::new("text", &ids, batch, 2).unwrap();
            let disk = Batches::of("text", &Tokens::on_disk(&ids).unwrap(), batch, 2).unwrap();
            assert!(matches!(disk.ids, Ids::Disk(_)));
            assert_eq!((memory.rows(), memory.predictions()), (disk.rows(), disk.predictions()));
            let (start, length) = (rng.random_range(0..rows - 1), rng.random_range(1..50));
            let one = memory.window(start, length, &device);
            let other = disk.window(start, length, &device);
            assert_eq!(one.tokens.dims(), other.tokens.dims());
            assert_eq!(values(one.tokens), values(other.tokens));
            assert_eq!(values(one.targets), values(other.targets));
        }
        assert!(Batches::of("text", &Tokens::on_disk(&[1, 2, 3]).unwrap(), 2, 2).is_err());
    }
}
