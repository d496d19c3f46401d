//! Empirical rank of a matrix of log-probabilities.

use std::borrow::Cow;

use faer::diag::Diag;
use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::svd::{ComputeSvdVectors, SvdParams, svd, svd_scratch};
use faer::{Auto, MatRef, get_global_parallelism};

use super::error::AnalysisError;
use super::rows::{self, MASKED, RowAnalysis};
use super::triangle::Triangle;

/// The singular values of a matrix, largest first, and the rank they say it has.
///
/// The rank of a matrix of log-probabilities over contexts and words is at most `d + 1` for a softmax over `h·Wᵀ`
/// (`d + 2` with a decoder bias): the softmax bottleneck (Yang et al., ICLR 2018, section 2.2 and appendix).
///
/// Columns of masked words, −∞ in every row, are left out.
#[derive(Debug, Clone)]
pub struct Spectrum {
    /// Singular values in descending order, `min(rows, columns)` of them, masked words not counted.
    pub singular_values: Vec<f64>,
    /// Number of rows: contexts.
    pub rows: usize,
    /// Number of columns: words that are not masked.
    pub columns: usize,
}

impl Spectrum {
    /// Decomposes a matrix given row by row, in f64. For one that is too tall to be held, see [`SpectrumBuilder`].
    ///
    /// Holds the matrix and a working copy: `16 · rows · columns` bytes.
    ///
    /// # Errors
    /// If the values do not make whole rows, one is NaN or +∞, a row is −∞ throughout, rows mask different words, or the
    /// decomposition does not converge.
    ///
    /// # Example
    /// ```
    /// use highrank::analysis::Spectrum;
    ///
    /// let rows = [1.0, 2.0, 2.0, 4.0, 3.0, 6.0];
    /// assert_eq!(Spectrum::of(&rows, 2)?.rank(f64::EPSILON), 1);
    /// # Ok::<(), highrank::analysis::AnalysisError>(())
    /// ```
    pub fn of(values: &[f64], columns: usize) -> Result<Self, AnalysisError> {
        let rows = rows::check(rows::MATRIX, values, columns, 0)?;
        let words = Words::of(&values[..columns]);
        words.check(values, 0)?;
        let values = words.pick(values);
        Self::decompose(MatRef::from_row_major_slice(&values, rows, words.kept), rows)
    }

    /// The spectrum of a matrix of `rows` rows that has the singular values of `matrix`.
    fn decompose(matrix: MatRef<'_, f64>, rows: usize) -> Result<Self, AnalysisError> {
        let par = get_global_parallelism();
        let none = ComputeSvdVectors::No;
        // Divide and conquer, the default for large matrices, replaces values below 8 ε σ_max by that much noise, which is
        // too near the threshold of the rank. For values alone the QR iteration costs no more.
        let mut params = <SvdParams as Auto<f64>>::auto();
        params.recursion_threshold = usize::MAX;
        // The QR decomposition that it would begin with for a tall matrix skips columns of rounding noise, at a level above
        // that threshold.
        params.qr_ratio_threshold = f64::INFINITY;
        let params = params.into();
        let scratch = svd_scratch::<f64>(matrix.nrows(), matrix.ncols(), none, none, par, params);
        let mut values = Diag::<f64>::zeros(matrix.nrows().min(matrix.ncols()));
        let mut memory = MemBuffer::new(scratch);
        svd(matrix, values.as_mut(), None, None, par, MemStack::new(&mut memory), params)
            .map_err(|_| AnalysisError::NoConvergence)?;
        let singular_values = values.column_vector().iter().copied().collect();
        Ok(Self { singular_values, rows, columns: matrix.ncols() })
    }

    /// Number of singular values above `½ √(M + N + 1) σ_max ε` for a machine epsilon.
    ///
    /// Numerical Recipes' expected roundoff error, as the paper uses it (Yang et al., section 3.2). For values computed in f64
    /// pass `f64::EPSILON`, for those of f32 `f32::EPSILON`.
    pub fn rank(&self, epsilon: f64) -> usize {
        let threshold = self.threshold(epsilon);
        self.singular_values.iter().filter(|&&value| value > threshold).count()
    }

