//! The most probable words of rows of log-probabilities, by selection: only the `k` of them are sorted, never the vocabulary.

use std::cmp::Ordering;

use burn::tensor::{DType, Int, Tensor, TensorData};

use crate::error::HeadError;
use crate::loss::is_cpu;

/// Up to so many words a GPU's own top-k is used; it holds them in registers. More are selected on the host.
const MOST_ON_DEVICE: usize = 32;

/// Numbers that the selection passes over at a time.
const RUN: usize = 64;

/// A type of log-probabilities.
pub(crate) trait Number: Copy + PartialOrd + Into<f64> {}

impl Number for f32 {}
impl Number for f64 {}

/// The `k` most probable words of every row, shape `[rows, k]`: most probable first, of equal ones the lowest word first.
///
/// `1 ≤ k ≤ V`. The rows are tokens `first ..` of the caller's, which an error counts from.
pub(super) fn best_words(log_probs: Tensor<2>, k: usize, first: usize) -> Result<Tensor<2, Int>, HeadError> {
    let ([rows, vocab], device) = (log_probs.dims(), log_probs.device());
    // The words are constants of a gradient.
    let log_probs = log_probs.inner();
    if !is_cpu(&device) && k <= MOST_ON_DEVICE {
        return best_on_device(log_probs, k, first);
    }
    let words = best_of_data(log_probs.into_data(), vocab, k, first)?;
    Ok(Tensor::<1, Int>::from_data(words.as_slice(), &device).reshape([rows, k]))
}

fn best_on_device(log_probs: Tensor<2>, k: usize, first: usize) -> Result<Tensor<2, Int>, HeadError> {
    // One number a row is read back; it is NaN if any of the row is, as no row holds +∞.
    let sums = log_probs.clone().sum_dim(1).into_data();
    if let Some(row) = sums.iter::<f64>().position(f64::is_nan) {
        return Err(HeadError::NotANumber { token: first + row });
    }
    // The reduction starts from the lowest finite number with no word, which a masked word must not lose to.
    let lowest = match log_probs.dtype() {
        DType::F16 => f64::from(burn::tensor::f16::MIN),
        DType::BF16 => f64::from(burn::tensor::bf16::MIN),
        _ => f64::from(f32::MIN),
    };
    Ok(log_probs.clamp_min(lowest).topk_with_indices(k, 1).1)
}

fn best_of_data(data: TensorData, vocab: usize, k: usize, first: usize) -> Result<Vec<i64>, HeadError> {
    if let Ok(rows) = data.as_slice::<f64>() {
        return best_of_rows(rows, vocab, k, first);
    }
    // Every half-precision number is one of f32.
    let data = data.convert_dtype(DType::F32);
    best_of_rows(data.as_slice::<f32>().expect("the type was asked for"), vocab, k, first)
}

fn best_of_rows<T: Number>(rows: &[T], vocab: usize, k: usize, first: usize) -> Result<Vec<i64>, HeadError> {
    let mut words = Vec::with_capacity(rows.len() / vocab * k);
    for (row, log_probs) in rows.chunks(vocab).enumerate() {
        words.extend(best_pairs(log_probs, k, first + row)?.into_iter().map(|(_, word)| word as i64));
    }
    Ok(words)
}

/// The `k` most probable words of a token with their log-probabilities, in order; all if there are no more.
pub(crate) fn best_pairs<T: Number>(
    row: &[T],
    k: usize,
    token: usize,
) -> Result<Vec<(f64, usize)>, HeadError> {
    let words = best(row, k).ok_or(HeadError::NotANumber { token })?;
    Ok(words.into_iter().map(|word| (row[word].into(), word)).collect())
}

/// Indices of the `k` largest numbers of a row, largest first, of equal ones the lowest index first; all if there are no
/// more. `None` if a number is NaN.
///
/// One pass that keeps at most a few more than `k` at a time: linear in the row's length, whatever its order.
pub(super) fn best<T: Number>(row: &[T], k: usize) -> Option<Vec<usize>> {
    if k == 0 {
        return row.iter().all(|x| !Into::<f64>::into(*x).is_nan()).then(Vec::new);
    }
    let order = |a: &usize, b: &usize| best_first((row[*a].into(), *a), (row[*b].into(), *b));
    let room = k.saturating_add(k.max(16)).min(row.len());
    let mut kept = Vec::with_capacity(room);
    // The k-th best so far. A later equal does not displace it.
    let mut bar = None;
    for (run, numbers) in row.chunks(RUN).enumerate() {
        // Most runs have nothing to add, which a few vector instructions find out.
        if bar.is_some_and(|bar| numbers.iter().fold(true, |all, x| all & (*x <= bar))) {
            continue;
        }
        for (i, &x) in numbers.iter().enumerate() {
            if Into::<f64>::into(x).is_nan() {
                return None;
            }
            if bar.is_some_and(|bar| x <= bar) {
                continue;
            }
            if kept.len() == room {
                kept.select_nth_unstable_by(k - 1, order);
                kept.truncate(k);
                let last = row[kept[k - 1]];
                bar = Some(last);
                if x <= last {
                    continue;
                }
            }
            kept.push(run * RUN + i);
        }
    }
    if kept.len() > k {
        kept.select_nth_unstable_by(k - 1, order);
        kept.truncate(k);
    }
    kept.sort_unstable_by(order);
    Some(kept)
}

