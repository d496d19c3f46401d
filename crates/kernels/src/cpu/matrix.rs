//! Matrices on slices, as products read them.

use core::ops::Range;

use burn::tensor::bf16;
use bytemuck::Pod;
use faer::{MatMut, MatRef};

use super::Real;

/// A matrix on a slice, or its transpose, or a block of either.
#[derive(Debug, Clone, Copy)]
pub struct Matrix<'a, T> {
    /// From the block's first element to the end of the slice: line `i` of the memory begins at `i · stride`.
    values: &'a [T],
    rows: usize,
    columns: usize,
    stride: usize,
    /// The lines of the memory are columns.
    transposed: bool,
}

impl<'a, T: Copy> Matrix<'a, T> {
    /// `rows` rows of `columns` values, one after the other.
    ///
    /// # Panics
    /// If the slice has another number of values.
    pub fn new(values: &'a [T], rows: usize, columns: usize) -> Self {
        assert_eq!(values.len(), rows * columns, "matrix: the values do not make {rows} rows of {columns}");
        Self { values, rows, columns, stride: columns, transposed: false }
    }

    /// The number of rows.
    pub fn rows(self) -> usize {
        self.rows
    }

    /// The number of columns.
    pub fn columns(self) -> usize {
        self.columns
    }

    /// The transpose, on the same values.
    pub fn t(self) -> Self {
        Self { rows: self.columns, columns: self.rows, transposed: !self.transposed, ..self }
    }

    /// Whether columns, not rows, are contiguous in memory.
    pub(super) fn is_transposed(self) -> bool {
        self.transposed
    }

    /// Values from one line of the memory to the next.
    pub(super) fn stride(self) -> usize {
        self.stride
    }

    /// Number and length of the lines of the memory.
    pub(super) fn lines(self) -> (usize, usize) {
        if self.transposed { (self.columns, self.rows) } else { (self.rows, self.columns) }
    }

    /// A line of the memory: a row, or a column if [transposed](Self::is_transposed).
    ///
    /// # Panics
    /// If there is no such line.
    pub(super) fn line(self, index: usize) -> &'a [T] {
        let (lines, length) = self.lines();
        assert!(index < lines, "matrix: line {index} of {lines}");
        &self.values[index * self.stride..][..length]
    }

    /// Some of the rows and columns.
    ///
    /// # Panics
    /// If there are none such.
    pub(super) fn block(self, rows: Range<usize>, columns: Range<usize>) -> Self {
        assert!(rows.start <= rows.end && rows.end <= self.rows, "matrix: rows {rows:?} of {}", self.rows);
        assert!(
            columns.start <= columns.end && columns.end <= self.columns,
            "matrix: columns {columns:?} of {}",
            self.columns
        );
        let (lines, places) = if self.transposed { (&columns, &rows) } else { (&rows, &columns) };
        // An empty block may begin behind the last value.
        let first = (lines.start * self.stride + places.start).min(self.values.len());
        Self { values: &self.values[first..], rows: rows.len(), columns: columns.len(), ..self }
    }

    /// The same values as numbers of another type of the same size.
    ///
    /// # Panics
    /// If the sizes differ.
    pub(super) fn cast<U: Pod>(self) -> Matrix<'a, U>
    where
        T: Pod,
    {
        let Self { values, rows, columns, stride, transposed } = self;
        Matrix { values: bytemuck::cast_slice(values), rows, columns, stride, transposed }
    }
}

impl<'a, T: Real> Matrix<'a, T> {
    pub(super) fn view(self) -> MatRef<'a, T> {
        let (lines, length) = self.lines();
        let view = MatRef::from_row_major_slice_with_stride(self.values, lines, length, self.stride);
        if self.transposed { view.transpose() } else { view }
    }
}

/// A factor of a product: numbers of the type of its sums, or bfloat16.
#[derive(Debug, Clone, Copy)]
pub enum Factor<'a, T> {
    /// Of the type of sums.
    Wide(Matrix<'a, T>),
    /// bfloat16: exact in every type of sums and at every precision.
    Short(Matrix<'a, bf16>),
}

impl<'a, T> From<Matrix<'a, T>> for Factor<'a, T> {
    fn from(matrix: Matrix<'a, T>) -> Self {
        Self::Wide(matrix)
    }
}

