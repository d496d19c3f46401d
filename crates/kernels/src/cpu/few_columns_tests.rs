use burn::tensor::bf16;

use super::*;
use crate::Precision;
use crate::cpu::Matrix;
use crate::cpu::matrix::testing::{assert_sums, sums, whole};

fn check<T: Real>() {
    let [all_lengths, all_columns, all_rows]: [&[usize]; 3] = match cfg!(miri) {
        true => [&[69], &[5], &[5]],
        false => [&[1, 15, 16, 64, 69, 448, 700, 5123], &[1, 3, 4, 7, 10, 33], &[1, 2, 3, 4, 5, 11]],
    };
    for length in all_lengths.iter().copied() {
        for columns in all_columns.iter().copied() {
            let matrix = whole::<T>(length * columns, 7);
            let transposed: Vec<T> =
                (0..columns * length).map(|i| matrix[i % length * columns + i / length]).collect();
            let short: Vec<bf16> = matrix.iter().map(|x| bf16::from_f64(x.wide())).collect();
            let [plain, turned] =
                [Matrix::new(&matrix, length, columns), Matrix::new(&transposed, columns, length).t()];
            let few = FewColumns::new(plain);
            assert_eq!(few.values[..], FewColumns::new(turned).values[..]);
            let short = Matrix::new(&short, length, columns);
            assert_eq!(few.values[..], FewColumns::<T>::new(short).values[..]);
            for count in all_rows.iter().copied() {
                let what = format!("{count} rows, {length} × {columns}");
                let (left, rows) = (whole::<T>(count * columns, 5), whole::<T>(count * length, 2));
                let (left_matrix, rows_matrix) =
                    (Matrix::new(&left, count, columns), Matrix::new(&rows, count, length));
                let exact = |got: &[T], a: Matrix<'_, T>, b: Matrix<'_, T>| {
                    let want = sums([a.into(), b.into()], Precision::Full, |_| 0.0);
                    assert_sums(got, &want, 0.0, format_args!("{what}"));
                };
                let mut out = vec![T::ONE; count * length];
                few.multiply(&left, &mut out);
                exact(&out, left_matrix, plain.t());

                let mut back = vec![T::ONE; count * columns];
                let mut sums = FewColumns::zeros(length, columns);
                few.pull_back(&rows, Some(&mut back), Some((&left, &mut sums)));
                exact(&back, rows_matrix, plain);
                let mut alone = FewColumns::zeros(length, columns);
                few.pull_back(&rows, None, Some((&left, &mut alone)));
                assert_eq!(sums.values[..], alone.values[..], "{what}");
                let mut out = vec![T::ONE; count * columns];
                few.pull_back(&rows, Some(&mut out), None);
                assert_eq!(out, back, "{what}");

                // Twice, in parts that are summed.
                let mut out = vec![T::ONE; length * columns];
                FewColumns::sum(&[&sums, &alone], &mut out);
                let half: Vec<T> = out.iter().map(|sum| *sum / T::of(2.0)).collect();
                exact(&half, rows_matrix.t(), left_matrix);
            }
        }
    }
}

#[test]
fn products_are_exact_where_numbers_are() {
    check::<f32>();
    check::<f64>();
}

#[test]
#[should_panic(expected = "numbers of the product")]
fn sizes_that_do_not_fit_are_refused() {
    FewColumns::<f32>::zeros(5, 2).multiply(&[1.0; 2], &mut [0.0; 4]);
}