    /// The threshold of [`rank`](Self::rank).
    pub fn threshold(&self, epsilon: f64) -> f64 {
        let largest = self.singular_values.first().copied().unwrap_or(0.0);
        0.5 * ((self.rows + self.columns + 1) as f64).sqrt() * largest * epsilon
    }
}

/// Reads a matrix block by block and decomposes it without ever holding it.
///
/// Up to `V` rows are held as they are. More are rotated into a triangle of `V` rows by Householder reflections (a
/// QR decomposition of which only `R` is kept), in f64. This keeps small singular values to an absolute error of order
/// `ε σ_max`, below the threshold of the [rank](Spectrum::rank), as a decomposition of the whole matrix would; a Gram
/// matrix would lose all below `√ε σ_max`.
///
/// Masked words are those of the first row. Other rows must mask the same ones, else they are an error.
///
/// Cost: `2 T V²` operations for `T` rows, then `8/3 V³` for the singular values. Memory: about `16 V²` bytes at the end
/// (1.8 GB were measured for 10,000 words), whatever `T`. `V` counts the words that are not masked.
///
/// # Example
/// ```
/// use burn::tensor::{Distribution, Tensor};
/// use highrank::HeadConfig;
/// use highrank::analysis::{RowAnalysis, SpectrumBuilder};
///
/// let device = Default::default();
/// let head = HeadConfig::softmax(4, 30).init(&device); // d = 4, V = 30
/// let mut spectrum = SpectrumBuilder::new(30);
/// for _ in 0..5 {
///     let hidden = Tensor::<2>::random([20, 4], Distribution::Default, &device);
///     spectrum.add(head.forward(hidden))?;
/// }
/// // Log-probabilities in f32: the rank is what rises above the roundoff of f32.
/// assert!(spectrum.finish()?.rank(f32::EPSILON as f64) <= 4 + 2);
/// # Ok::<(), highrank::analysis::AnalysisError>(())
/// ```
#[derive(Debug, Clone)]
pub struct SpectrumBuilder {
    columns: usize,
    rows: usize,
    /// Those of the first row; none before it.
    words: Option<Words>,
    held: Held,
}

#[derive(Debug, Clone)]
enum Held {
    /// All rows so far, fewer than there are columns.
    Rows(Vec<f64>),
    Triangle(Triangle),
}

impl SpectrumBuilder {
    /// For a matrix of `columns` columns: the size of the vocabulary.
    pub fn new(columns: usize) -> Self {
        Self { columns, rows: 0, words: None, held: Held::Rows(vec![]) }
    }

    /// The spectrum of the rows read.
    ///
    /// # Errors
    /// If there is no row, or the decomposition does not converge.
    pub fn finish(self) -> Result<Spectrum, AnalysisError> {
        let Self { rows, words, held, .. } = self;
        rows::at_least("a spectrum", rows, 1)?;
        let kept = words.map_or(0, |words| words.kept);
        match held {
            Held::Rows(values) => {
                Spectrum::decompose(MatRef::from_row_major_slice(&values, rows, kept), rows)
            }
            Held::Triangle(triangle) => Spectrum::decompose(triangle.finish().as_ref(), rows),
        }
    }
}

/// Which columns of a matrix are masked words: −∞ in every row.
#[derive(Debug, Clone)]
struct Words {
    masked: Vec<bool>,
    /// Number of the other columns.
    kept: usize,
}

impl Words {
    /// Those of a row.
    fn of(row: &[f64]) -> Self {
        let masked: Vec<bool> = row.iter().map(|value| *value == MASKED).collect();
        let kept = masked.iter().filter(|masked| !**masked).count();
        Self { masked, kept }
    }