impl<'a, T: Real> From<Matrix<'a, bf16>> for Factor<'a, T> {
    fn from(matrix: Matrix<'a, bf16>) -> Self {
        Self::Short(matrix)
    }
}

impl<'a, T: Real> Factor<'a, T> {
    /// The number of rows.
    pub fn rows(self) -> usize {
        match self {
            Self::Wide(matrix) => matrix.rows(),
            Self::Short(matrix) => matrix.rows(),
        }
    }

    /// The number of columns.
    pub fn columns(self) -> usize {
        match self {
            Self::Wide(matrix) => matrix.columns(),
            Self::Short(matrix) => matrix.columns(),
        }
    }

    /// The transpose, on the same values.
    pub fn t(self) -> Self {
        match self {
            Self::Wide(matrix) => Self::Wide(matrix.t()),
            Self::Short(matrix) => Self::Short(matrix.t()),
        }
    }

    /// As [`Matrix::cast`]; bfloat16 stays.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn cast<U: Real>(self) -> Factor<'a, U> {
        match self {
            Self::Wide(matrix) => Factor::Wide(matrix.cast()),
            Self::Short(matrix) => Factor::Short(matrix),
        }
    }

    pub(super) fn is_transposed(self) -> bool {
        match self {
            Self::Wide(matrix) => matrix.is_transposed(),
            Self::Short(matrix) => matrix.is_transposed(),
        }
    }

    /// Some of the rows and columns; panics if there are none such.
    pub fn block(self, rows: Range<usize>, columns: Range<usize>) -> Self {
        match self {
            Self::Wide(matrix) => Self::Wide(matrix.block(rows, columns)),
            Self::Short(matrix) => Self::Short(matrix.block(rows, columns)),
        }
    }

    /// Writes what `of` makes of each number of a row, in the type of sums.
    ///
    /// # Panics
    /// If there is no such row, or the factor is a transpose.
    pub fn write_row(self, row: usize, out: &mut [T], of: impl Fn(T) -> T) {
        assert!(!self.is_transposed(), "matrix: a row of a transpose is not contiguous");
        match self {
            Self::Wide(matrix) => out.iter_mut().zip(matrix.line(row)).for_each(|(out, x)| *out = of(*x)),
            Self::Short(matrix) => {
                out.iter_mut().zip(matrix.line(row)).for_each(|(out, x)| *out = of(T::of(x.to_f64())));
            }
        }
    }
}