/// Orders log-probabilities with their words: the highest first, of equal ones the lowest word first.
pub(crate) fn best_first(a: (f64, usize), b: (f64, usize)) -> Ordering {
    b.0.partial_cmp(&a.0).unwrap_or(Ordering::Equal).then(a.1.cmp(&b.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By a full sort.
    fn sorted(row: &[f64], k: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..row.len()).collect();
        order.sort_by(|&a, &b| row[b].total_cmp(&row[a]));
        order.truncate(k);
        order
    }

    /// `n` numbers of `values` different ones, in no order.
    fn scattered(n: usize, values: usize) -> Vec<f64> {
        (0..n).map(|i| -(((i * 7919 + i * i * 31) % values) as f64)).collect()
    }

    #[test]
    fn selection_agrees_with_a_full_sort() {
        let ascending: Vec<f64> = (0..500).map(f64::from).collect();
        let descending: Vec<f64> = ascending.iter().map(|x| -x).collect();
        let rows = [scattered(500, 4999), scattered(500, 7), vec![-1.0; 500], ascending, descending];
        for row in &rows {
            for k in [1, 2, 3, 16, 17, 100, 249, 250, 251, 499, 500] {
                assert_eq!(best(row, k).unwrap(), sorted(row, k), "{k} of {:?} …", &row[..5]);
            }
        }
        assert_eq!(best(&[-1.0f32, -0.5], 5).unwrap(), [1, 0]);
    }

    #[test]
    fn masked_words_come_last() {
        let mut row = scattered(300, 50);
        (0..300).filter(|i| i % 3 != 1).for_each(|i| row[i] = f64::NEG_INFINITY);
        let order = best(&row, 300).unwrap();
        assert_eq!(order, sorted(&row, 300));
        assert_eq!(order[100..103], [0, 2, 3]);
    }

    #[test]
    fn a_number_that_is_none_is_reported_wherever_it_stands() {
        for at in [0, 1, 70, 99] {
            let mut row = scattered(100, 1000);
            row[at] = f64::NAN;
            assert_eq!(best(&row, 3), None);
        }
        let rows = [-1.0f32, -2.0, -3.0, f32::NAN, -1.0, -1.0];
        assert_eq!(best_of_rows(&rows, 2, 1, 10), Err(HeadError::NotANumber { token: 11 }));
    }

    #[cfg(feature = "flex")]
    #[test]
    fn every_float_type_gives_the_same_words() {
        let device = burn::tensor::Device::flex();
        for dtype in [DType::F64, DType::F32, DType::F16, DType::BF16] {
            let data = TensorData::new(scattered(60, 11), [3, 20]).convert_dtype(dtype);
            let rows = Tensor::<2>::from_data(data, (&device, dtype));
            let words: Vec<i64> = best_words(rows, 4, 0).unwrap().into_data().iter::<i64>().collect();
            let want = scattered(60, 11).chunks(20).flat_map(|row| sorted(row, 4)).collect::<Vec<_>>();
            assert_eq!(words, want.into_iter().map(|word| word as i64).collect::<Vec<_>>(), "{dtype:?}");
        }
    }

    #[cfg(feature = "wgpu")]
    #[test]
    fn a_gpu_gives_the_same_words() {
        let device = burn::tensor::Device::wgpu(Default::default());
        let vocab = 70;
        let mut values = scattered(4 * vocab, 23);
        // Masked words everywhere, and all but two of the last row.
        (0..4 * vocab).filter(|i| i % 5 == 0).for_each(|i| values[i] = f64::NEG_INFINITY);
        (3 * vocab + 2..4 * vocab - 1).for_each(|i| values[i] = f64::NEG_INFINITY);
        let rows = |values: Vec<f64>| {
            let data = TensorData::new(values, [4, vocab]).convert_dtype(DType::F32);
            Tensor::<2>::from_data(data, (&device, DType::F32))
        };
        // Each is a kernel of its own, but for those above the most.
        for k in [2, MOST_ON_DEVICE, MOST_ON_DEVICE + 1] {
            let words = best_words(rows(values.clone()), k, 0).unwrap().into_data();
            let want: Vec<i64> =
                values.chunks(vocab).flat_map(|row| sorted(row, k)).map(|word| word as i64).collect();
            assert_eq!(words.iter::<i64>().collect::<Vec<_>>(), want, "{k}");
        }
        values[2 * vocab + 9] = f64::NAN;
        for k in [3, vocab] {
            let error = best_words(rows(values.clone()), k, 10).unwrap_err();
            assert_eq!(error, HeadError::NotANumber { token: 12 });
        }
    }
}
