//! Matrix products of tensors, at a stated precision.

use burn::backend::Flex;
use highrank_kernels::cpu::{Buffer, Factor, Real, in_pool, multiply};
use highrank_kernels::{Floats, Precision};

use super::tensors::{as_factor, factor, row_major};

/// [`Kernels::product`](crate::ops::Kernels::product) of matrices that become numbers of type `T`.
pub(super) fn of_matrices<T: Real>(
    lhs: Floats<Flex>,
    rhs: Floats<Flex>,
    precision: Precision,
) -> Floats<Flex> {
    let ([rows, _], [_, columns]) = (lhs.dims(), rhs.dims());
    let [lhs, rhs] = [lhs, rhs].map(|matrix| Operand::new(as_factor(matrix, T::dtype())));
    let mut out = Buffer::<T>::new(rows * columns);
    in_pool(|| multiply(&mut out, lhs.factor(), rhs.factor(), false, precision));
    Floats::new(out.into_tensor([rows, columns]))
}

/// A matrix, or the transpose of one, whose rows follow each other in memory.
struct Operand {
    matrix: Floats<Flex>,
    is_transposed: bool,
}

impl Operand {
    fn new(matrix: Floats<Flex>) -> Self {
        let transpose = matrix.clone().transpose();
        match !matrix.primitive().is_contiguous() && transpose.primitive().is_contiguous() {
            true => Self { matrix: transpose, is_transposed: true },
            false => Self { matrix: row_major(matrix), is_transposed: false },
        }
    }

    fn factor<T: Real>(&self) -> Factor<'_, T> {
        let factor = factor(&self.matrix);
        if self.is_transposed { factor.t() } else { factor }
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::{DType, Device};
    use highrank_kernels::precision;

    use super::*;
    use crate::backends::testing::{primitive, spread};
    use crate::ops::Kernels;

    const TYPES: [DType; 4] = [DType::F64, DType::F32, DType::F16, DType::BF16];

    fn matrix(rows: usize, columns: usize, dtype: DType) -> Floats<Flex> {
        primitive(spread([rows, columns], 0, &Device::flex(), dtype))
    }

    /// As it is, a transpose, some of the rows, some of the columns.
    fn views(rows: usize, columns: usize, dtype: DType) -> [Floats<Flex>; 4] {
        [
            matrix(rows, columns, dtype),
            matrix(columns, rows, dtype).transpose(),
            matrix(rows + 2, columns, dtype).narrow(0, 1..rows + 1),
            matrix(rows, columns + 3, dtype).narrow(1, 2..columns + 2),
        ]
    }

    #[test]
    fn products_of_all_types_and_layouts_agree_with_burns() {
        let (m, k, n) = (5, 19, 13);
        for (lhs_type, rhs_type) in TYPES.into_iter().flat_map(|lhs| TYPES.map(|rhs| (lhs, rhs))) {
            for (i, lhs) in views(m, k, lhs_type).into_iter().enumerate() {
                for (j, rhs) in views(k, n, rhs_type).into_iter().enumerate() {
                    for precision in [Precision::Full, Precision::Tf32, Precision::Bf16] {
                        let got = <Flex as Kernels>::product(lhs.clone(), rhs.clone(), precision);
                        let want = precision::product(lhs.clone(), rhs.clone(), precision);
                        let what = format!("{lhs_type:?} {i} · {rhs_type:?} {j}, {precision}");
                        assert_eq!((got.dtype(), got.dims()), (want.dtype(), [m, n]), "{what}");
                        let tolerance = if got.dtype() == DType::F64 { 1e-14 } else { 2e-6 };
                        let [got, want] = [got, want].map(Floats::into_data);
                        for (got, want) in got.iter::<f64>().zip(want.iter::<f64>()) {
                            assert!((got - want).abs() <= tolerance, "{what}: {got}, expected {want}");
                        }
                    }
                }
            }
        }
    }
}