/// Cuts the columns of a result, of which the first has number `first`, into a part for each of `threads`: whole panels of
/// `width` columns. Calls `work` with each part and its first column, on the threads of the current pool.
pub(super) fn by_columns<T: Real>(
    out: MatMut<'_, T>,
    first: usize,
    width: usize,
    threads: usize,
    work: &(impl Fn(MatMut<'_, T>, usize) + Sync),
) {
    let panels = out.ncols().div_ceil(width);
    let threads = threads.min(panels);
    if threads <= 1 {
        return work(out, first);
    }
    let middle = panels * (threads / 2) / threads * width;
    let (left, right) = out.split_at_col_mut(middle);
    rayon::join(
        || by_columns(left, first, width, threads / 2, work),
        || by_columns(right, first + middle, width, threads - threads / 2, work),
    );
}

/// Fetches numbers that are read next into the cache: lines of a block are too short for the processor to see a stream. The
/// numbers need not exist.
#[inline(always)]
pub(super) fn fetch_ahead<T>(numbers: *const T, count: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    for line in 0..(count * size_of::<T>()).div_ceil(64) {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a hint, which every processor of this architecture has, and which reads nothing.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(numbers.cast::<i8>().wrapping_add(64 * line)) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = (numbers, count);
}

/// What tests of products share.
#[cfg(test)]
pub(super) mod testing {
    use core::fmt::Arguments;

    use super::*;
    use crate::Precision;

    /// A matrix of numbers that bfloat16 cannot hold, and of those rounded to it.
    pub(in crate::cpu) struct Values<T> {
        pub(in crate::cpu) wide: Vec<T>,
        short: Vec<bf16>,
        rows: usize,
        columns: usize,
    }

    /// Whether a factor is bfloat16, and whether it is a transpose.
    pub(in crate::cpu) const KINDS: [(bool, bool); 4] =
        [(false, false), (false, true), (true, false), (true, true)];

    impl<T: Real> Values<T> {
        pub(in crate::cpu) fn new(rows: usize, columns: usize, seed: usize) -> Self {
            let number = |i: usize| ((i * 37 + seed * 11) % 1009) as f64 / 504.0 - 1.0;
            let wide: Vec<T> = (0..rows * columns).map(|i| T::of(number(i))).collect();
            let short = wide.iter().map(|x| bf16::from_f64(x.wide())).collect();
            Self { wide, short, rows, columns }
        }

        /// The matrix as a factor of a [kind](KINDS).
        pub(in crate::cpu) fn factor(&self, (is_short, transposed): (bool, bool)) -> Factor<'_, T> {
            let Self { wide, short, rows, columns } = self;
            let (lines, length) = if transposed { (*columns, *rows) } else { (*rows, *columns) };
            let factor: Factor<'_, T> = match is_short {
                true => Matrix::new(short, lines, length).into(),
                false => Matrix::new(wide, lines, length).into(),
            };
            if transposed { factor.t() } else { factor }
        }
    }

    /// Small whole numbers, whose sums of products are exact.
    pub(in crate::cpu) fn whole<T: Real>(count: usize, by: usize) -> Vec<T> {
        (0..count).map(|i| T::of((i * by % 11) as f64 - 5.0)).collect()
    }

    /// An element of a matrix.
    pub(in crate::cpu) fn at<T: Copy>(matrix: Matrix<'_, T>, row: usize, column: usize) -> T {
        if matrix.is_transposed() { matrix.line(column)[row] } else { matrix.line(row)[column] }
    }

    /// The sums in f64 that a product of rounded factors adds to what is `before` at each place, and those of the magnitudes.
    pub(in crate::cpu) fn sums<T: Real>(
        [a, b]: [Factor<'_, T>; 2],
        precision: Precision,
        before: impl Fn(usize) -> f64,
    ) -> Vec<(f64, f64)> {
        let rounded = |factor: Factor<'_, T>, row: usize, column: usize| match (factor, precision.digits()) {
            (Factor::Short(matrix), _) => at(matrix, row, column).to_f64(),
            (Factor::Wide(matrix), None) => at(matrix, row, column).wide(),
            (Factor::Wide(matrix), Some(digits)) => at(matrix, row, column).nearest(digits).wide(),
        };
        let (depth, columns) = (a.columns(), b.columns());
        let sum = |i: usize| {
            let products = (0..depth).map(|k| rounded(a, i / columns, k) * rounded(b, k, i % columns));
            products.fold((before(i), before(i).abs()), |(sum, size), x| (sum + x, size + x.abs()))
        };
        (0..a.rows() * columns).map(sum).collect()
    }

    /// Checks numbers against such [`sums`], to an error relative to the magnitudes; 0 where all sums are exact.
    #[track_caller]
    pub(in crate::cpu) fn assert_sums<T: Real>(
        got: &[T],
        want: &[(f64, f64)],
        error: f64,
        what: Arguments<'_>,
    ) {
        assert_eq!(got.len(), want.len(), "{what}");
        for (i, (got, (want, size))) in got.iter().zip(want).enumerate() {
            assert!((got.wide() - want).abs() <= error * size, "{what}, place {i}: {got:?} for {want}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_and_transposes_view_the_same_values() {
        let values: Vec<f64> = (0..35).map(f64::from).collect();
        let matrix = Matrix::new(&values, 5, 7);
        for (rows, columns) in
            [(0..5, 0..7), (1..4, 2..7), (4..5, 6..7), (2..2, 0..7), (5..5, 7..7), (0..5, 7..7)]
        {
            let block = matrix.block(rows.clone(), columns.clone());
            let turned = matrix.t().block(columns.clone(), rows.clone());
            assert_eq!((block.rows(), block.columns()), (rows.len(), columns.len()));
            assert_eq!((turned.rows(), turned.columns()), (columns.len(), rows.len()));
            for (i, row) in rows.clone().enumerate() {
                for (j, column) in columns.clone().enumerate() {
                    let want = (row * 7 + column) as f64;
                    assert_eq!((block.line(i)[j], block.view()[(i, j)]), (want, want));
                    assert_eq!((turned.line(i)[j], turned.view()[(j, i)]), (want, want));
                }
            }
        }
    }

    #[test]
    #[should_panic(expected = "columns 0..8 of 7")]
    fn a_block_lies_inside() {
        let _ = Matrix::new(&[0.0; 35], 5, 7).block(0..5, 0..8);
    }
}
