//! Small matrices in f64, and what the theorems need of them.

use highrank::analysis::Spectrum;
use rand_distr::{Distribution, StandardNormal};
use rand_pcg::Pcg64Mcg;

use program::failure::Failure;

/// A matrix, row after row.
#[derive(Debug, Clone, PartialEq)]
pub struct Matrix {
    /// Number of rows.
    pub rows: usize,
    /// Number of columns.
    pub columns: usize,
    /// Its elements.
    pub values: Vec<f64>,
}

impl Matrix {
    /// A matrix of given elements.
    ///
    /// # Panics
    /// If they are not `rows · columns`.
    pub fn new(rows: usize, columns: usize, values: Vec<f64>) -> Self {
        assert_eq!(values.len(), rows * columns, "a matrix of {rows} by {columns}");
        Self { rows, columns, values }
    }

    /// Independent standard normal elements.
    pub fn normal(rows: usize, columns: usize, rng: &mut Pcg64Mcg) -> Self {
        let values = (0..rows * columns).map(|_| StandardNormal.sample(rng)).collect();
        Self::new(rows, columns, values)
    }

    /// A random matrix of this rank, with probability 1, whose elements have variance 1.
    pub fn of_rank(rows: usize, columns: usize, rank: usize, rng: &mut Pcg64Mcg) -> Self {
        let (left, right) = (Self::normal(rows, rank, rng), Self::normal(columns, rank, rng));
        let scale = 1.0 / (rank as f64).sqrt();
        left.times_transposed(&right).map(|x| x * scale)
    }

    /// A row.
    pub fn row(&self, index: usize) -> &[f64] {
        &self.values[index * self.columns..(index + 1) * self.columns]
    }

    /// A row, to be written.
    pub fn row_mut(&mut self, index: usize) -> &mut [f64] {
        &mut self.values[index * self.columns..(index + 1) * self.columns]
    }

    /// A function of every element.
    pub fn map(&self, function: impl Fn(f64) -> f64) -> Self {
        Self::new(self.rows, self.columns, self.values.iter().map(|x| function(*x)).collect())
    }

    /// `self · otherᵀ`
    pub fn times_transposed(&self, other: &Self) -> Self {
        assert_eq!(self.columns, other.columns, "the inner sizes of a product");
        let rows = (0..self.rows).flat_map(|i| (0..other.rows).map(move |j| (i, j)));
        let values = rows.map(|(i, j)| dot(self.row(i), other.row(j))).collect();
        Self::new(self.rows, other.rows, values)
    }

    /// The logarithm of the softmax of every row.
    pub fn log_softmax(&self) -> Self {
        self.less(log_sum_exp)
    }

    /// From every row a function of it taken away.
    pub fn less(&self, function: impl Fn(&[f64]) -> f64) -> Self {
        let mut result = self.clone();
        for row in 0..self.rows {
            let value = function(self.row(row));
            result.row_mut(row).iter_mut().for_each(|x| *x -= value);
        }
        result
    }

    /// `selfᵀ · v`: the sum of the rows, each times its factor.
    pub fn transposed_times(&self, v: &[f64]) -> Vec<f64> {
        let mut sum = vec![0.0; self.columns];
        for (row, factor) in v.iter().enumerate() {
            sum.iter_mut().zip(self.row(row)).for_each(|(sum, x)| *sum += factor * x);
        }
        sum
    }

    /// The squared Frobenius norm of `self − other`.
    pub fn squared_distance(&self, other: &Self) -> f64 {
        self.values.iter().zip(&other.values).map(|(a, b)| (a - b).powi(2)).sum()
    }

    /// The singular values.
    ///
    /// # Errors
    /// If an element is not finite, or the decomposition does not converge.
    pub fn spectrum(&self) -> Result<Spectrum, Failure> {
        Ok(Spectrum::of(&self.values, self.columns)?)
    }

    /// The rank: the number of singular values above the roundoff of f64.
    ///
    /// # Errors
    /// As [`spectrum`](Self::spectrum).
    pub fn rank(&self) -> Result<usize, Failure> {
        Ok(self.spectrum()?.rank(f64::EPSILON))
    }
}

/// The scalar product.
pub fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// `log Σ exp xᵢ`
pub fn log_sum_exp(values: &[f64]) -> f64 {
    let max = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    max + values.iter().map(|x| (x - max).exp()).sum::<f64>().ln()
}

/// The solution `x` of `A x = b` for a symmetric positive definite `A`, by Cholesky's decomposition.
///
/// # Errors
/// If `A` is not positive definite, to rounding.
pub fn solve(a: &Matrix, b: &[f64]) -> Result<Vec<f64>, Failure> {
    let size = a.rows;
    let mut lower = Matrix::new(size, size, vec![0.0; size * size]);
    for i in 0..size {
        for j in 0..=i {
            let rest = a.row(i)[j] - dot(&lower.row(i)[..j], &lower.row(j)[..j]);
            if i == j && (rest <= 0.0 || rest.is_nan()) {
                return Err(
                    format!("a matrix of {size} rows is not positive definite: row {i} has {rest}").into()
                );
            }
            lower.row_mut(i)[j] = if i == j { rest.sqrt() } else { rest / lower.row(j)[j] };
        }
    }
    let mut x = b.to_vec();
    for i in 0..size {
        x[i] = (x[i] - dot(&lower.row(i)[..i], &x[..i])) / lower.row(i)[i];
    }
    for i in (0..size).rev() {
        let below: f64 = (i + 1..size).map(|k| lower.row(k)[i] * x[k]).sum();
        x[i] = (x[i] - below) / lower.row(i)[i];
    }
    Ok(x)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn products_and_ranks() {
        let a = Matrix::new(2, 3, vec![1.0, 2.0, 3.0, 0.0, 1.0, -1.0]);
        let b = Matrix::new(1, 3, vec![2.0, 0.0, 1.0]);
        assert_eq!(a.times_transposed(&b).values, [5.0, -1.0]);
        assert_eq!(a.transposed_times(&[2.0, 1.0]), [2.0, 5.0, 5.0]);
        let mut rng = Pcg64Mcg::seed_from_u64(1);
        for rank in 1..6 {
            assert_eq!(Matrix::of_rank(9, 7, rank, &mut rng).rank().unwrap(), rank);
        }
        let rows = a.log_softmax();
        for row in 0..2 {
            assert!((rows.row(row).iter().map(|x| x.exp()).sum::<f64>() - 1.0).abs() < 1e-14);
        }
        assert!((rows.row(0)[1] - rows.row(0)[0] - 1.0).abs() < 1e-14);
        assert_eq!(a.squared_distance(&a.map(|x| x + 2.0)), 24.0);
    }

    #[test]
    fn equations_are_solved_and_others_refused() {
        let root = Matrix::normal(5, 9, &mut Pcg64Mcg::seed_from_u64(2));
        let a = root.times_transposed(&root);
        let x = [1.0, -2.0, 0.5, 3.0, 0.0];
        let b: Vec<f64> = (0..5).map(|i| dot(a.row(i), &x)).collect();
        for (got, want) in solve(&a, &b).unwrap().iter().zip(x) {
            assert!((got - want).abs() < 1e-10, "{got} against {want}");
        }
        let bad = Matrix::new(2, 2, vec![1.0, 2.0, 2.0, 1.0]);
        assert!(solve(&bad, &[1.0, 1.0]).unwrap_err().to_string().contains("not positive definite"));
    }
}
