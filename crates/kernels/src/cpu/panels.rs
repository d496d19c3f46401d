//! A right-hand side that many small products share, such as a recurrent weight.

#[cfg(target_arch = "x86_64")]
use burn::tensor::DType;
use faer::linalg::matmul::matmul;
use faer::prelude::ReborrowMut;
use faer::{Accum, MatMut, MatRef, Par};
use rayon::prelude::*;

#[cfg(target_arch = "x86_64")]
use super::bf16::{Amx, Avx512, product::Packed, product::Unit};
use super::blocked::Room;
use super::matrix::{Factor, by_columns};
use super::{Buffer, Real};
use crate::Precision;

/// Columns of a panel: a multiple of the products' own block for every vector width.
const WIDTH: usize = 96;

/// A matrix cut into panels of columns, each stored row by row in one run of memory.
///
/// A product with few rows runs at the speed at which it reads its right-hand side. Cut from a wide row-major matrix, a
/// block of columns is a few hundred bytes on every other page; as a panel it is read from front to back.
#[derive(Debug)]
pub struct Panels<T> {
    kept: Kept<T>,
    rows: usize,
    columns: usize,
    precision: Precision,
}

/// What the panels are made of.
#[derive(Debug)]
enum Kept<T> {
    /// Rounded numbers.
    Numbers(Buffer<T>),
    /// Pairs of bfloat16, half as much memory, for a processor that multiplies such, to vectors or tiles of sums.
    #[cfg(target_arch = "x86_64")]
    Vectors(Packed<Avx512>),
    #[cfg(target_arch = "x86_64")]
    Tiles(Packed<Amx>),
}

impl<T: Real> Panels<T> {
    /// Rounds a matrix, or its transpose, to `precision` and cuts it into panels; on all threads of the current pool.
    pub fn new<'a>(matrix: impl Into<Factor<'a, T>>, precision: Precision) -> Self {
        let matrix = matrix.into();
        let (rows, columns) = (matrix.rows(), matrix.columns());
        #[cfg(target_arch = "x86_64")]
        if T::dtype() == DType::F32
            && precision == Precision::Bf16
            && let Some(unit) = Unit::new()
        {
            let kept = match unit {
                Unit::Vectors(unit) => Kept::Vectors(Packed::new(unit, matrix.cast())),
                Unit::Tiles(unit) => Kept::Tiles(Packed::new(unit, matrix.cast())),
            };
            return Self { kept, rows, columns, precision };
        }
        Self { kept: Kept::Numbers(numbers(matrix, precision)), rows, columns, precision }
    }

    /// Adds `a · b` to `out`, row-major, where b is the matrix that was cut and a is rounded as it was; on all threads of
    /// the current pool.
    ///
    /// # Panics
    /// If the sizes do not fit.
    pub fn multiply_add<'a>(&self, out: &mut [T], a: impl Into<Factor<'a, T>>) {
        let a = a.into();
        assert_eq!(a.columns(), self.rows, "panels: columns of the first matrix, rows of the second");
        assert_eq!(out.len(), a.rows() * self.columns, "panels: the result has another size");
        match &self.kept {
            Kept::Numbers(values) => {
                let mut room = Room::new(a, self.precision.digits(), a.rows() * a.columns());
                let out = MatMut::from_row_major_slice_mut(out, a.rows(), self.columns);
                let a = room.stage(a, self.precision.digits());
                let threads = rayon::current_num_threads();
                by_columns(out, 0, WIDTH, threads, &|out, first| part(values, out, a, first));
            }
            #[cfg(target_arch = "x86_64")]
            Kept::Vectors(packed) => packed.multiply_add(sums(out, self.columns), a.cast()),
            #[cfg(target_arch = "x86_64")]
            Kept::Tiles(packed) => packed.multiply_add(sums(out, self.columns), a.cast()),
        }
    }
}

