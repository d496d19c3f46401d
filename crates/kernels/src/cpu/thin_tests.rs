use burn::tensor::bf16;

use super::*;

/// Small whole numbers, whose sums of products are exact.
fn numbers<T: Real>(count: usize, by: usize) -> Vec<T> {
    (0..count).map(|i| T::of((i * by % 11) as f64 - 5.0)).collect()
}

fn check<T: Real>() {
    let [all_lengths, all_columns, all_rows]: [&[usize]; 3] = match cfg!(miri) {
        true => [&[69], &[5], &[5]],
        false => [&[1, 15, 16, 64, 69, 448, 700, 5123], &[1, 3, 4, 7, 10, 33], &[1, 2, 3, 4, 5, 11]],
    };
    for length in all_lengths.iter().copied() {
        for columns in all_columns.iter().copied() {
            let (first, matrix) = (numbers::<T>(length, 3), numbers::<T>(length * columns, 7));
            let transposed: Vec<T> =
                (0..columns * length).map(|i| matrix[i % length * columns + i / length]).collect();
            let short: Vec<bf16> = matrix.iter().map(|x| bf16::from_f64(x.wide())).collect();
            let [plain, turned] =
                [Matrix::new(&matrix, length, columns), Matrix::new(&transposed, columns, length).t()];
            for first in [None, Some(&first[..])] {
                let thin = Thin::new(plain, first, Precision::Full);
                let skip = usize::from(first.is_some());
                let all = columns + skip;
                assert_eq!(thin.columns(), all);
                assert_eq!(thin.values[..], Thin::new(turned, first, Precision::Full).values[..]);
                let short = Matrix::new(&short, length, columns);
                assert_eq!(thin.values[..], Thin::<T>::new(short, first, Precision::Full).values[..]);
                let at = |v: usize, j: usize| match (first, j) {
                    (Some(first), 0) => first[v].wide(),
                    _ => matrix[v * columns + j - skip].wide(),
                };
                for count in all_rows.iter().copied() {
                    let what = format!("{count} rows, {length} × {columns}, first {}", skip == 1);
                    let (left, rows) = (numbers::<T>(count * all, 5), numbers::<T>(count * length, 2));
                    let mut out = vec![T::ONE; count * length];
                    thin.multiply(&left, &mut out);
                    for (place, got) in out.iter().enumerate() {
                        let (i, v) = (place / length, place % length);
                        let want: f64 = (0..all).map(|j| left[i * all + j].wide() * at(v, j)).sum();
                        assert_eq!(got.wide(), want, "{what}, place {place}");
                    }

                    let mut back = vec![T::ONE; count * all];
                    let mut sums = Thin::zeros(length, all);
                    thin.pull_back(&rows, Some(&mut back), Some((&left, &mut sums)));
                    for (place, got) in back.iter().enumerate() {
                        let (i, j) = (place / all, place % all);
                        let want: f64 = (0..length).map(|v| rows[i * length + v].wide() * at(v, j)).sum();
                        assert_eq!(got.wide(), want, "{what}, place {place}");
                    }
                    let mut alone = Thin::zeros(length, all);
                    thin.pull_back(&rows, None, Some((&left, &mut alone)));
                    assert_eq!(sums.values[..], alone.values[..], "{what}");
                    let mut out = vec![T::ONE; count * all];
                    thin.pull_back(&rows, Some(&mut out), None);
                    assert_eq!(out, back, "{what}");

                    // Twice, in parts that are summed.
                    let mut column = vec![T::ONE; length];
                    let mut out = vec![T::ONE; length * columns];
                    let parts = [&sums, &alone];
                    Thin::sum(&parts, skip..all, &mut out);
                    if skip > 0 {
                        Thin::sum(&parts, 0..1, &mut column);
                    }
                    for v in 0..length {
                        for j in 0..all {
                            let products = |i: usize| rows[i * length + v].wide() * left[i * all + j].wide();
                            let want: f64 = 2.0 * (0..count).map(products).sum::<f64>();
                            let got = if j < skip { column[v] } else { out[v * columns + j - skip] };
                            assert_eq!(got.wide(), want, "{what}, row {v}, column {j}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn thin_products_are_exact_where_numbers_are() {
    check::<f32>();
    check::<f64>();
}

#[test]
fn numbers_are_rounded_to_the_precision() {
    let values = [1.0 + 1.0 / 256.0, 3.0, -1.003];
    let rounded = |x: f64| bf16::from_f64(x).to_f64();
    let thin = Thin::<f64>::new(Matrix::new(&values, 3, 1), Some(&values), Precision::Bf16);
    let mut out = [0.0; 6];
    thin.multiply(&[1.0, 0.0, 0.0, 1.0], &mut out);
    assert_eq!(out[..3], values, "the first column stays");
    assert_eq!(out[3..], values.map(rounded));
    let mut numbers = values;
    scale_rounded(&mut numbers, 3.0, Precision::Bf16);
    assert_eq!(numbers, values.map(|x| rounded(3.0 * x)));
    scale_rounded(&mut numbers, 1.1, Precision::Full);
    assert_eq!(numbers, values.map(|x| rounded(3.0 * x) * 1.1));
}

#[test]
#[should_panic(expected = "numbers of the product")]
fn sizes_that_do_not_fit_are_refused() {
    Thin::<f32>::zeros(5, 2).multiply(&[1.0; 2], &mut [0.0; 4]);
}