    /// Checks that all rows mask these words and no others; `before` rows were read already.
    fn check(&self, values: &[f64], before: usize) -> Result<(), AnalysisError> {
        for (row, values) in (before..).zip(values.chunks_exact(self.masked.len())) {
            let mut pairs = values.iter().zip(&self.masked);
            if let Some(column) = pairs.position(|(value, masked)| (*value == MASKED) != *masked) {
                return Err(AnalysisError::MaskedWords { row, column, value: values[column] });
            }
        }
        Ok(())
    }

    /// The columns that are kept.
    fn pick<'a>(&self, values: &'a [f64]) -> Cow<'a, [f64]> {
        if self.kept == self.masked.len() {
            return Cow::Borrowed(values);
        }
        let masked = self.masked.iter().cycle();
        Cow::Owned(
            values.iter().zip(masked).filter(|(_, masked)| !**masked).map(|(value, _)| *value).collect(),
        )
    }
}

impl RowAnalysis for SpectrumBuilder {
    fn columns(&self) -> usize {
        self.columns
    }

    fn add_rows(&mut self, values: &[f64]) -> Result<(), AnalysisError> {
        let rows = rows::check(rows::MATRIX, values, self.columns, self.rows)?;
        let words = self.words.clone().unwrap_or_else(|| Words::of(&values[..self.columns]));
        words.check(values, self.rows)?;
        self.rows += rows;
        let columns = words.kept;
        let values = words.pick(values);
        self.words = Some(words);
        match &mut self.held {
            Held::Triangle(triangle) => triangle.add(&values),
            Held::Rows(held) => {
                let (now, later) = values.split_at(values.len().min(columns.pow(2) - held.len()));
                held.extend_from_slice(now);
                if held.len() == columns.pow(2) {
                    let mut triangle = Triangle::new(columns);
                    triangle.add(held);
                    triangle.add(later);
                    self.held = Held::Triangle(triangle);
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_ranks_are_found() {
        // Sum of two outer products.
        let value =
            |i: usize, j: usize| (i as f64 + 1.0) * (j as f64).cos() + (i * i) as f64 * (j as f64 + 2.0).ln();
        let matrix: Vec<f64> = (0..12 * 9).map(|at| value(at / 9, at % 9)).collect();
        let rank = |matrix: &[f64], columns| Spectrum::of(matrix, columns).unwrap().rank(f64::EPSILON);
        assert_eq!(rank(&matrix, 9), 2);
        let identity: Vec<f64> = (0..25).map(|at| if at % 6 == 0 { 1.0 } else { 0.0 }).collect();
        assert_eq!(rank(&identity, 5), 5);
        assert_eq!(rank(&[0.0; 6], 3), 0);
    }

    #[test]
    fn bad_matrices_are_refused() {
        let rows_differ = "all rows of a matrix must mask the same words";
        for (values, columns, message) in [
            (&[][..], 3, "0 values do not make rows of 3 columns"),
            (&[1.0; 4], 3, "4 values do not make rows of 3 columns"),
            (
                &[0.0, 1.0, 2.0, f64::INFINITY],
                2,
                "row 1, column 1 of the matrix is inf, but a log-probability",
            ),
            (&[0.0, 1.0, 2.0, MASKED], 2, "row 1, column 1 is -inf, but row 0 does not mask the word"),
            (&[MASKED, 1.0, 2.0, 1.0], 2, "row 1, column 0 is 2, but row 0 masks the word"),
        ] {
            let error = Spectrum::of(values, columns).unwrap_err().to_string();
            assert!(error.starts_with(message), "{error}");
            assert_eq!(message.contains("but row 0"), error.ends_with(rows_differ), "{error}");
        }
    }

    /// A matrix of rank `rank` whose singular values fall over eleven orders of magnitude, to well above the roundoff.
    fn falling(rows: usize, columns: usize, rank: usize) -> Vec<f64> {
        let part = |i: usize, k: usize| ((i * (k + 3) * 7919 + k * 104_729) % 1009) as f64 / 504.0 - 1.0;
        let element = |i: usize, j: usize| -> f64 {
            (0..rank)
                .map(|k| 10f64.powf(-11.0 * k as f64 / rank as f64) * part(i, k) * part(j + 5000, k + 1))
                .sum()
        };
        (0..rows * columns).map(|at| element(at / columns, at % columns)).collect()
    }

    fn streamed(values: &[f64], columns: usize, block: usize) -> Spectrum {
        let mut builder = SpectrumBuilder::new(columns);
        values.chunks(block * columns).for_each(|rows| builder.add_rows(rows).unwrap());
        builder.finish().unwrap()
    }

    /// Fewer rows than columns, as many, a few more, more than are eliminated at a time; one panel of columns and
    /// several; full and low rank. The streamed decomposition must agree with the direct one on every value above the
    /// threshold and on the rank.
    #[test]
    fn blocks_of_rows_have_the_spectrum_of_the_whole() {
        let sizes = [
            (3, 7, 3),
            (7, 7, 7),
            (8, 7, 7),
            (40, 7, 4),
            (95, 96, 20),
            (200, 97, 60),
            (300, 200, 30),
            (1300, 120, 50),
            (2500, 230, 44),
            (50, 1, 1),
        ];
        for (rows, columns, rank) in sizes {
            let values = falling(rows, columns, rank);
            let direct = Spectrum::of(&values, columns).unwrap();
            for block in [1, 13, rows] {
                let blocks = streamed(&values, columns, block);
                let case = format!("{rows} x {columns}, rank {rank}, blocks of {block}");
                assert_eq!(blocks.rank(f64::EPSILON), direct.rank(f64::EPSILON), "{case}");
                assert_eq!(blocks.rank(1e-7), direct.rank(1e-7), "{case}");
                assert_eq!(blocks.singular_values.len(), rows.min(columns), "{case}");
                let error = 8.0 * direct.threshold(f64::EPSILON);
                for (got, want) in blocks.singular_values.iter().zip(&direct.singular_values) {
                    assert!((got - want).abs() <= error, "{case}: {got} against {want}, allowed {error}");
                }
            }
        }
    }

    #[test]
    fn small_singular_values_survive_the_blocks() {
        // Diagonal rows from 1 to 1e-13, far below the square root of the rounding unit.
        let columns = 14;
        let mut values = vec![0.0; 3000 * columns];
        for i in 0..columns {
            values[(i * 200 + 7) * columns + i] = 10f64.powi(-(i as i32));
        }
        let spectrum = streamed(&values, columns, 64);
        for (i, value) in spectrum.singular_values.iter().enumerate() {
            let want = 10f64.powi(-(i as i32));
            assert!((value / want - 1.0).abs() < 1e-9, "{value:e} against {want:e}");
        }
    }

    #[test]
    fn a_bad_block_is_named_by_its_row_in_the_whole_and_leaves_no_trace() {
        let mut builder = SpectrumBuilder::new(2);
        assert_eq!(
            builder.clone().finish().unwrap_err().to_string(),
            "too few contexts for a spectrum: 0, expected at least 1"
        );
        builder.add_rows(&[1.0, 0.0, 0.0, 2.0, 1.0, 1.0]).unwrap();
        for (rows, message) in [
            (&[1.0, 1.0, f64::NAN, 1.0][..], "row 4, column 0 of the matrix is NaN, but a log-probability"),
            (&[1.0, 1.0, MASKED, 1.0], "row 4, column 0 is -inf, but row 0 does not mask the word"),
            (&[MASKED; 2], "row 3 of the matrix is -inf throughout"),
        ] {
            let error = builder.add_rows(rows).unwrap_err().to_string();
            assert!(error.starts_with(message), "{error}");
        }
        assert_eq!(builder.finish().unwrap().rows, 3);
    }
}