/// A row-major matrix of f32, of so many columns.
#[cfg(target_arch = "x86_64")]
fn sums<T: Real>(out: &mut [T], columns: usize) -> MatMut<'_, f32> {
    let rows = out.len() / columns.max(1);
    MatMut::from_row_major_slice_mut(bytemuck::cast_slice_mut(out), rows, columns)
}

/// The numbers of a matrix, rounded and panel by panel.
fn numbers<T: Real>(matrix: Factor<'_, T>, precision: Precision) -> Buffer<T> {
    let (rows, columns) = (matrix.rows(), matrix.columns());
    let mut values = Buffer::new(rows * columns);
    let panels: Vec<_> = values.chunks_mut((rows * WIDTH).max(1)).enumerate().collect();
    panels.into_par_iter().for_each(|(panel, values)| {
        let first = panel * WIDTH;
        let width = WIDTH.min(columns - first);
        let mut out = MatMut::from_row_major_slice_mut(values, rows, width);
        let mut room = Room::new(matrix, precision.digits(), rows * width);
        out.copy_from(room.stage(matrix.block(0..rows, first..first + width), precision.digits()));
    });
    values
}

/// Adds the product with some panels of `values` to `out`: the columns of the result from `first` on.
fn part<T: Real>(values: &[T], mut out: MatMut<'_, T>, a: MatRef<'_, T>, first: usize) {
    let (rows, columns) = (a.ncols(), out.ncols());
    for left in (0..columns).step_by(WIDTH) {
        let width = WIDTH.min(columns - left);
        let values = &values[(first + left) * rows..][..rows * width];
        let b = MatRef::from_row_major_slice(values, rows, width);
        matmul(out.rb_mut().subcols_mut(left, width), Accum::Add, a, b, T::ONE, Par::Seq);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::{Matrix, multiply};

    #[test]
    fn panels_give_the_product_of_the_whole() {
        for columns in [1, 95, 96, 97, 300] {
            for (m, k) in [(3, 5), (12, 321), (1, 2)] {
                let spread = |count: usize| (0..count).map(|i| (i * 7 % 11) as f32 - 5.0).collect::<Vec<_>>();
                let (a, b) = (spread(m * k), spread(k * columns));
                let a = Matrix::new(&a, m, k);
                for b in [Matrix::new(&b, k, columns), Matrix::new(&b, columns, k).t()] {
                    let mut want = vec![1.0; m * columns];
                    multiply(&mut want, a, b, true);
                    // All numbers and sums are exact in either precision.
                    for precision in [Precision::Full, Precision::Bf16] {
                        let mut got = vec![1.0; m * columns];
                        Panels::new(b, precision).multiply_add(&mut got, a);
                        assert_eq!(got, want, "{m} × {k} × {columns}, {precision}");
                    }
                    let mut got = vec![1.0; m * columns];
                    let panels = numbers(b.into(), Precision::Bf16);
                    let out = MatMut::from_row_major_slice_mut(&mut got, m, columns);
                    by_columns(out, 0, WIDTH, 3, &|out, first| part(&panels, out, a.view(), first));
                    assert_eq!(got, want, "{m} × {k} × {columns}, rounded first");
                }
            }
        }
    }

    #[test]
    fn both_sides_are_rounded() {
        // 1 + 2⁻⁹ is 1 in bfloat16.
        let (a, b) = ([1.0f32 + 1.0 / 512.0; 4], [1.0 - 1.0 / 1024.0f32; 4]);
        let (a, b) = (Matrix::new(&a, 2, 2), Matrix::new(&b, 2, 2));
        for (precision, want) in
            [(Precision::Bf16, 2.0), (Precision::Full, 2.0 * (513.0 / 512.0) * (1023.0 / 1024.0))]
        {
            let mut out = [0.0; 4];
            Panels::new(b, precision).multiply_add(&mut out, a);
            assert_eq!(out, [want; 4]);
        }
    }
}
